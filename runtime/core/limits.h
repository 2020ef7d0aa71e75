/* The resource limits of this process (setrlimit, the shell's ulimit) in error messages, and writes
 * that treat the limit on file sizes as an error. */
#ifndef MG_CORE_LIMITS_H
#define MG_CORE_LIMITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* The text of an errno, followed by the limits that are set and may be its cause: "File too large
 * (limited to 4096 bytes in a file: raise it with ulimit -f)". This thread's next call overwrites
 * it. */
const char *mg_reason(int error);
/* Only the part in parentheses, with a space before it; "" if no such limit is set. */
const char *mg_reason_limits(int error);

/* The bytes of memory that the process may have (ulimit -v, -d); UINT64_MAX: no limit is set. */
uint64_t mg_memory_limit(void);

/* While SIGXFSZ is held, a call that would exceed the limit on file sizes fails with EFBIG; without
 * that, the signal ends the process. Its disposition, which belongs to the host program, is not
 * touched. mg_file_limit_release keeps errno. Calls do not nest. */
void mg_file_limit_hold(void);
void mg_file_limit_release(void);
/* write(2), held. */
ssize_t mg_write_held(int fd, const void *src, size_t n);

#endif
