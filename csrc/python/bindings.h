// bindings.h - what the files of csrc/python/ share. Only they include Python.
#ifndef PUF_BINDINGS_H
#define PUF_BINDINGS_H

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <stdexcept>

namespace nb = nanobind;
using namespace nb::literals;

using Bytes = nb::ndarray<uint8_t, nb::c_contig, nb::device::cpu>;
using Floats = nb::ndarray<float, nb::c_contig, nb::device::cpu>;
using ConstFloats = nb::ndarray<const float, nb::c_contig, nb::device::cpu>;
using ConstBytes = nb::ndarray<const uint8_t, nb::c_contig, nb::device::cpu>;

// Each adds one subject to the module `_core`.
void bind_vec(nb::module_& module);
void bind_env_loop(nb::module_& module);
void bind_sync(nb::module_& module);
void bind_nn(nb::module_& module);
void bind_engine(nb::module_& module);  // the class `Engine`

#endif
