// vec.cpp - environments by name and vectors of them, see puffer.h.
#include "python/bindings.h"

using AnyArray = nb::ndarray<nb::c_contig, nb::device::cpu>;
using SpreadArray = nb::ndarray<nb::device::cpu>;  // rows need not be contiguous
using ConstArray = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;

static void check(PufCode code) {
    if (code == PUF_OK) return;
    if (code == PUF_NO_MEMORY) throw std::bad_alloc();
    if (code == PUF_BAD_ARGUMENT) throw std::invalid_argument(puf_last_error());
    throw std::runtime_error(puf_last_error());
}

static nb::list fields(const PufField* table, int32_t count) {
    nb::list out;
    for (int32_t i = 0; i < count; i++) {
        const char* types[] = {"float", "int", "choice"};
        nb::dict field;
        field["name"] = table[i].name;
        field["type"] = types[table[i].type];
        field["default"] = table[i].value;
        field["low"] = table[i].low;
        field["high"] = table[i].high;
        field["doc"] = table[i].doc;
        field["choices"] = table[i].choices ? table[i].choices : "";
        out.append(field);
    }
    return out;
}

static nb::list infos() {
    nb::list out;
    for (int32_t i = 0; i < puf_num_infos(); i++) {
        const PufEnvInfo* info = puf_info(i);
        nb::dict entry;
        entry["name"] = info->name;
        entry["doc"] = info->doc ? info->doc : "";
        entry["group"] = info->group ? info->group : "";
        entry["action_names"] = info->action_names ? info->action_names : "";
        entry["params"] = fields(info->params, info->num_params);
        entry["metrics"] = fields(info->metrics, info->num_metrics);
        out.append(entry);
    }
    return out;
}

static bool words_below(nb::handle array, uint32_t limit) {
    Py_buffer words;
    if (PyObject_GetBuffer(array.ptr(), &words, PyBUF_SIMPLE)) throw nb::python_error();
    bool below = puf_words_below((const uint32_t*)words.buf, (size_t)words.len / 4, limit);
    PyBuffer_Release(&words);
    return below;
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
    ~Vec() { puf_vec_destroy(vec_); }
    Vec(const Vec&) = delete;
    Vec& operator=(const Vec&) = delete;

    void close() {
        if (!vec_) return;
        {
            const Turn turn(vec_);
        }  // raises where another thread is in a call
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
        const Turn turn(get());
        const PufBatch* batch = puf_vec_batch(vec_);
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

    void place(uint64_t first_env) {
        const Turn turn(get());
        puf_vec_place(vec_, first_env);
    }

    // Seeds env i from (seed, i), or with seeds[i] where they are given.
    void reset(uint64_t seed, std::optional<ConstArray> seeds) {
        PufVec* vec = get();
        const Turn turn(vec);
        if (seeds) expect("seeds", seeds->nbytes(), num_envs() * sizeof(uint64_t));
        PufCode code;
        {
            nb::gil_scoped_release release;
            code = seeds ? puf_vec_reset_each(vec, (const uint64_t*)seeds->data())
                         : puf_vec_reset(vec, seed);
        }
        check(code);
    }

    // Steps every env that is not in `held` with the bound action rows, or with `actions` read in
    // place.
    void step(std::optional<ConstArray> actions, std::optional<ConstBytes> held) {
        PufVec* vec = get();
        const Turn turn(vec);
        const void* rows = nullptr;
        if (actions) {
            expect("actions", actions->nbytes(),
                   num_slots() * 4 * (size_t)puf_vec_batch(vec)->action_words);
            rows = actions->data();
        }
        if (held) expect("held", held->nbytes(), num_envs());
        PufCode code;
        {
            nb::gil_scoped_release release;
            code = held ? puf_vec_step_except(vec, rows, held->data()) : puf_vec_step(vec, rows);
        }
        check(code);
    }

    // Steps half 0 or 1 in the background with the bound action rows; `finish` waits for it.
    void begin(int32_t half) {
        const Turn turn(get());
        check(puf_vec_begin(vec_, half));
    }
    void finish(int32_t half) {
        PufVec* vec = get();
        const Turn turn(vec);
        nb::gil_scoped_release release;
        puf_vec_finish(vec, half);
    }

    // Sums, not means, so that the statistics of several vectors can be added: episodes, their
    // returns and lengths, least and largest return, samples, and the sum of each metric.
    nb::tuple drain() {
        PufStats stats;
        const Turn turn(get());
        puf_vec_drain(vec_, &stats);
        nb::list metrics;
        for (int32_t i = 0; i < info_->num_metrics; i++) metrics.append(stats.metrics[i]);
        return nb::make_tuple(stats.episodes, stats.return_sum, stats.length_sum, stats.return_min,
                              stats.return_max, stats.samples, metrics);
    }

    nb::object final_returns() { return view(puf_vec_final_returns(get())); }
    nb::object final_lengths() { return view(puf_vec_final_lengths(get())); }
    nb::object final_metrics() {
        return view(puf_vec_final_metrics(get()), (size_t)info_->num_metrics);
    }

    size_t snapshot_bytes() { return puf_vec_snapshot_bytes(get()); }

    // Copies snapshots of envs [first, last) to or from `snapshots`, snapshot_bytes each.
    void snapshot(int32_t first, int32_t last, Bytes snapshots) {
        const Turn turn(get());
        expect_snapshots(first, last, snapshots.nbytes());
        for (int32_t env = first; env < last; env++)
            check(puf_vec_snapshot(vec_, env, snapshots.data() + offset_of(env - first)));
    }
    void restore(int32_t first, int32_t last, ConstBytes snapshots) {
        const Turn turn(get());
        expect_snapshots(first, last, snapshots.nbytes());
        check(puf_vec_restore_range(vec_, first, last, snapshots.data()));
    }

    void render(int32_t env, Bytes rgb) {
        if (rgb.ndim() != 3 || rgb.shape(2) != 3)
            throw std::invalid_argument("rgb must have shape (height, width, 3)");
        PufCanvas canvas = {rgb.data(), (int32_t)rgb.shape(1), (int32_t)rgb.shape(0)};
        const Turn turn(get());
        check(puf_vec_render(vec_, env, &canvas));
    }

 private:
    PufVec* get() {
        if (!vec_) throw std::invalid_argument("the vector env is closed");
        return vec_;
    }
    size_t num_slots() {
        const PufBatch* batch = puf_vec_batch(get());
        return (size_t)batch->num_envs * (size_t)batch->agents_per_env;
    }
    size_t num_envs() { return (size_t)puf_vec_batch(get())->num_envs; }
    size_t offset_of(int32_t index) { return (size_t)index * puf_vec_snapshot_bytes(vec_); }
    static void expect(const char* name, size_t got, size_t want) {
        if (got != want)
            throw std::invalid_argument(std::string(name) + " must have " + std::to_string(want) +
                                        " bytes, but got " + std::to_string(got));
    }
    // Bytes from one row to the next, or 0 for a single row. A row itself must be contiguous.
    static size_t row_stride(const char* name, const SpreadArray& array) {
        int64_t items = 1;
        for (size_t i = array.ndim(); i-- > 1; items *= (int64_t)array.shape(i))
            if (array.shape(i) > 1 && array.stride(i) != items)
                throw std::invalid_argument(std::string(name) + " must have contiguous rows");
        if (array.ndim() < 1 || array.shape(0) < 2) return 0;
        if (array.stride(0) < items)
            throw std::invalid_argument(std::string(name) +
                                        " must have rows in increasing order that do not overlap");
        return (size_t)array.stride(0) * array.itemsize();
    }
    void expect_snapshots(int32_t first, int32_t last, size_t got) {
        if (first < 0 || last < first || last > puf_vec_batch(get())->num_envs)
            throw std::invalid_argument("the env range must lie inside the vector");
        expect("snapshots", got, offset_of(last - first));
    }
    // A read-only view [slots], or [slots, width].
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

void bind_vec(nb::module_& module) {
    module.def("infos", &infos, "Descriptors of every native environment.");
    module.def("env_seed", &puf_env_seed, "seed"_a, "index"_a);
    module.def("words_below", &words_below, "array"_a, "limit"_a);
    nb::class_<Vec>(module, "Vec")
        .def(nb::init<const std::string&, int32_t, int32_t, const std::vector<double>&, bool>(),
             "name"_a, "num_envs"_a, "num_threads"_a, "params"_a, "double_buffer"_a = false)
        .def("layout", &Vec::layout)
        .def("bind", &Vec::bind, "observations"_a, "actions"_a, "rewards"_a, "terminals"_a,
             "truncations"_a, "masks"_a, "action_masks"_a.none(), "final_observations"_a)
        .def("place", &Vec::place, "first_env"_a)
        .def("reset", &Vec::reset, "seed"_a, "seeds"_a = nb::none())
        .def("step", &Vec::step, "actions"_a = nb::none(), "held"_a = nb::none())
        .def("begin", &Vec::begin, "half"_a)
        .def("finish", &Vec::finish, "half"_a)
        .def("drain", &Vec::drain)
        .def("final_returns", &Vec::final_returns)
        .def("final_lengths", &Vec::final_lengths)
        .def("final_metrics", &Vec::final_metrics)
        .def("snapshot_bytes", &Vec::snapshot_bytes)
        .def("snapshot", &Vec::snapshot, "first"_a, "last"_a, "snapshots"_a)
        .def("restore", &Vec::restore, "first"_a, "last"_a, "snapshots"_a)
        .def("render", &Vec::render, "env"_a, "rgb"_a)
        .def("handle", &Vec::handle)
        .def("close", &Vec::close);
}
