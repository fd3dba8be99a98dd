// waiting.h - building blocks of every wait: a pause, a clock, and sleep on a word of memory.
#ifndef PUF_WAITING_H
#define PUF_WAITING_H

#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>
#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#define PUF_ANYONE UINT32_MAX  // all bits: wakes, or is woken by, everyone

static inline void puf_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static inline int64_t puf_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

// Sleeps while the word equals `seen`, until puf_now_ns() reaches `deadline_ns` or a puf_wake for
// one of `bits`. Returns ETIMEDOUT, EINTR or 0; after 0 the caller must check its condition again.
static inline int puf_sleep_on(atomic_uint* word, uint32_t seen, uint32_t bits,
                               int64_t deadline_ns) {
#if defined(__linux__)
    struct timespec deadline = {deadline_ns / 1000000000, deadline_ns % 1000000000};
    if (!syscall(SYS_futex, word, FUTEX_WAIT_BITSET, seen, &deadline, NULL, bits)) return 0;
    return errno == ETIMEDOUT || errno == EINTR ? errno : 0;
#else
    struct timespec moment = {0, 50000};
    (void)word, (void)seen, (void)bits;
    nanosleep(&moment, NULL);
    return puf_now_ns() < deadline_ns ? 0 : ETIMEDOUT;
#endif
}

// Wakes all sleepers on the word, in any process, that have one of `bits`.
static inline void puf_wake(atomic_uint* word, uint32_t bits) {
#if defined(__linux__)
    syscall(SYS_futex, word, FUTEX_WAKE_BITSET, INT_MAX, NULL, NULL, bits);
#else
    (void)word, (void)bits;
#endif
}

#endif
