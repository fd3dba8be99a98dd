// engine.cpp - binds the native engine (csrc/nn): its memory is that of the arrays it is given.
#include "nn/engine.h"

#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "nn/order.h"
#include "nn/returns.h"
#include "python/bindings.h"

namespace {

template <typename T>
using Array = nb::ndarray<T, nb::c_contig, nb::device::cpu>;
using AnyArray = nb::ndarray<nb::c_contig, nb::device::cpu>;
template <typename T>
using MaybeArray = std::optional<Array<T>>;

using States = std::vector<Array<float>>;
// Offset and factor; count, mean and variance, which are written: see PufObsNorm.
using ObsNorm = std::tuple<AnyArray, AnyArray, Array<double>, Array<double>, Array<double>>;

template <typename T>
T* data_of(MaybeArray<T>& array) {
    return array ? array->data() : nullptr;
}

void check(PufCode code) {
    if (code == PUF_OK) return;
    if (code == PUF_NO_MEMORY) throw std::bad_alloc();
    throw std::invalid_argument(puf_last_error());
}

void expect(const char* name, size_t got, size_t want) {
    if (got != want)
        throw std::invalid_argument(std::string(name) + " must have " + std::to_string(want) +
                                    " numbers, but got " + std::to_string(got));
}

PufObsType obs_type(const std::string& name) {
    if (name == "uint8" || name == "bool") return PUF_OBS_U8;
    if (name == "int8") return PUF_OBS_I8;
    if (name == "int16") return PUF_OBS_I16;
    if (name == "int32") return PUF_OBS_I32;
    if (name == "int64") return PUF_OBS_I64;
    if (name == "float32") return PUF_OBS_F32;
    if (name == "float64") return PUF_OBS_F64;
    throw std::invalid_argument("observations of dtype " + name + " are not supported");
}

PufCoreKind core_kind(const std::string& name) {
    if (name == "none") return PUF_NO_CORE;
    if (name == "lstm") return PUF_LSTM;
    if (name == "gru") return PUF_GRU;
    if (name == "mingru") return PUF_MINGRU;
    throw std::invalid_argument("a core named " + name + " is not supported");
}

// Owns a PufEngine and keeps the arrays that it reads and writes alive.
class Engine {
 public:
    Engine(int32_t num_threads, const std::string& obs_dtype, int32_t obs_size,
           MaybeArray<const float> low, MaybeArray<const float> factor,
           MaybeArray<const int64_t> lowest, MaybeArray<const int64_t> highest,
           MaybeArray<const int64_t> offset, int32_t table_rows, const std::vector<int32_t>& widths,
           const std::string& activation, bool separate, const std::string& core,
           int32_t core_width, const std::vector<int32_t>& nvec, bool squash,
           Array<const float> center, Array<const float> scale, Array<const float> action_low,
           Array<const float> action_high, Array<const uint8_t> bounded) {
        PufNetworkSpec spec = {};
        spec.obs_type = obs_type(obs_dtype);
        spec.obs_size = obs_size;
        spec.low = data_of(low), spec.factor = data_of(factor);
        spec.uniform = factor && factor->size() == 1;
        if (factor) {
            expect("low", low ? low->size() : 0, factor->size());
            if (!spec.uniform) expect("factor", factor->size(), (size_t)obs_size);
        }
        spec.lowest = data_of(lowest), spec.highest = data_of(highest);
        spec.offset = data_of(offset);
        if (offset) {
            expect("offset", offset->size(), (size_t)obs_size);
            expect("lowest", lowest ? lowest->size() : 0, (size_t)obs_size);
            expect("highest", highest ? highest->size() : 0, (size_t)obs_size);
            for (int32_t i = 0; i < obs_size; i++) {
                const int64_t first = spec.lowest[i] + spec.offset[i];
                const int64_t last = spec.highest[i] + spec.offset[i];
                if (first < 0 || last < first || last >= table_rows)
                    throw std::invalid_argument("categories must name rows of the table");
            }
        }
        spec.table_rows = table_rows;
        spec.num_layers = (int32_t)widths.size();
        spec.widths = widths.data();
        spec.activation = activation == "relu" ? PUF_RELU : PUF_TANH;
        spec.separate = separate;
        spec.core = core_kind(core), spec.core_width = core_width;
        spec.num_discrete = (int32_t)nvec.size();
        spec.num_continuous = (int32_t)center.size();
        spec.nvec = nvec.data();
        spec.squash = squash;
        expect("scale", scale.size(), center.size());
        expect("action_low", action_low.size(), center.size());
        expect("action_high", action_high.size(), center.size());
        expect("bounded", bounded.size(), center.size());
        spec.center = center.data(), spec.scale = scale.data();
        spec.low_action = action_low.data(), spec.high_action = action_high.data();
        spec.bounded = bounded.data();
        const PufKernels* kernels = puf_kernels();
        if (!kernels) throw std::invalid_argument(puf_last_error());
        engine_ = puf_engine_create(&spec, kernels, num_threads);
        if (!engine_) throw std::invalid_argument(puf_last_error());
    }
    ~Engine() { puf_engine_destroy(engine_); }
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;

    std::string kernels() const { return engine_->network->kernels->name; }

    // Parameters in the order of network.h, then Adam's moments of each, and its count of steps;
    // the latter may be missing if `pass` never steps. What Muon steps has a momentum as its mean
    // and no square.
    void bind_params(const std::vector<Array<float>>& values,
                     const std::vector<Array<float>>& means,
                     const std::vector<MaybeArray<float>>& squares, MaybeArray<float> num_steps) {
        PufNetwork* net = engine_->network;
        const size_t count = (size_t)net->num_params;
        expect("values", values.size(), count);
        if (!means.empty() || !squares.empty()) {
            expect("means", means.size(), count);
            expect("squares", squares.size(), count);
            expect("num_steps", num_steps ? num_steps->size() : 0, 1);
        }
        for (size_t i = 0; i < count; i++) {
            PufParam& param = net->params[i];
            const size_t size = (size_t)param.rows * (size_t)param.cols;
            expect("a parameter", values[i].size(), size);
            if (!means.empty()) {
                expect("a mean", means[i].size(), size);
                if (squares[i]) expect("a square", squares[i]->size(), size);
            }
        }
        for (size_t i = 0; i < count; i++) {
            PufParam& param = net->params[i];
            param.value = values[i].data();
            param.mean = means.empty() ? nullptr : means[i].data();
            param.square = squares.empty() || !squares[i] ? nullptr : squares[i]->data();
        }
        params_ = values, means_ = means, squares_ = squares, num_steps_ = num_steps;
    }

    void pack() {
        need_params();
        puf_network_pack(engine_->network);
    }

    void bind_rollout(int32_t num_slots, AnyArray observations, AnyArray actions,
                      MaybeArray<uint8_t> action_masks, Array<float> logprobs, Array<float> values,
                      Array<float> rewards, Array<float> final_values, Array<uint8_t> terminals,
                      Array<uint8_t> truncations, Array<uint8_t> resets, Array<uint8_t> masks,
                      Array<float> bootstrap, Array<float> advantages, Array<float> returns) {
        const PufNetwork* net = engine_->network;
        if (values.ndim() != 2 || num_slots < 1 || values.shape(0) % (size_t)num_slots)
            throw std::invalid_argument("values must be [stretches * slots, horizon]");
        const size_t cells = values.size();
        const size_t words = (size_t)(net->head.num_discrete + net->head.num_continuous);
        expect("observations", observations.nbytes(), cells * net->obs_bytes);
        expect("actions", actions.nbytes(), cells * words * 4);
        if (action_masks)
            expect("action_masks", action_masks->size(),
                   cells * (size_t)puf_network_mask_width(net));
        expect("logprobs", logprobs.size(), cells);
        expect("rewards", rewards.size(), cells);
        expect("final_values", final_values.size(), cells);
        expect("terminals", terminals.size(), cells);
        expect("truncations", truncations.size(), cells);
        expect("resets", resets.size(), cells);
        expect("masks", masks.size(), cells);
        expect("bootstrap", bootstrap.size(), values.shape(0));
        expect("advantages", advantages.size(), cells);
        expect("returns", returns.size(), cells);
        rollout_ = PufRollout{};
        rollout_.segments = (int32_t)values.shape(0);
        rollout_.horizon = (int32_t)values.shape(1);
        rollout_.num_slots = num_slots;
        rollout_.observations = (uint8_t*)observations.data();
        rollout_.actions = (int32_t*)actions.data();
        rollout_.action_masks = data_of(action_masks);
        rollout_.logprobs = logprobs.data(), rollout_.values = values.data();
        rollout_.rewards = rewards.data(), rollout_.final_values = final_values.data();
        rollout_.terminals = terminals.data(), rollout_.truncations = truncations.data();
        rollout_.resets = resets.data(), rollout_.masks = masks.data();
        rollout_.bootstrap = bootstrap.data();
        advantages_ = advantages.data(), returns_ = returns.data();
        norm_ = {};
        kept_ = nb::make_tuple(observations, actions, action_masks, logprobs, values, rewards,
                               final_values, terminals, truncations, resets, masks, bootstrap,
                               advantages, returns);
    }

    // The statistics behind `normalise_rewards`, see PufRewardNorm; after bind_rollout.
    void bind_norm(Array<float> running, Array<double> count, Array<double> mean,
                   Array<double> variance) {
        need_rollout();
        expect("running", running.size(), (size_t)rollout_.num_slots);
        expect("count", count.size(), 1);
        expect("mean", mean.size(), 1);
        expect("variance", variance.size(), 1);
        norm_ = {};
        norm_.rollout = &rollout_;
        norm_.running = running.data(), norm_.count = count.data();
        norm_.mean = mean.data(), norm_.variance = variance.data();
        kept_norm_ = nb::make_tuple(running, count, mean, variance);
    }

    // Fills the rollout from a vector of C envs; returns what PufRollout says that collect sets.
    // `state` [slots, width] changes in place; `states` [segments, width] is written. `norm` is
    // None where observations stay as they are.
    nb::tuple collect(nb::capsule vec, Array<uint8_t> resets, const States& state,
                      const States& states, std::optional<ObsNorm> norm, double limit, uint64_t key,
                      uint64_t first_slot) {
        pack();
        need_rollout();
        expect("resets", resets.size(), (size_t)rollout_.num_slots);
        const PufState current = state_of(state, (size_t)rollout_.num_slots);
        rollout_.states = state_of(states, (size_t)rollout_.segments);
        PufVec* envs = (PufVec*)vec.data("PufVec");
        const Turn turn(envs);
        const PufObsNorm seen = norm ? norm_of(*norm, limit) : PufObsNorm{};
        run([&] {
            return puf_engine_collect(engine_, envs, &rollout_, resets.data(), &current,
                                      norm ? &seen : nullptr, key, first_slot);
        });
        return nb::make_tuple(rollout_.all_present, rollout_.all_finite, rollout_.env_share);
    }

    // One step of any slots; see PufAct. Without `actions`, values alone; without `state`, from 0.
    void act(AnyArray observations, MaybeArray<const uint8_t> action_masks,
             const std::optional<States>& state, const std::optional<States>& next_state,
             uint64_t key, uint64_t first_slot, uint64_t counter, std::optional<AnyArray> actions,
             std::optional<AnyArray> env_actions, MaybeArray<float> logprobs, Array<float> values) {
        need_params();
        const PufNetwork* net = engine_->network;
        const size_t rows = values.size();
        const size_t words = (size_t)(net->head.num_discrete + net->head.num_continuous);
        expect("observations", observations.nbytes(), rows * net->obs_bytes);
        if (action_masks)
            expect("action_masks", action_masks->size(),
                   rows * (size_t)puf_network_mask_width(net));
        PufAct act = {};
        if (actions) {
            expect("actions", actions->nbytes(), rows * words * 4);
            expect("env_actions", env_actions ? env_actions->nbytes() : 0, rows * words * 4);
            expect("logprobs", logprobs ? logprobs->size() : 0, rows);
            act.actions = (int32_t*)actions->data();
            act.env_actions = (int32_t*)env_actions->data();
            act.logprobs = logprobs->data();
        }
        if (state) act.state = state_of(*state, rows);
        if (next_state) act.next_state = state_of(*next_state, rows);
        act.rows = (int32_t)rows;
        act.observations = (const uint8_t*)observations.data();
        act.action_masks = data_of(action_masks);
        act.key = key, act.first_slot = first_slot, act.counter = counter;
        act.values = values.data();
        nb::gil_scoped_release release;
        puf_engine_act(engine_, &act);
    }

    // Normalises the rewards of the rollout in place; see PufRewardNorm.
    void normalise_rewards(bool all_present, float gamma, double floor, float limit) {
        if (!norm_.running) throw std::invalid_argument("bind_norm comes first");
        rollout_.all_present = all_present;
        norm_.gamma = gamma, norm_.floor = floor, norm_.limit = limit;
        run([&] { return puf_engine_normalise_rewards(engine_, &norm_); });
    }

    // Writes advantages and returns; returns the explained variance. See PufTargets.
    double targets(bool all_present, float gamma, float gae_lambda) {
        need_rollout();
        rollout_.all_present = all_present;
        PufTargets targets = {&rollout_, gamma, gae_lambda, advantages_, returns_, 0};
        run([&] { return puf_engine_targets(engine_, &targets); });
        return targets.explained_variance;
    }

    // `updates` of one or more passes over the rollout, in the order of `keys` or in `order`; see
    // PufPass. Writes `numbers` [updates, 7].
    void pass(const States& states, const std::optional<std::vector<uint64_t>>& keys,
              MaybeArray<const int64_t> order, MaybeArray<const float> weights,
              MaybeArray<const double> moments, int32_t per_pass, int32_t updates, bool by_step,
              bool all_present, float clip_coef, float vf_coef, float ent_coef, float vf_clip_coef,
              bool norm_adv, float adv_floor, float max_grad_norm, bool step, float learning_rate,
              float beta1, float beta2, float eps, float muon_momentum, Array<float> numbers) {
        pack();
        need_rollout();
        const size_t cells = (size_t)rollout_.segments * (size_t)rollout_.horizon;
        const size_t units = by_step ? cells : (size_t)rollout_.segments;
        if (per_pass < 1 || updates < 1)
            throw std::invalid_argument("per_pass and updates must be 1 or more");
        const size_t passes = ((size_t)updates + (size_t)per_pass - 1) / (size_t)per_pass;
        expect("numbers", numbers.size(), (size_t)updates * (PUF_NUM_LOSSES + 1));
        if (moments) expect("moments", moments->size(), 3 * (size_t)updates);
        if (keys) {
            expect("keys", keys->size(), passes);
            if (order || weights || units > INT32_MAX)
                throw std::invalid_argument("keys must come alone, for at most 2**31 - 1 units");
        } else {
            const size_t given = order ? order->size() : 0;
            if (!order || given % passes)
                throw std::invalid_argument("keys, or an order of equal passes, must be given");
            if (weights) expect("weights", weights->size(), given);
            for (size_t i = 0; i < given; i++)
                if (order->data()[i] < 0 || order->data()[i] >= (int64_t)units)
                    throw std::invalid_argument("order must name units of the rollout");
        }
        if (step && !num_steps_) throw std::invalid_argument("moments must be bound before a step");
        rollout_.all_present = all_present;
        rollout_.states = state_of(states, (size_t)rollout_.segments);
        PufPass pass = {};
        pass.rollout = &rollout_;
        pass.advantages = advantages_, pass.returns = returns_;
        pass.units = (int64_t)(keys ? units : order->size() / passes);
        pass.per_pass = per_pass, pass.num_minibatches = updates;
        pass.keys = keys ? keys->data() : nullptr;
        pass.order = data_of(order), pass.weights = data_of(weights);
        pass.moments = data_of(moments);
        pass.by_step = by_step;
        pass.loss = {clip_coef, vf_coef, ent_coef, vf_clip_coef, 0};
        pass.norm_adv = norm_adv, pass.adv_floor = adv_floor;
        pass.max_grad_norm = max_grad_norm;
        pass.step = step;
        pass.adam = {learning_rate, beta1, beta2, eps, 0, 0, 0};
        pass.muon_momentum = muon_momentum;
        pass.num_steps = step ? num_steps_->data() : nullptr;
        pass.numbers = numbers.data();
        run([&] { return puf_engine_pass(engine_, &pass); });
    }

    // Copies the gradient of the last minibatch of a pass that did not step.
    void gradient(int32_t index, Array<float> out) {
        const PufNetwork* net = engine_->network;
        if (index < 0 || index >= net->num_params) throw std::invalid_argument("no such parameter");
        const PufParam& param = net->params[index];
        expect("out", out.size(), (size_t)param.rows * (size_t)param.cols);
        memcpy(out.data(), engine_->joined + param.grad_at, out.nbytes());
    }

    // Log-probabilities [segments, horizon] of the rollout's actions.
    void logprobs(const States& states, Array<float> out) {
        pack();
        need_rollout();
        expect("out", out.size(), (size_t)rollout_.segments * (size_t)rollout_.horizon);
        rollout_.states = state_of(states, (size_t)rollout_.segments);
        run([&] { return puf_engine_logprobs(engine_, &rollout_, out.data()); });
    }

 private:
    // Lets other threads of Python run meanwhile.
    template <typename Call>
    void run(Call call) {
        PufCode code;
        {
            nb::gil_scoped_release release;
            code = call();
        }
        check(code);
    }
    // The parts of a recurrent state, [rows, width] each; none without a core.
    PufState state_of(const States& parts, size_t rows) const {
        const PufNetwork* net = engine_->network;
        PufState state = {};
        expect("a recurrent state", parts.size(), (size_t)puf_core_num_states(net));
        for (size_t i = 0; i < parts.size(); i++) {
            expect("a recurrent state", parts[i].size(), rows * (size_t)net->spec.core_width);
            state.parts[i] = parts[i].data();
        }
        return state;
    }
    PufObsNorm norm_of(const ObsNorm& given, double limit) const {
        const PufNetwork* net = engine_->network;
        const auto& [offset, factor, count, mean, variance] = given;
        const size_t size = (size_t)net->spec.obs_size;
        const bool is_double = net->spec.obs_type == PUF_OBS_F64;
        for (const AnyArray* part : {&offset, &factor}) {
            if (part->dtype() != (is_double ? nb::dtype<double>() : nb::dtype<float>()))
                throw std::invalid_argument("a norm must have the dtype of observations");
            expect("a norm", part->size(), size);
        }
        expect("count", count.size(), 1);
        expect("mean", mean.size(), size);
        expect("variance", variance.size(), size);
        return {(int32_t)size, is_double,    offset.data(), factor.data(),
                limit,         count.data(), mean.data(),   variance.data()};
    }
    void need_params() const {
        if (params_.empty()) throw std::invalid_argument("bind_params comes first");
    }
    void need_rollout() const {
        if (!rollout_.observations) throw std::invalid_argument("bind_rollout comes first");
    }

    PufEngine* engine_ = nullptr;
    PufRollout rollout_ = {};
    float *advantages_ = nullptr, *returns_ = nullptr;  // [segments, horizon], of `targets`
    PufRewardNorm norm_ = {};
    std::vector<Array<float>> params_, means_;
    std::vector<MaybeArray<float>> squares_;
    MaybeArray<float> num_steps_;
    nb::object kept_, kept_norm_;
};

nb::tuple as_tuple(const PufMoments& moments) {
    return nb::make_tuple(moments.count, moments.mean, moments.variance);
}

nb::tuple return_moments(Array<const float> rewards, Array<const uint8_t> ends,
                         MaybeArray<const uint8_t> masks, float gamma, Array<float> running) {
    if (rewards.ndim() != 2) throw std::invalid_argument("rewards must be [slots, horizon]");
    expect("ends", ends.size(), rewards.size());
    if (masks) expect("masks", masks->size(), rewards.size());
    expect("running", running.size(), rewards.shape(0));
    return as_tuple(puf_return_moments((int32_t)rewards.shape(0), (int32_t)rewards.shape(1),
                                       rewards.data(), ends.data(), nullptr, data_of(masks), gamma,
                                       running.data()));
}

// The units of a pass in the order that a key names: what `pass_` draws for itself.
void shuffled(uint64_t key, Array<int64_t> out) {
    if (out.size() > INT32_MAX)
        throw std::invalid_argument("out must have at most 2**31 - 1 numbers");
    const PufOrder order = puf_order(key, (uint32_t)out.size());
    puf_order_fill(&order, 0, (uint32_t)out.size(), out.data());
}

std::vector<std::string> kernel_sets() {
    std::vector<std::string> names;
    for (const char* name : {"avx512", "avx2", "neon", "portable"})
        if (puf_kernels_named(name)) names.push_back(name);
    return names;
}

// An argument whose memory C keeps or writes: a converted copy would be lost.
auto memory(const char* name) { return nb::arg(name).noconvert(); }

}  // namespace

void bind_engine(nb::module_& module) {
    module.def("kernel_sets", &kernel_sets);
    module.def("shuffled", &shuffled, "key"_a, "out"_a);
    module.def("return_moments", &return_moments, "rewards"_a, "ends"_a, "masks"_a.none(),
               "gamma"_a, "running"_a);
    nb::class_<Engine>(module, "Engine")
        .def(nb::init<int32_t, const std::string&, int32_t, MaybeArray<const float>,
                      MaybeArray<const float>, MaybeArray<const int64_t>, MaybeArray<const int64_t>,
                      MaybeArray<const int64_t>, int32_t, const std::vector<int32_t>&,
                      const std::string&, bool, const std::string&, int32_t,
                      const std::vector<int32_t>&, bool, Array<const float>, Array<const float>,
                      Array<const float>, Array<const float>, Array<const uint8_t>>(),
             "num_threads"_a, "obs_dtype"_a, "obs_size"_a, "low"_a.none(), "factor"_a.none(),
             "lowest"_a.none(), "highest"_a.none(), "offset"_a.none(), "table_rows"_a, "widths"_a,
             "activation"_a, "separate"_a, "core"_a, "core_width"_a, "nvec"_a, "squash"_a,
             "center"_a, "scale"_a, "action_low"_a, "action_high"_a, "bounded"_a)
        .def("kernels", &Engine::kernels)
        .def("bind_params", &Engine::bind_params, memory("values"), memory("means"),
             memory("squares"), memory("num_steps").none())
        .def("pack", &Engine::pack)
        .def("bind_rollout", &Engine::bind_rollout, "num_slots"_a, memory("observations"),
             memory("actions"), memory("action_masks").none(), memory("logprobs"), memory("values"),
             memory("rewards"), memory("final_values"), memory("terminals"), memory("truncations"),
             memory("resets"), memory("masks"), memory("bootstrap"), memory("advantages"),
             memory("returns"))
        .def("bind_norm", &Engine::bind_norm, memory("running"), memory("count"), memory("mean"),
             memory("variance"))
        .def("collect", &Engine::collect, "vec"_a, memory("resets"), memory("state"),
             memory("states"), memory("norm").none(), "limit"_a, "key"_a, "first_slot"_a)
        .def("act", &Engine::act, "observations"_a, "action_masks"_a.none(), "state"_a.none(),
             memory("next_state").none(), "key"_a, "first_slot"_a, "counter"_a,
             memory("actions").none(), memory("env_actions").none(), memory("logprobs").none(),
             memory("values"))
        .def("normalise_rewards", &Engine::normalise_rewards, "all_present"_a, "gamma"_a, "floor"_a,
             "limit"_a)
        .def("targets", &Engine::targets, "all_present"_a, "gamma"_a, "gae_lambda"_a)
        .def("pass_", &Engine::pass, "states"_a, "keys"_a.none(), "order"_a.none(),
             "weights"_a.none(), "moments"_a.none(), "per_pass"_a, "updates"_a, "by_step"_a,
             "all_present"_a, "clip_coef"_a, "vf_coef"_a, "ent_coef"_a, "vf_clip_coef"_a,
             "norm_adv"_a, "adv_floor"_a, "max_grad_norm"_a, "step"_a, "learning_rate"_a, "beta1"_a,
             "beta2"_a, "eps"_a, "muon_momentum"_a, memory("numbers"))
        .def("gradient", &Engine::gradient, "index"_a, memory("out"))
        .def("logprobs", &Engine::logprobs, "states"_a, memory("out"));
}
