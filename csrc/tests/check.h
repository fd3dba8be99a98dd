// check - the least a C test needs: CHECK(cond) in the body, `return CHECK_DONE();` at the end of
// main.
#ifndef PUF_CHECK_H
#define PUF_CHECK_H

#include <stdio.h>

static int check_passed, check_failed;

static inline void check_that(int holds, const char* file, int line, const char* claim) {
    if (holds) {
        check_passed++;
        return;
    }
    check_failed++;
    fprintf(stderr, "%s:%d: failed: %s\n", file, line, claim);
}

// Counts whether the condition holds, and goes on either way.
#define CHECK(cond) check_that(!!(cond), __FILE__, __LINE__, #cond)

// Prints "N passed, M failed" and gives the exit code. No check at all is a failure too.
static inline int check_done(void) {
    printf("%d passed, %d failed\n", check_passed, check_failed);
    return check_failed > 0 || check_passed == 0;
}
#define CHECK_DONE() check_done()

#endif
