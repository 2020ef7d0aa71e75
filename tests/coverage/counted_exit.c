/* Lets mgpu-h5 write its coverage counts when it ends, in a coverage build: it ends by _exit, which
 * would lose them, and its sandbox forbids to open a file. Put between mgpu-h5 and the C library by
 * the linker's option --wrap. */
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

void __gcov_dump(void);
void __real__exit(int status) __attribute__((noreturn));
void __wrap__exit(int status) __attribute__((noreturn));
int __real_setrlimit(__rlimit_resource_t what, const struct rlimit *limit);
int __wrap_setrlimit(__rlimit_resource_t what, const struct rlimit *limit);
int __wrap_prctl(int option, ...);

void __wrap__exit(int status) {
    __gcov_dump();
    __real__exit(status);
}

/* Every limit but that of open files. */
int __wrap_setrlimit(__rlimit_resource_t what, const struct rlimit *limit) {
    return what == RLIMIT_NOFILE ? 0 : __real_setrlimit(what, limit);
}

/* Stands for the two calls that install the filter of system calls: there is none. */
int __wrap_prctl(int option, ...) {
    (void)option;
    return 0;
}
