// module.cpp - the Python module `_core`, one bind function per subject.
#include "python/bindings.h"
#if defined(__GLIBC__)
#include <malloc.h>
#endif

// Makes glibc keep freed memory for the next allocation instead of returning it to the system.
// Every minibatch allocates the same megabytes; otherwise each would page-fault them in again.
static bool keep_memory() {
#if defined(__GLIBC__)
    return mallopt(M_MMAP_THRESHOLD, 1 << 30) && mallopt(M_TRIM_THRESHOLD, 0x7FFFFFFF);
#else
    return false;
#endif
}

NB_MODULE(_core, module) {
    nb::set_leak_warnings(false);  // a script may end while its globals still hold an env
    module.doc() = "The C core: native environments and kernels. Import pufferlib.native instead.";
    module.def("keep_memory", &keep_memory, "Keep freed memory for reuse; False if unsupported.");
    bind_vec(module);
    bind_env_loop(module);
    bind_sync(module);
    bind_nn(module);
    bind_engine(module);
    bind_dicts(module);
}
