// kernels.c - selects one of the compiled sets of kernels.
#include "kernels.h"

#include <stdlib.h>
#include <string.h>

#include "puffer.h"

static bool runs_avx512(void) {
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw");
#else
    return false;
#endif
}

static bool runs_avx2(void) {
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
    return false;
#endif
}

// The best first.
static const PufKernels* available(int32_t index) {
    switch (index) {
        case 0:
            return runs_avx512() ? puf_kernels_avx512() : NULL;
        case 1:
            return runs_avx2() ? puf_kernels_avx2() : NULL;
        default:
            return puf_kernels_portable();
    }
}

const PufKernels* puf_kernels_named(const char* name) {
    for (int32_t i = 0; i < 3; i++) {
        const PufKernels* found = available(i);
        if (found && !strcmp(found->name, name)) return found;
    }
    puf_fail(PUF_BAD_ARGUMENT,
             "PUFFER_KERNELS must be avx512, avx2, neon or portable, and run on this CPU, but got "
             "\"%.40s\".",
             name);
    return NULL;
}

const PufKernels* puf_kernels(void) {
    const char* chosen = getenv("PUFFER_KERNELS");
    if (chosen && *chosen) return puf_kernels_named(chosen);
    for (int32_t i = 0;; i++) {
        const PufKernels* found = available(i);
        if (found) return found;
    }
}
