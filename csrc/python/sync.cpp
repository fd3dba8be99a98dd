// sync.cpp - turns, barriers and process control between processes, see csrc/sync/.
#include <numeric>
#include <optional>

#include "python/bindings.h"
#include "sync/barrier.h"
#include "sync/flags.h"
#include "sync/futex_baseline.h"

using ConstInts = nb::ndarray<const int32_t, nb::c_contig, nb::device::cpu>;

static void expect_memory(const Bytes& memory, const char* name, size_t bytes) {
    if (memory.nbytes() < bytes || (uintptr_t)memory.data() % 64)
        throw std::invalid_argument(std::string(name) + " must have at least " +
                                    std::to_string(bytes) + " bytes of memory, aligned to 64");
}

static bool barrier_wait(Bytes memory, int32_t rank, int32_t size, uint32_t round, int32_t spins,
                         int32_t timeout_ms) {
    if (rank < 0 || rank >= size) throw std::invalid_argument("rank must be in 0..size-1");
    expect_memory(memory, "a barrier", puf_barrier_bytes(size));
    nb::gil_scoped_release release;
    return puf_barrier_wait((PufBarrier*)memory.data(), rank, size, round, spins, timeout_ms);
}

static int64_t futex_baseline(int32_t num_workers, int64_t work_ns, int32_t turns) {
    if (num_workers < 1 || work_ns < 0 || turns < 1)
        throw std::invalid_argument("num_workers and turns must be at least 1, work_ns at least 0");
    nb::gil_scoped_release release;
    return puf_futex_baseline(num_workers, work_ns, turns);
}

// Turns between a parent and its workers, see flags.h. One object serves either side.
class Flags {
 public:
    Flags(Bytes memory, int32_t num_workers, int32_t spin_us)
        : memory_(memory), num_workers_(num_workers) {
        if (num_workers < 1) throw std::invalid_argument("num_workers must be at least 1");
        expect_memory(memory, "flags", puf_flags_bytes(num_workers));
        flags_ = (PufFlags*)memory.data();
        spin_.limit_ns = (int64_t)spin_us * 1000;
        turns_.resize((size_t)num_workers);
        everyone_.resize((size_t)num_workers);
        std::iota(everyone_.begin(), everyone_.end(), 0);
    }

    void start(ConstInts workers) {
        check_all(workers);
        start_these(workers.data(), (int32_t)workers.size());
    }

    void call(int32_t worker) { puf_flags_call(flags_, checked(worker)); }

    int wait(ConstInts pending, int32_t count, int life_fd, int32_t timeout_ms) {
        check_all(pending);
        if (count > (int32_t)pending.size())
            throw std::invalid_argument("count must not exceed the number of pending workers");
        return wait_for(pending.data(), (int32_t)pending.size(), count, life_fd, timeout_ms);
    }

    // Where `step` copies actions to.
    void set_actions(nb::object rows) { actions_.emplace(rows); }

    // A whole turn of all workers: copies the actions, starts, waits. Returns their combined
    // status; UNFINISHED if the wait ended early, so the caller must `wait`; UNLIKE, with nothing
    // done, if the actions are no array like the rows. Between two turns the caches of the parent
    // are filled by others, so this is one call with as little Python around it as possible.
    int64_t step(nb::handle actions, int life_fd, int32_t timeout_ms) {
        Py_buffer given;
        if (!actions_) return UNLIKE;
        if (PyObject_GetBuffer(actions.ptr(), &given, PyBUF_FORMAT | PyBUF_STRIDES)) {
            PyErr_Clear();
            return UNLIKE;
        }
        const Py_buffer& rows = actions_->view();
        bool is_alike = actions_->ends_like(given, rows.ndim);
        if (is_alike) memcpy(rows.buf, given.buf, (size_t)rows.len);
        PyBuffer_Release(&given);
        if (!is_alike) return UNLIKE;
        start_these(everyone_.data(), num_workers_);
        if (wait_for(everyone_.data(), num_workers_, num_workers_, life_fd, timeout_ms) != PUF_TURN)
            return UNFINISHED;
        return status_of_all();
    }

    int wait_turn(int32_t worker, int life_fd, int32_t timeout_ms) {
        checked(worker);
        return waited(
            [&] { return puf_flags_wait_turn(flags_, worker, life_fd, &spin_, timeout_ms); });
    }

    void finish(int32_t worker, uint32_t status) {
        puf_flags_finish(flags_, checked(worker), status);
    }

    nb::list ready(ConstInts pending) {
        check_all(pending);
        std::vector<int32_t> out(pending.size());
        int32_t count =
            puf_flags_ready(flags_, pending.data(), (int32_t)pending.size(), out.data());
        nb::list workers;
        for (int32_t i = 0; i < count; i++) workers.append(out[(size_t)i]);
        return workers;
    }

    uint32_t status(int32_t worker) { return puf_flags_status(flags_, checked(worker)); }

    // The bitwise or of the statuses of all workers.
    uint32_t status_of_all() {
        uint32_t bits = 0;
        for (int32_t worker : everyone_) bits |= puf_flags_status(flags_, worker);
        return bits;
    }

    // The turns that this side has given to a worker since it was made.
    int64_t turns(int32_t worker) { return turns_[(size_t)checked(worker)]; }

    uint32_t progress(int32_t worker) { return puf_flags_progress(flags_, checked(worker)); }
    void revoke(int32_t worker) {
        puf_flags_revoke(flags_, checked(worker));
        turns_[(size_t)worker] = 0;
    }

    nb::object progress_word(int32_t worker) {
        size_t shape[1] = {1};
        uint32_t* word = puf_flags_progress_word(flags_, checked(worker));
        return nb::cast(nb::ndarray<nb::numpy, uint32_t>(word, 1, shape, nb::find(this)));
    }

 private:
    enum { UNFINISHED = -1, UNLIKE = -2 };

    void start_these(const int32_t* workers, int32_t count) {
        for (int32_t i = 0; i < count; i++) turns_[(size_t)workers[i]]++;
        puf_flags_start(flags_, workers, count);
    }
    int wait_for(const int32_t* pending, int32_t num_pending, int32_t count, int life_fd,
                 int32_t timeout_ms) {
        return waited([&] {
            return puf_flags_wait(flags_, pending, num_pending, count, life_fd, &spin_, timeout_ms);
        });
    }
    void check_all(const ConstInts& workers) {
        for (size_t i = 0; i < workers.size(); i++) checked(workers.data()[i]);
    }
    int32_t checked(int32_t worker) {
        if (worker < 0 || worker >= num_workers_)
            throw std::invalid_argument("worker must be in 0..num_workers-1");
        return worker;
    }
    // A signal ends the wait: Python handles it (Ctrl-C raises), and the caller waits again.
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
    std::vector<int32_t> everyone_;
    std::vector<int64_t> turns_;
    std::optional<Memory> actions_;
};

void bind_sync(nb::module_& module) {
    module.def("barrier_bytes", &puf_barrier_bytes, "size"_a);
    module.def("barrier_wait", &barrier_wait, "memory"_a, "rank"_a, "size"_a, "round"_a, "spins"_a,
               "timeout_ms"_a);
    module.def("futex_baseline", &futex_baseline, "num_workers"_a, "work_ns"_a, "turns"_a);
    module.def("die_with_parent", &puf_die_with_parent);
    module.def("adopt_orphans", &puf_adopt_orphans);
    module.def("flags_bytes", &puf_flags_bytes, "num_workers"_a);
    nb::class_<Flags>(module, "Flags")
        .def(nb::init<Bytes, int32_t, int32_t>(), "memory"_a, "num_workers"_a, "spin_us"_a)
        .def("start", &Flags::start, "workers"_a)
        .def("call", &Flags::call, "worker"_a)
        .def("wait", &Flags::wait, "pending"_a, "count"_a, "life_fd"_a, "timeout_ms"_a)
        .def("set_actions", &Flags::set_actions, "rows"_a)
        .def("step", &Flags::step, "actions"_a, "life_fd"_a, "timeout_ms"_a)
        .def("turns", &Flags::turns, "worker"_a)
        .def("wait_turn", &Flags::wait_turn, "worker"_a, "life_fd"_a, "timeout_ms"_a)
        .def("finish", &Flags::finish, "worker"_a, "status"_a)
        .def("ready", &Flags::ready, "pending"_a)
        .def("status", &Flags::status, "worker"_a)
        .def("status_of_all", &Flags::status_of_all)
        .def("progress", &Flags::progress, "worker"_a)
        .def("revoke", &Flags::revoke, "worker"_a)
        .def("progress_word", &Flags::progress_word, "worker"_a);
}
