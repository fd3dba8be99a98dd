// env_loop.h - the loop over Python envs of one agent each, without Python in between.
#ifndef PUF_ENV_LOOP_H
#define PUF_ENV_LOOP_H

#include <nanobind/nanobind.h>

void bind_env_loop(nanobind::module_& module);  // adds the class `EnvLoop`

#endif
