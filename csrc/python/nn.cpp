// nn.cpp - kernels over arrays of training: advantages and recurrent operations, see csrc/nn/.
#include "nn/advantage.h"
#include "nn/recurrent_ops.h"
#include "python/bindings.h"

using MaybeFloats = std::optional<Floats>;
using MaybeConstFloats = std::optional<ConstFloats>;
using MaybeConstBytes = std::optional<ConstBytes>;

template <typename Array>
static auto data_of(Array& array) {
    return array ? array->data() : nullptr;
}

static void advantage(ConstFloats rewards, ConstFloats values, ConstFloats bootstrap,
                      ConstBytes terminals, ConstBytes truncations, ConstFloats final_values,
                      MaybeConstBytes masks, MaybeConstFloats ratios, Floats out, float gamma,
                      float gae_lambda, float rho_clip, float c_clip) {
    if (rewards.ndim() != 2) throw std::invalid_argument("rewards must be [segments, horizon]");
    size_t steps = rewards.size();
    bool fits = values.size() == steps && terminals.size() == steps &&
                truncations.size() == steps && final_values.size() == steps &&
                out.size() == steps && bootstrap.size() == rewards.shape(0) &&
                (!masks || masks->size() == steps) && (!ratios || ratios->size() == steps);
    if (!fits) throw std::invalid_argument("all arrays must be [segments, horizon] like rewards");
    nb::gil_scoped_release release;
    puf_advantage((int32_t)rewards.shape(0), (int32_t)rewards.shape(1), rewards.data(),
                  values.data(), bootstrap.data(), terminals.data(), truncations.data(),
                  final_values.data(), data_of(masks), data_of(ratios), gamma, gae_lambda, rho_clip,
                  c_clip, out.data());
}

// The shape of one step's recurrent state, [rows, width], which all other arrays must fit.
struct StateShape {
    template <typename Array>
    explicit StateShape(const Array& state) {
        if (state.ndim() != 2) throw std::invalid_argument("states must be [rows, width]");
        rows = (int32_t)state.shape(0), width = (int32_t)state.shape(1);
    }
    // Each array must be [rows, parts * width], or absent.
    template <typename... Arrays>
    void expect(size_t parts, const Arrays&... arrays) const {
        size_t wanted = (size_t)rows * (size_t)width * parts;
        if (!((size_of(arrays, wanted) == wanted) && ...))
            throw std::invalid_argument("all arrays must fit the states");
    }
    void expect_kept(const MaybeConstFloats& kept) const {
        if (kept && kept->size() != (size_t)rows)
            throw std::invalid_argument("kept must have one number for each row");
    }
    int32_t rows, width;

 private:
    template <typename Array>
    static size_t size_of(const Array& array, size_t) {
        return array.size();
    }
    template <typename Array>
    static size_t size_of(const std::optional<Array>& array, size_t absent) {
        return array ? array->size() : absent;
    }
};

static void lstm_forward(Floats gates, ConstFloats cell, MaybeConstFloats kept, Floats hidden,
                         MaybeFloats next_hidden, Floats next_cell, MaybeFloats tanh_cell) {
    StateShape shape(cell);
    shape.expect(1, hidden, next_cell, next_hidden, tanh_cell);
    shape.expect(4, gates);
    shape.expect_kept(kept);
    nb::gil_scoped_release release;
    puf_lstm_forward(shape.rows, shape.width, gates.data(), cell.data(), data_of(kept),
                     hidden.data(), data_of(next_hidden), next_cell.data(), data_of(tanh_cell));
}

static void lstm_backward(ConstFloats gates, ConstFloats cell, ConstFloats tanh_cell,
                          MaybeConstFloats kept, ConstFloats grad_output, ConstFloats grad_hidden,
                          Floats grad_cell, Floats grad_gates) {
    StateShape shape(cell);
    shape.expect(1, tanh_cell, grad_output, grad_hidden, grad_cell);
    shape.expect(4, gates, grad_gates);
    shape.expect_kept(kept);
    nb::gil_scoped_release release;
    puf_lstm_backward(shape.rows, shape.width, gates.data(), cell.data(), tanh_cell.data(),
                      data_of(kept), grad_output.data(), grad_hidden.data(), grad_cell.data(),
                      grad_gates.data());
}

static void gru_forward(ConstFloats projected, ConstFloats recurrent, ConstFloats hidden,
                        MaybeConstFloats kept, MaybeFloats gates, Floats output,
                        MaybeFloats next_hidden) {
    StateShape shape(hidden);
    shape.expect(1, output, next_hidden);
    shape.expect(3, projected, recurrent, gates);
    shape.expect_kept(kept);
    nb::gil_scoped_release release;
    puf_gru_forward(shape.rows, shape.width, projected.data(), recurrent.data(), hidden.data(),
                    data_of(kept), data_of(gates), output.data(), data_of(next_hidden));
}

static void gru_backward(ConstFloats gates, ConstFloats candidate, ConstFloats hidden,
                         MaybeConstFloats kept, ConstFloats grad_output, Floats grad_hidden,
                         Floats grad_projected, Floats grad_recurrent) {
    StateShape shape(hidden);
    shape.expect(1, candidate, grad_output, grad_hidden);
    shape.expect(3, gates, grad_projected, grad_recurrent);
    shape.expect_kept(kept);
    nb::gil_scoped_release release;
    puf_gru_backward(shape.rows, shape.width, gates.data(), candidate.data(), hidden.data(),
                     data_of(kept), grad_output.data(), grad_hidden.data(), grad_projected.data(),
                     grad_recurrent.data());
}

static void expect_scan(const ConstFloats& projected, const ConstFloats& start,
                        const MaybeConstBytes& resets, size_t hidden) {
    StateShape shape(start);
    size_t steps = projected.ndim() == 3 ? projected.shape(1) : 0;
    shape.expect(2 * steps, projected);
    if (hidden != start.size() * steps || (resets && resets->size() != start.shape(0) * steps))
        throw std::invalid_argument("all arrays must be [segments, horizon, ...] like projected");
}

static void mingru_forward(ConstFloats projected, ConstFloats start, MaybeConstBytes resets,
                           Floats hidden) {
    expect_scan(projected, start, resets, hidden.size());
    nb::gil_scoped_release release;
    puf_mingru_forward((int32_t)start.shape(0), (int32_t)projected.shape(1),
                       (int32_t)start.shape(1), projected.data(), start.data(), data_of(resets),
                       hidden.data());
}

static void mingru_backward(ConstFloats projected, ConstFloats start, MaybeConstBytes resets,
                            ConstFloats hidden, ConstFloats grad_hidden, Floats grad_projected,
                            Floats grad_start) {
    expect_scan(projected, start, resets, hidden.size());
    if (grad_hidden.size() != hidden.size() || grad_projected.size() != projected.size() ||
        grad_start.size() != start.size())
        throw std::invalid_argument("gradients must have the shapes of their arrays");
    nb::gil_scoped_release release;
    puf_mingru_backward((int32_t)start.shape(0), (int32_t)projected.shape(1),
                        (int32_t)start.shape(1), projected.data(), start.data(), data_of(resets),
                        hidden.data(), grad_hidden.data(), grad_projected.data(),
                        grad_start.data());
}

void bind_nn(nb::module_& module) {
    module.def("advantage", &advantage, "rewards"_a, "values"_a, "bootstrap"_a, "terminals"_a,
               "truncations"_a, "final_values"_a, "masks"_a.none(), "ratios"_a.none(), "out"_a,
               "gamma"_a, "gae_lambda"_a, "rho_clip"_a, "c_clip"_a);
    module.def("lstm_forward", &lstm_forward, "gates"_a, "cell"_a, "kept"_a.none(), "hidden"_a,
               "next_hidden"_a.none(), "next_cell"_a, "tanh_cell"_a.none());
    module.def("lstm_backward", &lstm_backward, "gates"_a, "cell"_a, "tanh_cell"_a, "kept"_a.none(),
               "grad_output"_a, "grad_hidden"_a, "grad_cell"_a, "grad_gates"_a);
    module.def("gru_forward", &gru_forward, "projected"_a, "recurrent"_a, "hidden"_a,
               "kept"_a.none(), "gates"_a.none(), "output"_a, "next_hidden"_a.none());
    module.def("gru_backward", &gru_backward, "gates"_a, "candidate"_a, "hidden"_a, "kept"_a.none(),
               "grad_output"_a, "grad_hidden"_a, "grad_projected"_a, "grad_recurrent"_a);
    module.def("mingru_forward", &mingru_forward, "projected"_a, "start"_a, "resets"_a.none(),
               "hidden"_a);
    module.def("mingru_backward", &mingru_backward, "projected"_a, "start"_a, "resets"_a.none(),
               "hidden"_a, "grad_hidden"_a, "grad_projected"_a, "grad_start"_a);
}
