// module.cpp - the Python binding of the C core; only this and loop.cpp include Python.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdlib>
#include <stdexcept>

#include "python/env_loop.h"
#include "python/nn.h"
#if defined(__GLIBC__)
#include <malloc.h>
#endif

extern "C" {
#include "nn/advantage.h"
#include "nn/recurrent_ops.h"
#include "puffer.h"
#include "sync/barrier.h"
#include "sync/flags.h"
#include "sync/futex_baseline.h"
}

namespace nb = nanobind;
using namespace nb::literals;

using Bytes = nb::ndarray<uint8_t, nb::c_contig, nb::device::cpu>;
using Floats = nb::ndarray<float, nb::c_contig, nb::device::cpu>;
using ConstFloats = nb::ndarray<const float, nb::c_contig, nb::device::cpu>;
using ConstBytes = nb::ndarray<const uint8_t, nb::c_contig, nb::device::cpu>;
using ConstInts = nb::ndarray<const int32_t, nb::c_contig, nb::device::cpu>;
using AnyArray = nb::ndarray<nb::c_contig, nb::device::cpu>;
using SpreadArray = nb::ndarray<nb::device::cpu>;  // rows that may lie apart
using ConstArray = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;

static void check(PufCode code) {
    if (code == PUF_OK) return;
    if (code == PUF_NO_MEMORY) throw std::bad_alloc();
    if (code == PUF_BAD_ARGUMENT) throw std::invalid_argument(puf_last_error());
    throw std::runtime_error(puf_last_error());
}

static nb::list fields(const PufField* rows, int32_t count) {
    nb::list out;
    for (int32_t i = 0; i < count; i++) {
        const char* types[] = {"float", "int", "choice"};
        nb::dict row;
        row["name"] = rows[i].name;
        row["type"] = types[rows[i].type];
        row["default"] = rows[i].value;
        row["low"] = rows[i].low;
        row["high"] = rows[i].high;
        row["doc"] = rows[i].doc;
        row["choices"] = rows[i].choices ? rows[i].choices : "";
        out.append(row);
    }
    return out;
}

static nb::list infos() {
    nb::list out;
    for (int32_t i = 0; i < puf_num_infos(); i++) {
        const PufEnvInfo* info = puf_info(i);
        nb::dict row;
        row["name"] = info->name;
        row["doc"] = info->doc ? info->doc : "";
        row["group"] = info->group ? info->group : "";
        row["params"] = fields(info->params, info->num_params);
        row["metrics"] = fields(info->metrics, info->num_metrics);
        out.append(row);
    }
    return out;
}

// Owns a PufVec and keeps the arrays it writes to alive.
class Vec {
 public:
    Vec(const std::string& name, int32_t num_envs, int32_t num_threads,
        const std::vector<double>& params, bool double_buffer)
        : info_(puf_find_info(name.c_str())) {
        if (!info_) throw std::invalid_argument("unknown env: " + name);
        if ((int32_t)params.size() != info_->num_params)
            throw std::invalid_argument("wrong number of params for " + name);
        vec_ = puf_vec_create(info_, num_envs, num_threads, double_buffer, params.data());
        if (!vec_) throw std::invalid_argument(puf_last_error());
    }
    ~Vec() { close(); }
    Vec(const Vec&) = delete;
    Vec& operator=(const Vec&) = delete;

    void close() {
        puf_vec_destroy(vec_);
        vec_ = nullptr;
    }

    nb::dict layout() {
        const PufBatch* batch = puf_vec_batch(get());
        const PufLayout& layout = batch->layout;
        nb::list shape, nvec;
        for (int32_t i = 0; i < layout.obs.ndim; i++) shape.append(layout.obs.shape[i]);
        for (int32_t i = 0; i < layout.actions.num_discrete; i++)
            nvec.append(layout.actions.nvec[i]);
        nb::dict out;
        out["agents"] = layout.agents;
        out["obs_dtype"] = layout.obs.dtype == PUF_F32 ? "float32" : "uint8";
        out["obs_shape"] = nb::tuple(shape);
        out["obs_low"] = layout.obs.low;
        out["obs_high"] = layout.obs.high;
        out["nvec"] = nb::tuple(nvec);
        out["num_continuous"] = layout.actions.num_continuous;
        out["action_low"] = layout.actions.low;
        out["action_high"] = layout.actions.high;
        out["action_masks"] = layout.action_masks;
        out["width"] = layout.width;
        out["height"] = layout.height;
        out["env_bytes"] = batch->env_bytes;
        return out;
    }

    void bind(SpreadArray observations, AnyArray actions, Floats rewards, Bytes terminals,
              Bytes truncations, Bytes masks, std::optional<SpreadArray> action_masks,
              AnyArray final_observations) {
        const PufBatch* batch = puf_vec_batch(get());
        size_t slots = num_slots();
        expect("observations", observations.nbytes(), slots * batch->obs_bytes);
        expect("final_observations", final_observations.nbytes(), slots * batch->obs_bytes);
        expect("actions", actions.nbytes(), slots * 4 * (size_t)batch->action_words);
        expect("rewards", rewards.nbytes(), slots * 4);
        expect("terminals", terminals.nbytes(), slots);
        expect("truncations", truncations.nbytes(), slots);
        expect("masks", masks.nbytes(), slots);
        if (batch->layout.action_masks)
            expect("action_masks", action_masks ? action_masks->nbytes() : 0,
                   slots * (size_t)batch->mask_width);
        PufBuffers buffers = {};
        buffers.observations = observations.data();
        buffers.actions = actions.data();
        buffers.final_observations = final_observations.data();
        buffers.rewards = rewards.data();
        buffers.terminals = terminals.data();
        buffers.truncations = truncations.data();
        buffers.masks = masks.data();
        buffers.action_masks = action_masks ? (uint8_t*)action_masks->data() : nullptr;
        buffers.obs_stride = row_stride("observations", observations);
        buffers.mask_stride = action_masks ? row_stride("action_masks", *action_masks) : 0;
        check(puf_vec_bind(vec_, &buffers));
        kept_ = nb::make_tuple(observations, actions, rewards, terminals, truncations, masks,
                               action_masks, final_observations);
    }

    // For other parts of the core; valid until `close`.
    nb::capsule handle() { return nb::capsule(get(), "PufVec"); }

    void place(uint64_t first_env) { puf_vec_place(get(), first_env); }

    void reset(uint64_t seed) {
        PufVec* vec = get();
        PufCode code;
        {
            nb::gil_scoped_release release;
            code = puf_vec_reset(vec, seed);
        }
        check(code);
    }

    // Steps every env with the bound action rows, or with `actions` read in place.
    void step(std::optional<ConstArray> actions) {
        PufVec* vec = get();
        const void* rows = nullptr;
        if (actions) {
            expect("actions", actions->nbytes(),
                   num_slots() * 4 * (size_t)puf_vec_batch(vec)->action_words);
            rows = actions->data();
        }
        PufCode code;
        {
            nb::gil_scoped_release release;
            code = puf_vec_step(vec, rows);
        }
        check(code);
    }

    // Steps half 0 or 1 in the background with the bound action rows; `finish` waits for it.
    void begin(int32_t half) { check(puf_vec_begin(get(), half)); }
    void finish(int32_t half) {
        PufVec* vec = get();
        nb::gil_scoped_release release;
        puf_vec_finish(vec, half);
    }

    // Sums, not means, so that several vectors can be added up.
    nb::dict drain() {
        PufStats stats;
        puf_vec_drain(get(), &stats);
        nb::dict metrics;
        for (int32_t i = 0; i < info_->num_metrics; i++)
            metrics[info_->metrics[i].name] = stats.metrics[i];
        nb::dict out;
        out["episodes"] = stats.episodes;
        out["samples"] = stats.samples;
        out["return_sum"] = stats.return_sum;
        out["return_min"] = stats.return_min;
        out["return_max"] = stats.return_max;
        out["length_sum"] = stats.length_sum;
        out["metric_sums"] = metrics;
        return out;
    }

    nb::object final_returns() { return view(puf_vec_final_returns(get())); }
    nb::object final_lengths() { return view(puf_vec_final_lengths(get())); }
    nb::object final_metrics() {
        return view(puf_vec_final_metrics(get()), (size_t)info_->num_metrics);
    }

    size_t snapshot_bytes() { return puf_vec_snapshot_bytes(get()); }

    // Copies envs [first, last) to or from `rows`, snapshot_bytes each.
    void snapshot(int32_t first, int32_t last, Bytes rows) {
        expect_rows(first, last, rows.nbytes());
        for (int32_t env = first; env < last; env++)
            check(puf_vec_snapshot(vec_, env, rows.data() + row(env - first)));
    }
    void restore(int32_t first, int32_t last, ConstBytes rows) {
        expect_rows(first, last, rows.nbytes());
        check(puf_vec_restore_range(vec_, first, last, rows.data()));
    }

    void render(int32_t env, Bytes rgb) {
        if (rgb.ndim() != 3 || rgb.shape(2) != 3)
            throw std::invalid_argument("rgb must have shape (height, width, 3)");
        PufCanvas canvas = {rgb.data(), (int32_t)rgb.shape(1), (int32_t)rgb.shape(0)};
        check(puf_vec_render(get(), env, &canvas));
    }

 private:
    PufVec* get() {
        if (!vec_) throw std::invalid_argument("this vector env is closed");
        return vec_;
    }
    size_t num_slots() {
        const PufBatch* batch = puf_vec_batch(get());
        return (size_t)batch->num_envs * (size_t)batch->agents_per_env;
    }
    size_t row(int32_t index) { return (size_t)index * puf_vec_snapshot_bytes(vec_); }
    static void expect(const char* name, size_t got, size_t want) {
        if (got != want)
            throw std::invalid_argument(std::string(name) + " must have " + std::to_string(want) +
                                        " bytes, but got " + std::to_string(got));
    }
    // Bytes from one row to the next; 0 where there is one. A row itself has no gaps.
    static size_t row_stride(const char* name, const SpreadArray& array) {
        int64_t items = 1;
        for (size_t i = array.ndim(); i-- > 1; items *= (int64_t)array.shape(i))
            if (array.shape(i) > 1 && array.stride(i) != items)
                throw std::invalid_argument(std::string(name) + " must have rows without gaps");
        if (array.ndim() < 1 || array.shape(0) < 2) return 0;
        if (array.stride(0) < items)
            throw std::invalid_argument(std::string(name) + " must have rows one after another");
        return (size_t)array.stride(0) * array.itemsize();
    }
    void expect_rows(int32_t first, int32_t last, size_t got) {
        if (first < 0 || last < first || last > puf_vec_batch(get())->num_envs)
            throw std::invalid_argument("env range is outside the vector");
        expect("rows", got, row(last - first));
    }
    // Rows of one number a slot, or of `width`.
    template <typename T>
    nb::object view(const T* data, size_t width = 0) {
        size_t shape[2] = {num_slots(), width};
        size_t ndim = width ? 2 : 1;
        return nb::cast(nb::ndarray<nb::numpy, const T>(data, ndim, shape, nb::find(this)));
    }

    const PufEnvInfo* info_;
    PufVec* vec_ = nullptr;
    nb::object kept_;
};

static void advantage(ConstFloats rewards, ConstFloats values, ConstFloats bootstrap,
                      ConstBytes terminals, ConstBytes truncations, ConstFloats final_values,
                      std::optional<ConstBytes> masks, std::optional<ConstFloats> ratios,
                      Floats out, float gamma, float gae_lambda, float rho_clip, float c_clip) {
    if (rewards.ndim() != 2) throw std::invalid_argument("rewards must be [segments, horizon]");
    size_t cells = rewards.size();
    bool fits = values.size() == cells && terminals.size() == cells &&
                truncations.size() == cells && final_values.size() == cells &&
                out.size() == cells && bootstrap.size() == rewards.shape(0) &&
                (!masks || masks->size() == cells) && (!ratios || ratios->size() == cells);
    if (!fits) throw std::invalid_argument("all arrays must be [segments, horizon] like rewards");
    nb::gil_scoped_release release;
    puf_advantage((int32_t)rewards.shape(0), (int32_t)rewards.shape(1), rewards.data(),
                  values.data(), bootstrap.data(), terminals.data(), truncations.data(),
                  final_values.data(), masks ? masks->data() : nullptr,
                  ratios ? ratios->data() : nullptr, gamma, gae_lambda, rho_clip, c_clip,
                  out.data());
}

// Recurrent cells, see cells.h. Rows and width are those of `hidden`; all else must fit.
using MaybeFloats = std::optional<Floats>;
using MaybeConstFloats = std::optional<ConstFloats>;

static float* data_of(MaybeFloats& array) { return array ? array->data() : nullptr; }
static const float* data_of(MaybeConstFloats& array) { return array ? array->data() : nullptr; }

struct Cells {
    template <typename Array>
    explicit Cells(const Array& hidden) {
        if (hidden.ndim() != 2) throw std::invalid_argument("states must be [rows, width]");
        rows = (int32_t)hidden.shape(0), width = (int32_t)hidden.shape(1);
    }
    template <typename Array>
    void expect(const Array& array, size_t widths) const {
        if (array.size() != (size_t)rows * (size_t)width * widths)
            throw std::invalid_argument("all arrays must fit the states");
    }
    template <typename Array>
    void expect_if(const std::optional<Array>& array, size_t widths) const {
        if (array) expect(*array, widths);
    }
    void expect_rows(const MaybeConstFloats& kept) const {
        if (kept && kept->size() != (size_t)rows)
            throw std::invalid_argument("kept must have one number for each row");
    }
    int32_t rows, width;
};

static void lstm_forward(Floats gates, ConstFloats cell, MaybeConstFloats kept, Floats hidden,
                         MaybeFloats next_hidden, Floats next_cell, MaybeFloats squashed) {
    Cells cells(cell);
    cells.expect(gates, 4), cells.expect(hidden, 1), cells.expect(next_cell, 1);
    cells.expect_if(next_hidden, 1), cells.expect_if(squashed, 1), cells.expect_rows(kept);
    nb::gil_scoped_release release;
    puf_lstm_forward(cells.rows, cells.width, gates.data(), cell.data(), data_of(kept),
                     hidden.data(), data_of(next_hidden), next_cell.data(), data_of(squashed));
}

static void lstm_backward(ConstFloats gates, ConstFloats cell, ConstFloats squashed,
                          MaybeConstFloats kept, ConstFloats of_output, ConstFloats of_hidden,
                          Floats of_cell, Floats of_gates) {
    Cells cells(cell);
    cells.expect(gates, 4), cells.expect(squashed, 1), cells.expect(of_output, 1);
    cells.expect(of_hidden, 1), cells.expect(of_cell, 1), cells.expect(of_gates, 4);
    cells.expect_rows(kept);
    nb::gil_scoped_release release;
    puf_lstm_backward(cells.rows, cells.width, gates.data(), cell.data(), squashed.data(),
                      data_of(kept), of_output.data(), of_hidden.data(), of_cell.data(),
                      of_gates.data());
}

static void gru_forward(ConstFloats projected, ConstFloats remembered, ConstFloats hidden,
                        MaybeConstFloats kept, MaybeFloats gates, Floats output,
                        MaybeFloats next_hidden) {
    Cells cells(hidden);
    cells.expect(projected, 3), cells.expect(remembered, 3), cells.expect(output, 1);
    cells.expect_if(gates, 3), cells.expect_if(next_hidden, 1), cells.expect_rows(kept);
    nb::gil_scoped_release release;
    puf_gru_forward(cells.rows, cells.width, projected.data(), remembered.data(), hidden.data(),
                    data_of(kept), data_of(gates), output.data(), data_of(next_hidden));
}

static void gru_backward(ConstFloats gates, ConstFloats inner, ConstFloats hidden,
                         MaybeConstFloats kept, ConstFloats of_output, Floats of_hidden,
                         Floats of_projected, Floats of_remembered) {
    Cells cells(hidden);
    cells.expect(gates, 3), cells.expect(inner, 1), cells.expect(of_output, 1);
    cells.expect(of_hidden, 1), cells.expect(of_projected, 3), cells.expect(of_remembered, 3);
    cells.expect_rows(kept);
    nb::gil_scoped_release release;
    puf_gru_backward(cells.rows, cells.width, gates.data(), inner.data(), hidden.data(),
                     data_of(kept), of_output.data(), of_hidden.data(), of_projected.data(),
                     of_remembered.data());
}

static void expect_scan(ConstFloats projected, ConstFloats start, std::optional<ConstBytes>& resets,
                        size_t hidden) {
    Cells cells(start);
    size_t steps = projected.ndim() == 3 ? projected.shape(1) : 0;
    cells.expect(projected, 2 * steps);
    if (hidden != start.size() * steps || (resets && resets->size() != start.shape(0) * steps))
        throw std::invalid_argument("all arrays must be [segments, horizon, ...] like projected");
}

static void mingru_forward(ConstFloats projected, ConstFloats start,
                           std::optional<ConstBytes> resets, Floats hidden) {
    expect_scan(projected, start, resets, hidden.size());
    nb::gil_scoped_release release;
    puf_mingru_forward((int32_t)start.shape(0), (int32_t)projected.shape(1),
                       (int32_t)start.shape(1), projected.data(), start.data(),
                       resets ? resets->data() : nullptr, hidden.data());
}

static void mingru_backward(ConstFloats projected, ConstFloats start,
                            std::optional<ConstBytes> resets, ConstFloats hidden,
                            ConstFloats of_hidden, Floats of_projected, Floats of_start) {
    expect_scan(projected, start, resets, hidden.size());
    if (of_hidden.size() != hidden.size() || of_projected.size() != projected.size() ||
        of_start.size() != start.size())
        throw std::invalid_argument("gradients must have the shapes of what they are of");
    nb::gil_scoped_release release;
    puf_mingru_backward((int32_t)start.shape(0), (int32_t)projected.shape(1),
                        (int32_t)start.shape(1), projected.data(), start.data(),
                        resets ? resets->data() : nullptr, hidden.data(), of_hidden.data(),
                        of_projected.data(), of_start.data());
}

static bool barrier_wait(Bytes memory, int32_t rank, int32_t size, uint32_t turn, int32_t spins,
                         int32_t timeout_ms) {
    if (rank < 0 || rank >= size || memory.nbytes() < puf_barrier_bytes(size) ||
        (uintptr_t)memory.data() % 64)
        throw std::invalid_argument("a barrier needs barrier_bytes of memory aligned to 64");
    nb::gil_scoped_release release;
    return puf_barrier_wait((PufBarrier*)memory.data(), rank, size, turn, spins, timeout_ms);
}

static int64_t futex_baseline(int32_t num_workers, int64_t work_ns, int32_t turns) {
    if (num_workers < 1 || work_ns < 0 || turns < 1)
        throw std::invalid_argument("a hand-over needs a worker and a turn");
    nb::gil_scoped_release release;
    return puf_futex_baseline(num_workers, work_ns, turns);
}

// Turns between a parent and its workers, see flags.h. One object serves either side.
class Flags {
 public:
    Flags(Bytes memory, int32_t num_workers, int32_t spin_us)
        : memory_(memory), num_workers_(num_workers) {
        if (num_workers < 1 || memory.nbytes() < puf_flags_bytes(num_workers) ||
            (uintptr_t)memory.data() % 64)
            throw std::invalid_argument("flags need puf_flags_bytes of memory aligned to 64");
        flags_ = (PufFlags*)memory.data();
        spin_.limit_ns = (int64_t)spin_us * 1000;
    }

    void start(ConstInts workers) {
        for (size_t i = 0; i < workers.size(); i++) checked(workers.data()[i]);
        puf_flags_start(flags_, workers.data(), (int32_t)workers.size());
    }

    void call(int32_t worker) { puf_flags_call(flags_, checked(worker)); }

    int wait(ConstInts pending, int32_t count, int life_fd, int32_t timeout_ms) {
        for (size_t i = 0; i < pending.size(); i++) checked(pending.data()[i]);
        if (count > (int32_t)pending.size())
            throw std::invalid_argument("count must not exceed the number of pending workers");
        return waited([&] {
            return puf_flags_wait(flags_, pending.data(), (int32_t)pending.size(), count, life_fd,
                                  &spin_, timeout_ms);
        });
    }

    // A whole turn of these workers: start, wait, and what they said together. -1 where the wait
    // ended without them: they are started, and `wait` may follow.
    int64_t turn(ConstInts workers, int life_fd, int32_t timeout_ms) {
        start(workers);
        if (wait(workers, (int32_t)workers.size(), life_fd, timeout_ms) != PUF_TURN) return -1;
        return said_by(workers);
    }

    int wait_turn(int32_t worker, int life_fd, int32_t timeout_ms) {
        checked(worker);
        return waited(
            [&] { return puf_flags_wait_turn(flags_, worker, life_fd, &spin_, timeout_ms); });
    }

    void finish(int32_t worker, uint32_t said) { puf_flags_finish(flags_, checked(worker), said); }

    nb::list ready(ConstInts pending) {
        for (size_t i = 0; i < pending.size(); i++) checked(pending.data()[i]);
        std::vector<int32_t> out(pending.size());
        int32_t count =
            puf_flags_ready(flags_, pending.data(), (int32_t)pending.size(), out.data());
        nb::list workers;
        for (int32_t i = 0; i < count; i++) workers.append(out[(size_t)i]);
        return workers;
    }

    uint32_t said(int32_t worker) { return puf_flags_said(flags_, checked(worker)); }

    // What they said together, bit by bit.
    uint32_t said_by(ConstInts workers) {
        uint32_t bits = 0;
        for (size_t i = 0; i < workers.size(); i++)
            bits |= puf_flags_said(flags_, checked(workers.data()[i]));
        return bits;
    }

    uint32_t progress(int32_t worker) { return puf_flags_progress(flags_, checked(worker)); }
    void revoke(int32_t worker) { puf_flags_revoke(flags_, checked(worker)); }

    nb::object progress_word(int32_t worker) {
        size_t shape[1] = {1};
        uint32_t* word = puf_flags_progress_word(flags_, checked(worker));
        return nb::cast(nb::ndarray<nb::numpy, uint32_t>(word, 1, shape, nb::find(this)));
    }

 private:
    int32_t checked(int32_t worker) {
        if (worker < 0 || worker >= num_workers_)
            throw std::invalid_argument("worker is not one of this vector's");
        return worker;
    }
    // A signal ends the wait: Python looks at it (Ctrl-C raises), and the caller waits again.
    template <typename Wait>
    int waited(Wait wait) {
        PufWaited result;
        {
            nb::gil_scoped_release release;
            result = wait();
        }
        if (result == PUF_INTERRUPTED && PyErr_CheckSignals()) throw nb::python_error();
        return (int)result;
    }

    Bytes memory_;
    int32_t num_workers_;
    PufFlags* flags_;
    PufSpin spin_ = {};
};

// Tells glibc to keep freed memory for the next allocation instead of giving it back to the system.
// Each minibatch allocates the same megabytes again; without this every one of them is faulted in
// anew, page by page.
static bool keep_memory() {
#if defined(__GLIBC__)
    return mallopt(M_MMAP_THRESHOLD, 1 << 30) && mallopt(M_TRIM_THRESHOLD, 0x7FFFFFFF);
#else
    return false;
#endif
}

NB_MODULE(_core, module) {
    module.doc() = "The C core: native environments and kernels. Import pufferlib.native instead.";
    module.def("infos", &infos, "Descriptors of every native environment.");
    module.def("keep_memory", &keep_memory,
               "Keep freed memory for reuse; whether that was possible.");
    module.def("env_seed", &puf_env_seed, "seed"_a, "index"_a);
    module.def("advantage", &advantage, "rewards"_a, "values"_a, "bootstrap"_a, "terminals"_a,
               "truncations"_a, "final_values"_a, "masks"_a.none(), "ratios"_a.none(), "out"_a,
               "gamma"_a, "gae_lambda"_a, "rho_clip"_a, "c_clip"_a);
    module.def("lstm_forward", &lstm_forward, "gates"_a, "cell"_a, "kept"_a.none(), "hidden"_a,
               "next_hidden"_a.none(), "next_cell"_a, "squashed"_a.none());
    module.def("lstm_backward", &lstm_backward, "gates"_a, "cell"_a, "squashed"_a, "kept"_a.none(),
               "of_output"_a, "of_hidden"_a, "of_cell"_a, "of_gates"_a);
    module.def("gru_forward", &gru_forward, "projected"_a, "remembered"_a, "hidden"_a,
               "kept"_a.none(), "gates"_a.none(), "output"_a, "next_hidden"_a.none());
    module.def("gru_backward", &gru_backward, "gates"_a, "inner"_a, "hidden"_a, "kept"_a.none(),
               "of_output"_a, "of_hidden"_a, "of_projected"_a, "of_remembered"_a);
    module.def("mingru_forward", &mingru_forward, "projected"_a, "start"_a, "resets"_a.none(),
               "hidden"_a);
    module.def("mingru_backward", &mingru_backward, "projected"_a, "start"_a, "resets"_a.none(),
               "hidden"_a, "of_hidden"_a, "of_projected"_a, "of_start"_a);
    module.def("flags_bytes", &puf_flags_bytes, "num_workers"_a);
    module.def("futex_baseline", &futex_baseline, "num_workers"_a, "work_ns"_a, "turns"_a);
    module.def("barrier_bytes", &puf_barrier_bytes, "size"_a);
    module.def("barrier_wait", &barrier_wait, "memory"_a, "rank"_a, "size"_a, "turn"_a, "spins"_a,
               "timeout_ms"_a);
    module.def("die_with_parent", &puf_die_with_parent);
    module.def("adopt_orphans", &puf_adopt_orphans);
    nb::class_<Flags>(module, "Flags")
        .def(nb::init<Bytes, int32_t, int32_t>(), "memory"_a, "num_workers"_a, "spin_us"_a)
        .def("start", &Flags::start, "workers"_a)
        .def("call", &Flags::call, "worker"_a)
        .def("wait", &Flags::wait, "pending"_a, "count"_a, "life_fd"_a, "timeout_ms"_a)
        .def("turn", &Flags::turn, "workers"_a, "life_fd"_a, "timeout_ms"_a)
        .def("wait_turn", &Flags::wait_turn, "worker"_a, "life_fd"_a, "timeout_ms"_a)
        .def("finish", &Flags::finish, "worker"_a, "said"_a)
        .def("ready", &Flags::ready, "pending"_a)
        .def("said", &Flags::said, "worker"_a)
        .def("said_by", &Flags::said_by, "workers"_a)
        .def("progress", &Flags::progress, "worker"_a)
        .def("revoke", &Flags::revoke, "worker"_a)
        .def("progress_word", &Flags::progress_word, "worker"_a);
    bind_env_loop(module);
    bind_nn(module);
    nb::class_<Vec>(module, "Vec")
        .def(nb::init<const std::string&, int32_t, int32_t, const std::vector<double>&, bool>(),
             "name"_a, "num_envs"_a, "num_threads"_a, "params"_a, "double_buffer"_a = false)
        .def("layout", &Vec::layout)
        .def("bind", &Vec::bind, "observations"_a, "actions"_a, "rewards"_a, "terminals"_a,
             "truncations"_a, "masks"_a, "action_masks"_a.none(), "final_observations"_a)
        .def("place", &Vec::place, "first_env"_a)
        .def("reset", &Vec::reset, "seed"_a)
        .def("step", &Vec::step, "actions"_a = nb::none())
        .def("begin", &Vec::begin, "half"_a)
        .def("finish", &Vec::finish, "half"_a)
        .def("drain", &Vec::drain)
        .def("final_returns", &Vec::final_returns)
        .def("final_lengths", &Vec::final_lengths)
        .def("final_metrics", &Vec::final_metrics)
        .def("snapshot_bytes", &Vec::snapshot_bytes)
        .def("snapshot", &Vec::snapshot, "first"_a, "last"_a, "rows"_a)
        .def("restore", &Vec::restore, "first"_a, "last"_a, "rows"_a)
        .def("render", &Vec::render, "env"_a, "rgb"_a)
        .def("handle", &Vec::handle)
        .def("close", &Vec::close);
}
