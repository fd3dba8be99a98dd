// loop.h - the loop over Python envs of one agent each, without Python in between.
#ifndef PUF_LOOP_H
#define PUF_LOOP_H

#include <nanobind/nanobind.h>

void bind_loop(nanobind::module_& module);  // adds the class `Loop`

#endif
