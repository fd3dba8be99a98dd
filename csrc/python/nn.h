// nn.h - the native engine for Python.
#ifndef PUF_PYTHON_NN_H
#define PUF_PYTHON_NN_H

#include <nanobind/nanobind.h>

void bind_nn(nanobind::module_& module);  // adds the class `Engine`

#endif
