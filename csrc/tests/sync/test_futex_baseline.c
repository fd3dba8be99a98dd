// A turn takes at least the time of its work, and no process is left behind.
#include <errno.h>
#include <stddef.h>
#include <sys/wait.h>

#include "sync/futex_baseline.h"
#include "tests/check.h"

int main(void) {
    for (int32_t workers = 1; workers <= 3; workers++) {
        CHECK(puf_futex_baseline(workers, 0, 20) > 0);
        CHECK(puf_futex_baseline(workers, 2000000, 3) >= 2000000);
        CHECK(waitpid(-1, NULL, 0) == -1 && errno == ECHILD);
    }
    return CHECK_DONE();
}
