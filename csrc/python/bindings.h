// bindings.h - what the files of csrc/python/ share. Only they include Python.
#ifndef PUF_BINDINGS_H
#define PUF_BINDINGS_H

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <cstring>
#include <stdexcept>

#include "puffer.h"

namespace nb = nanobind;
using namespace nb::literals;

using Bytes = nb::ndarray<uint8_t, nb::c_contig, nb::device::cpu>;
using Floats = nb::ndarray<float, nb::c_contig, nb::device::cpu>;
using ConstFloats = nb::ndarray<const float, nb::c_contig, nb::device::cpu>;
using ConstBytes = nb::ndarray<const uint8_t, nb::c_contig, nb::device::cpu>;

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

    // Whether the last `ndim` dimensions of this memory have the type and shape of `other`.
    bool ends_like(const Py_buffer& other, int ndim) const {
        return other.ndim == ndim && !strcmp(other.format, view_.format) &&
               !memcmp(other.shape, view_.shape + view_.ndim - ndim,
                       (size_t)ndim * sizeof *other.shape) &&
               PyBuffer_IsContiguous(&other, 'C');
    }

 private:
    Py_buffer view_;
};

// Takes a PufVec while this object lives, or raises: another thread of Python may be in a call that
// has released the GIL.
class Turn {
 public:
    explicit Turn(PufVec* vec) : vec_(vec) {
        if (puf_vec_take(vec)) return;
        nb::object error = nb::module_::import_("pufferlib.errors").attr("UsageError");
        PyErr_SetString(error.ptr(),
                        "this vector env is in use by another thread. "
                        "Try a vector env for each thread.");
        throw nb::python_error();
    }
    ~Turn() { puf_vec_give_back(vec_); }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

 private:
    PufVec* vec_;
};

// Each adds one subject to the module `_core`.
void bind_vec(nb::module_& module);
void bind_env_loop(nb::module_& module);
void bind_sync(nb::module_& module);
void bind_nn(nb::module_& module);
void bind_dicts(nb::module_& module);   // the class `DictWatch`
void bind_engine(nb::module_& module);  // the class `Engine`

#endif
