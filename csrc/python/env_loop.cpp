// env_loop.cpp - the loop over Python envs of one agent each, without Python code in between.
//
// For each env it does what the emulation layer does in Python: read the action, call `step`, check
// the result, write the row. It handles only the usual case. Everything else (the end of an
// episode, a row that needs a cast, a mistake) stops the loop and returns the env's result to
// Python, so that only one place knows all checks and their messages.
#include <cfloat>
#include <cmath>
#include <cstring>
#include <vector>

#include "python/bindings.h"

namespace {

// The memory of a Python object that supports the buffer protocol, held while this object lives.
class Memory {
 public:
    explicit Memory(nb::handle object) {
        int flags = PyBUF_FORMAT | PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE;
        if (PyObject_GetBuffer(object.ptr(), &view_, flags)) throw nb::python_error();
    }
    ~Memory() { PyBuffer_Release(&view_); }
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;

    template <typename T>
    T* as(const char* format, Py_ssize_t count) const {
        if (strcmp(view_.format, format) || view_.len != count * (Py_ssize_t)sizeof(T))
            throw std::invalid_argument("a buffer of the loop has the wrong type or length");
        return (T*)view_.buf;
    }
    const Py_buffer& view() const { return view_; }

 private:
    Py_buffer view_;
};

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

class EnvLoop {
 public:
    // `steps` holds the `step` of each env. `read` holds one function per env that returns its
    // action; if empty, the action is the index in its row, one of `num_choices`, plus `start`.
    // `write` holds one function per env that stores its observation; if empty, observations are
    // arrays like their rows. `rows` is a `Buffers`; `returns` and `lengths` are the sums of an
    // `EpisodeTracker`; `progress` receives the index of the env that is being stepped.
    EnvLoop(std::vector<nb::object> steps, std::vector<nb::object> read,
            std::vector<nb::object> write, nb::object rows, nb::object returns, nb::object lengths,
            nb::object progress, int32_t num_choices, long start, bool takes_four)
        : steps_(std::move(steps)),
          read_(std::move(read)),
          write_(std::move(write)),
          actions_memory_(rows.attr("actions")),
          observations_memory_(rows.attr("observations")),
          rewards_memory_(rows.attr("rewards")),
          terminals_memory_(rows.attr("terminals")),
          truncations_memory_(rows.attr("truncations")),
          returns_memory_(returns),
          lengths_memory_(lengths),
          progress_memory_(progress),
          num_choices_(num_choices),
          start_(start),
          takes_four_(takes_four) {
        nb::module_ numpy = nb::module_::import_("numpy");
        array_type_ = numpy.attr("ndarray");
        numpy_false_ = numpy.attr("False_");
        float32_type_ = numpy.attr("float32");
        num_envs_ = (Py_ssize_t)steps_.size();
        const Py_buffer& seen = observations_memory_.view();
        bool fits = seen.ndim >= 1 && num_envs_ && seen.shape[0] == num_envs_;
        for (const auto* each : {&read_, &write_})
            fits &= each->empty() || each->size() == steps_.size();
        if (!fits) throw std::invalid_argument("the loop needs one row per env");
        row_bytes_ = seen.len / num_envs_;
        row_items_ = row_bytes_ / seen.itemsize;
        if (!strcmp(seen.format, "f")) is_finite_ = all_finite<uint32_t, 0x7F800000>;
        if (!strcmp(seen.format, "d")) is_finite_ = all_finite<uint64_t, 0x7FF0000000000000>;
        if (read_.empty()) actions_ = actions_memory_.as<int32_t>("i", num_envs_);
        rewards_ = rewards_memory_.as<float>("f", num_envs_);
        terminals_ = terminals_memory_.as<uint8_t>("?", num_envs_);
        truncations_ = truncations_memory_.as<uint8_t>("?", num_envs_);
        returns_ = returns_memory_.as<double>("d", num_envs_);
        lengths_ = lengths_memory_.as<int64_t>("l", num_envs_);
        progress_ = progress_memory_.as<uint32_t>("I", 1);
    }

    // Whether the loop itself stops at non-finite observations.
    bool checks_finite() const { return write_.empty() && (is_finite_ || !has_floats()); }

    // Number of non-empty infos of the last run.
    Py_ssize_t num_infos() const { return num_infos_; }

    // Steps the envs from `first` on and appends their infos. Returns None after the last env, else
    // the env at which it stopped and the result of its `step`, or None if it was not stepped.
    nb::object run(Py_ssize_t first, nb::list infos) {
        if (first < 0 || first > num_envs_)
            throw std::invalid_argument("`first` must be the index of an env");
        if (first == 0) {
            num_infos_ = 0;
            memset(rewards_, 0, (size_t)num_envs_ * sizeof *rewards_);
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
            returns_[env] += (double)rewards_[env];
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
    bool has_floats() const { return strchr("efdg", observations_memory_.view().format[0]); }

    // Returns the action in the form the env takes, or null if it is invalid: Python then raises.
    PyObject* action_of(Py_ssize_t env) {
        if (read_.empty()) {
            uint32_t index = (uint32_t)actions_[env];  // negative ones become huge
            if (index >= (uint32_t)num_choices_) return nullptr;
            return PyLong_FromLong((long)index + start_);
        }
        PyObject* action = PyObject_CallNoArgs(read_[(size_t)env].ptr());
        if (!action) clear_error();
        return action;
    }

    // Writes the result of `step` into the rows; false if it is not the usual case.
    bool take(Py_ssize_t env, PyObject* result, PyObject* infos) {
        if (!PyTuple_CheckExact(result)) return false;
        Py_ssize_t size = PyTuple_Size(result);
        if (size != 5 && !(size == 4 && takes_four_)) return false;
        PyObject* info = PyTuple_GetItem(result, size - 1);
        if (!PyDict_CheckExact(info)) return false;
        if (!is_false(PyTuple_GetItem(result, 2))) return false;
        if (size == 5 && !is_false(PyTuple_GetItem(result, 3))) return false;
        double reward;
        if (!read_reward(PyTuple_GetItem(result, 1), &reward)) return false;
        if (!write_observation(env, PyTuple_GetItem(result, 0))) return false;
        rewards_[env] = (float)reward;
        num_infos_ += PyDict_Size(info) != 0;
        if (PyList_Append(infos, info)) throw nb::python_error();
        return true;
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

    bool write_observation(Py_ssize_t env, PyObject* given) {
        if (!write_.empty()) {
            PyObject* done = PyObject_CallOneArg(write_[(size_t)env].ptr(), given);
            if (!done) {
                clear_error();
                return false;
            }
            Py_DECREF(done);
            return true;
        }
        if ((PyObject*)Py_TYPE(given) != array_type_.ptr()) return false;
        Py_buffer view;
        if (PyObject_GetBuffer(given, &view, PyBUF_FORMAT | PyBUF_STRIDES)) {
            clear_error();
            return false;
        }
        const Py_buffer& rows = observations_memory_.view();
        bool is_usual =
            view.ndim == rows.ndim - 1 && !strcmp(view.format, rows.format) &&
            !memcmp(view.shape, rows.shape + 1, (size_t)view.ndim * sizeof *view.shape) &&
            PyBuffer_IsContiguous(&view, 'C') && (!is_finite_ || is_finite_(view.buf, row_items_));
        if (is_usual && row_bytes_)
            memcpy((char*)rows.buf + env * row_bytes_, view.buf, (size_t)row_bytes_);
        PyBuffer_Release(&view);
        return is_usual;
    }

    // Clears an error that the Python path will raise again with its own message, but not a Ctrl-C.
    static void clear_error() {
        if (!PyErr_ExceptionMatches(PyExc_Exception)) throw nb::python_error();
        PyErr_Clear();
    }

    std::vector<nb::object> steps_, read_, write_;
    Memory actions_memory_, observations_memory_, rewards_memory_, terminals_memory_;
    Memory truncations_memory_, returns_memory_, lengths_memory_, progress_memory_;
    int32_t num_choices_;
    long start_;
    bool takes_four_;
    nb::object array_type_, numpy_false_, float32_type_;
    Py_ssize_t num_envs_ = 0, row_bytes_ = 0, row_items_ = 0, num_infos_ = 0;
    bool (*is_finite_)(const void*, Py_ssize_t) = nullptr;
    const int32_t* actions_ = nullptr;
    float* rewards_;
    uint8_t *terminals_, *truncations_;
    double* returns_;
    int64_t* lengths_;
    uint32_t* progress_;
};

PyType_Slot slots[] = {
    {Py_tp_traverse, (void*)EnvLoop::traverse}, {Py_tp_clear, (void*)EnvLoop::clear}, {0, nullptr}};

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
}
