/* Resource limits: which of them explain a failed system call, and SIGXFSZ.
 *
 * The kernel sends SIGXFSZ to the thread whose write, fallocate or ftruncate exceeds the limit. So
 * it is enough to block the signal in this thread, and to take it off before it is unblocked. */
#define _GNU_SOURCE /* __rlimit_resource_t */
#include "core/limits.h"
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* pthread_create reports a lack of memory as EAGAIN. */
static const struct {
    int errors[2];
    __rlimit_resource_t limit;
    const char *of, *option;
} causes[] = {
    {{EFBIG}, RLIMIT_FSIZE, "bytes in a file", "-f"},
    {{EMFILE}, RLIMIT_NOFILE, "open files", "-n"},
    {{EAGAIN}, RLIMIT_NPROC, "processes and threads of this user", "-u"},
    {{ENOMEM, EAGAIN}, RLIMIT_AS, "bytes of address space", "-v"},
    {{ENOMEM, EAGAIN}, RLIMIT_DATA, "bytes of data", "-d"},
};

static _Thread_local char text[400];

/* Appends " (limited to ...)" to the n bytes in text. */
static void add_limits(size_t n, int error) {
    bool any = false;
    for (size_t i = 0; i < sizeof causes / sizeof causes[0]; i++) {
        struct rlimit r;
        if (causes[i].errors[0] != error && causes[i].errors[1] != error) continue;
        if (getrlimit(causes[i].limit, &r) != 0 || r.rlim_cur == RLIM_INFINITY) continue;
        if (n >= sizeof text) return;
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%ju %s: raise it with ulimit %s",
                              any ? "; " : " (limited to ", (uintmax_t)r.rlim_cur, causes[i].of,
                              causes[i].option);
        any = true;
    }
    if (any && n < sizeof text) snprintf(text + n, sizeof text - n, ")");
}

const char *mg_reason(int error) {
    add_limits((size_t)snprintf(text, sizeof text, "%s", strerror(error)), error);
    return text;
}

const char *mg_reason_limits(int error) {
    text[0] = 0;
    add_limits(0, error);
    return text;
}

uint64_t mg_memory_limit(void) {
    static const __rlimit_resource_t limits[] = {RLIMIT_AS, RLIMIT_DATA};
    uint64_t least = UINT64_MAX;
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        struct rlimit r;
        if (getrlimit(limits[i], &r) != 0 || r.rlim_cur == RLIM_INFINITY) continue;
        if (r.rlim_cur < least) least = r.rlim_cur;
    }
    return least;
}

static _Thread_local sigset_t unheld; /* the mask before mg_file_limit_hold */

static void only_file_limit(sigset_t *set) {
    sigemptyset(set);
    sigaddset(set, SIGXFSZ);
}

void mg_file_limit_hold(void) {
    sigset_t set;
    only_file_limit(&set);
    pthread_sigmask(SIG_BLOCK, &set, &unheld);
}

void mg_file_limit_release(void) {
    const int error = errno;
    sigset_t set;
    only_file_limit(&set);
    if (error == EFBIG) sigtimedwait(&set, NULL, &(struct timespec){0});
    pthread_sigmask(SIG_SETMASK, &unheld, NULL);
    errno = error;
}

ssize_t mg_write_held(int fd, const void *src, size_t n) {
    mg_file_limit_hold();
    const ssize_t done = write(fd, src, n);
    mg_file_limit_release();
    return done;
}
