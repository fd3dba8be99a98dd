// env_loop.cpp - loops over Python envs of one agent each, and over the agents of one Python env,
// without Python code in between.
//
// They do what the emulation layer does in Python: read the action, call `step`, check the result,
// write the row. They handle only the usual case. Everything else (the end of an episode, a row
// that needs a cast, a mistake) stops the loop and returns the env's result to Python, so that only
// one place knows all checks and their messages.
#include <cfloat>
#include <cmath>
#include <cstring>
#include <vector>

#include "python/bindings.h"

namespace {

// Whether no float has the exponent that marks nan and inf.
template <typename Bits, Bits exponent>
bool all_finite(const void* data, Py_ssize_t count) {
    const char* values = (const char*)data;
    Bits found = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        Bits value;
        memcpy(&value, values + i * (Py_ssize_t)sizeof value, sizeof value);
        found |= (value & exponent) == exponent;
    }
    return !found;
}

// Rows of actions, observations and rewards, one for each agent. An action is read as the index in
// its row, one of `num_choices`, plus `start`; an observation is written if it is an array like its
// row.
class Rows {
 public:
    Rows(nb::handle rows, int32_t num_choices, long start)
        : actions_memory_(rows.attr("actions")),
          observations_memory_(rows.attr("observations")),
          rewards_memory_(rows.attr("rewards")),
          num_choices_(num_choices),
          start_(start) {
        nb::module_ numpy = nb::module_::import_("numpy");
        array_type_ = numpy.attr("ndarray");
        numpy_false_ = numpy.attr("False_");
        float32_type_ = numpy.attr("float32");
        const Py_buffer& seen = observations_memory_.view();
        if (seen.ndim < 1 || !seen.shape[0]) throw std::invalid_argument("the loop needs a row");
        count_ = seen.shape[0];
        row_bytes_ = seen.len / count_;
        row_items_ = row_bytes_ / seen.itemsize;
        if (!strcmp(seen.format, "f")) is_finite_ = all_finite<uint32_t, 0x7F800000>;
        if (!strcmp(seen.format, "d")) is_finite_ = all_finite<uint64_t, 0x7FF0000000000000>;
        if (num_choices_) actions_ = actions_memory_.as<int32_t>("i", count_);
        rewards_ = rewards_memory_.as<float>("f", count_);
    }

    Py_ssize_t count() const { return count_; }
    float* rewards() { return rewards_; }

    // Whether every observation that is written is known to be finite.
    bool checks_finite() const { return is_finite_ || !has_floats(); }

    // Returns the index in a row as the action that the env takes, or null if it is no choice.
    PyObject* index_of(Py_ssize_t row) const {
        if (!actions_) return nullptr;
        uint32_t index = (uint32_t)actions_[row];  // negative ones become huge
        return index < (uint32_t)num_choices_ ? PyLong_FromLong((long)index + start_) : nullptr;
    }

    bool is_false(PyObject* flag) const { return flag == Py_False || flag == numpy_false_.ptr(); }

    bool read_reward(PyObject* given, double* reward) const {
        if (PyFloat_Check(given)) {  // includes numpy's float64
            *reward = PyFloat_AsDouble(given);
        } else if (PyLong_CheckExact(given) || (PyObject*)Py_TYPE(given) == float32_type_.ptr()) {
            *reward = PyFloat_AsDouble(given);
            if (*reward == -1.0 && PyErr_Occurred()) {  // an int beyond the range of floats
                clear_error();
                return false;
            }
        } else {
            return false;
        }
        return std::fabs(*reward) <= FLT_MAX;  // false for nan too
    }

    bool write_observation(Py_ssize_t row, PyObject* given) {
        if ((PyObject*)Py_TYPE(given) != array_type_.ptr()) return false;
        Py_buffer view;
        if (PyObject_GetBuffer(given, &view, PyBUF_FORMAT | PyBUF_STRIDES)) {
            clear_error();
            return false;
        }
        const Py_buffer& rows = observations_memory_.view();
        bool is_usual = observations_memory_.ends_like(view, rows.ndim - 1) &&
                        (!is_finite_ || is_finite_(view.buf, row_items_));
        if (is_usual && row_bytes_)
            memcpy((char*)rows.buf + row * row_bytes_, view.buf, (size_t)row_bytes_);
        PyBuffer_Release(&view);
        return is_usual;
    }

    // Clears an error that the Python path will raise again with its own message, but not a Ctrl-C.
    static void clear_error() {
        if (!PyErr_ExceptionMatches(PyExc_Exception)) throw nb::python_error();
        PyErr_Clear();
    }

 private:
    bool has_floats() const { return strchr("efdg", observations_memory_.view().format[0]); }

    Memory actions_memory_, observations_memory_, rewards_memory_;
    int32_t num_choices_;
    long start_;
    nb::object array_type_, numpy_false_, float32_type_;
    Py_ssize_t count_, row_bytes_, row_items_;
    bool (*is_finite_)(const void*, Py_ssize_t) = nullptr;
    const int32_t* actions_ = nullptr;
    float* rewards_;
};

class EnvLoop {
 public:
    // `steps` holds the `step` of each env. `read` holds one function per env that returns its
    // action; if empty, actions are indices, see `Rows`. `write` holds one function per env that
    // stores its observation; if empty, observations are arrays like their rows. `rows` is a
    // `Buffers`; `returns` and `lengths` are the sums of an `EpisodeTracker`; `progress` receives
    // the index of the env that is being stepped.
    EnvLoop(std::vector<nb::object> steps, std::vector<nb::object> read,
            std::vector<nb::object> write, nb::object rows, nb::object returns, nb::object lengths,
            nb::object progress, int32_t num_choices, long start, bool takes_four)
        : steps_(std::move(steps)),
          read_(std::move(read)),
          write_(std::move(write)),
          rows_(rows, read_.empty() ? num_choices : 0, start),
          terminals_memory_(rows.attr("terminals")),
          truncations_memory_(rows.attr("truncations")),
          returns_memory_(returns),
          lengths_memory_(lengths),
          progress_memory_(progress),
          takes_four_(takes_four) {
        num_envs_ = (Py_ssize_t)steps_.size();
        bool fits = rows_.count() == num_envs_;
        for (const auto* each : {&read_, &write_})
            fits &= each->empty() || each->size() == steps_.size();
        if (!fits) throw std::invalid_argument("the loop needs one row per env");
        terminals_ = terminals_memory_.as<uint8_t>("?", num_envs_);
        truncations_ = truncations_memory_.as<uint8_t>("?", num_envs_);
        returns_ = returns_memory_.as<double>("d", num_envs_);
        lengths_ = lengths_memory_.as<int64_t>("l", num_envs_);
        progress_ = progress_memory_.as<uint32_t>("I", 1);
    }

    // Whether the loop itself stops at non-finite observations.
    bool checks_finite() const { return write_.empty() && rows_.checks_finite(); }

    // Number of non-empty infos of the last run.
    Py_ssize_t num_infos() const { return num_infos_; }

    // Steps the envs from `first` on and appends their infos. Returns None after the last env, else
    // the env at which it stopped and the result of its `step`, or None if it was not stepped.
    nb::object run(Py_ssize_t first, nb::list infos) {
        if (first < 0 || first > num_envs_)
            throw std::invalid_argument("`first` must be the index of an env");
        float* rewards = rows_.rewards();
        if (first == 0) {
            num_infos_ = 0;
            memset(rewards, 0, (size_t)num_envs_ * sizeof *rewards);
            memset(terminals_, 0, (size_t)num_envs_);
            memset(truncations_, 0, (size_t)num_envs_);
        }
        for (Py_ssize_t env = first; env < num_envs_; env++) {
            __atomic_store_n(progress_, (uint32_t)env, __ATOMIC_RELAXED);
            PyObject* action = action_of(env);
            if (!action) return nb::make_tuple(env, nb::none());
            PyObject* result = PyObject_CallOneArg(steps_[(size_t)env].ptr(), action);
            Py_DECREF(action);
            if (!result) throw nb::python_error();
            nb::object held = nb::steal(result);
            if (!take(env, result, infos.ptr())) return nb::make_tuple(env, held);
        }
        for (Py_ssize_t env = 0; env < num_envs_; env++) {
            returns_[env] += (double)rewards[env];
            lengths_[env] += 1;
        }
        return nb::none();
    }

    static int traverse(PyObject* self, visitproc visit, void* arg) {
        Py_VISIT(Py_TYPE(self));
        if (!nb::inst_ready(self)) return 0;
        EnvLoop* loop = nb::inst_ptr<EnvLoop>(self);
        for (const auto* each : {&loop->steps_, &loop->read_, &loop->write_})
            for (const nb::object& object : *each) Py_VISIT(object.ptr());
        return 0;
    }
    static int clear(PyObject* self) {
        EnvLoop* loop = nb::inst_ptr<EnvLoop>(self);
        for (auto* each : {&loop->steps_, &loop->read_, &loop->write_})
            for (nb::object& object : *each) object.reset();
        return 0;
    }

 private:
    // Returns the action in the form the env takes, or null if it is invalid: Python then raises.
    PyObject* action_of(Py_ssize_t env) {
        if (read_.empty()) return rows_.index_of(env);
        PyObject* action = PyObject_CallNoArgs(read_[(size_t)env].ptr());
        if (!action) Rows::clear_error();
        return action;
    }

    // Writes the result of `step` into the rows; false if it is not the usual case.
    bool take(Py_ssize_t env, PyObject* result, PyObject* infos) {
        if (!PyTuple_CheckExact(result)) return false;
        Py_ssize_t size = PyTuple_Size(result);
        if (size != 5 && !(size == 4 && takes_four_)) return false;
        PyObject* info = PyTuple_GetItem(result, size - 1);
        if (!PyDict_CheckExact(info)) return false;
        if (!rows_.is_false(PyTuple_GetItem(result, 2))) return false;
        if (size == 5 && !rows_.is_false(PyTuple_GetItem(result, 3))) return false;
        double reward;
        if (!rows_.read_reward(PyTuple_GetItem(result, 1), &reward)) return false;
        if (!write_observation(env, PyTuple_GetItem(result, 0))) return false;
        rows_.rewards()[env] = (float)reward;
        num_infos_ += PyDict_Size(info) != 0;
        if (PyList_Append(infos, info)) throw nb::python_error();
        return true;
    }

    bool write_observation(Py_ssize_t env, PyObject* given) {
        if (write_.empty()) return rows_.write_observation(env, given);
        PyObject* done = PyObject_CallOneArg(write_[(size_t)env].ptr(), given);
        if (!done) Rows::clear_error();
        Py_XDECREF(done);
        return done != nullptr;
    }

    std::vector<nb::object> steps_, read_, write_;
    Rows rows_;
    Memory terminals_memory_, truncations_memory_;
    Memory returns_memory_, lengths_memory_, progress_memory_;
    bool takes_four_;
    Py_ssize_t num_envs_ = 0, num_infos_ = 0;
    uint8_t *terminals_, *truncations_;
    double* returns_;
    int64_t* lengths_;
    uint32_t* progress_;
};

PyType_Slot slots[] = {
    {Py_tp_traverse, (void*)EnvLoop::traverse}, {Py_tp_clear, (void*)EnvLoop::clear}, {0, nullptr}};

// One env whose agents act and are answered by dicts, {agent id: ...}.
class AgentLoop {
 public:
    AgentLoop(nb::object rows, int32_t num_choices, long start) : rows_(rows, num_choices, start) {}

    // Calls `step` with the actions of `acting`, a list of (id, row), and writes the answers into
    // the rows. Returns None if an action is invalid, so that nothing was stepped; else the result
    // of `step`, and whether it was the usual one and is in the rows: exactly the agents that acted
    // have an observation and a reward, no episode has ended, and all infos are empty.
    nb::object run(nb::object step, nb::list acting) {
        nb::dict chosen;
        for (nb::handle agent : acting) {
            PyObject* action = rows_.index_of(row_of(agent.ptr()));
            if (!action) return nb::none();
            nb::object held = nb::steal(action);
            if (PyDict_SetItem(chosen.ptr(), id_of(agent.ptr()), action)) throw nb::python_error();
        }
        nb::object result = step(chosen);
        return nb::make_tuple(result, take(result.ptr(), acting));
    }

 private:
    enum { OBSERVATIONS, REWARDS, TERMINALS, TRUNCATIONS, INFOS, PARTS };

    static PyObject* id_of(PyObject* agent) { return PyTuple_GetItem(agent, 0); }
    Py_ssize_t row_of(PyObject* agent) const {
        Py_ssize_t row = PyLong_AsSsize_t(PyTuple_GetItem(agent, 1));
        if (row < 0 || row >= rows_.count())
            throw std::invalid_argument("an agent of the loop needs a row");
        return row;
    }

    bool take(PyObject* result, nb::list acting) {
        if (!PyTuple_CheckExact(result) || PyTuple_Size(result) != PARTS) return false;
        PyObject* parts[PARTS];
        for (int part = 0; part < PARTS; part++) {
            parts[part] = PyTuple_GetItem(result, part);
            if (!PyDict_CheckExact(parts[part])) return false;
            if (part != INFOS && PyDict_Size(parts[part]) != (Py_ssize_t)acting.size())
                return false;
        }
        PyObject *key, *info;
        for (Py_ssize_t place = 0; PyDict_Next(parts[INFOS], &place, &key, &info);)
            if (!PyDict_CheckExact(info) || PyDict_Size(info)) return false;
        for (nb::handle agent : acting) {
            PyObject* given[INFOS];
            for (int part = 0; part < INFOS; part++) {
                given[part] = PyDict_GetItemWithError(parts[part], id_of(agent.ptr()));
                if (!given[part]) {
                    if (PyErr_Occurred()) Rows::clear_error();
                    return false;
                }
            }
            Py_ssize_t row = row_of(agent.ptr());
            double reward;
            if (!rows_.is_false(given[TERMINALS]) || !rows_.is_false(given[TRUNCATIONS]) ||
                !rows_.read_reward(given[REWARDS], &reward) ||
                !rows_.write_observation(row, given[OBSERVATIONS]))
                return false;
            rows_.rewards()[row] = (float)reward;
        }
        return true;
    }

    Rows rows_;
};

}  // namespace

void bind_env_loop(nb::module_& module) {
    nb::class_<EnvLoop>(module, "EnvLoop", nb::type_slots(slots))
        .def(nb::init<std::vector<nb::object>, std::vector<nb::object>, std::vector<nb::object>,
                      nb::object, nb::object, nb::object, nb::object, int32_t, long, bool>(),
             "steps"_a, "read"_a, "write"_a, "rows"_a, "returns"_a, "lengths"_a, "progress"_a,
             "num_choices"_a, "start"_a, "takes_four"_a)
        .def_prop_ro("checks_finite", &EnvLoop::checks_finite)
        .def_prop_ro("num_infos", &EnvLoop::num_infos)
        .def("run", &EnvLoop::run, "first"_a, "infos"_a);
    nb::class_<AgentLoop>(module, "AgentLoop")
        .def(nb::init<nb::object, int32_t, long>(), "rows"_a, "num_choices"_a, "start"_a)
        .def("run", &AgentLoop::run, "step"_a, "acting"_a);
}
