// puf_hot.h - functions marked PUF_HOT are compiled for several instruction sets; the loader picks
// one when the library loads.
#ifndef PUF_HOT_H
#define PUF_HOT_H

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__linux__) && \
    !defined(PUF_NO_CLONES)
#define PUF_HOT __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define PUF_HOT
#endif

#endif
