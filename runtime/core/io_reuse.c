/* Writing over a file whose contents nobody needs any more: its pages and its blocks on the disk
 * are there already, and allocating new ones takes longer than filling them.
 *
 * What others can still see must not change, so the file has to be this process's alone: an
 * ordinary file with one name, not reached through a link, owned by this user, and open nowhere
 * else, not even mapped. */
#define _GNU_SOURCE
#include "core/alloc.h"
#include "core/io_file.h"
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

/* Whether only this descriptor has the file open. The system grants a lease on exactly this
 * condition, so the function takes a lease and gives it back at once. False where there are no
 * leases, as on network file systems. The lease's holder gets a signal if somebody opens the file
 * in between: SIGURG, which is ignored by default, since SIGIO would end the process. */
static bool is_open_nowhere_else(int fd) {
    int done;
    MG_IO_RETRY(done, fcntl(fd, F_SETSIG, SIGURG));
    if (done == 0) MG_IO_RETRY(done, fcntl(fd, F_SETLEASE, F_WRLCK));
    if (done == 0) MG_IO_RETRY(done, fcntl(fd, F_SETLEASE, F_UNLCK));
    return done == 0;
}

static bool is_own_file(int fd) {
    struct stat s;
    int done;
    MG_IO_RETRY(done, fstat(fd, &s));
    return done == 0 && S_ISREG(s.st_mode) && s.st_nlink == 1 && s.st_uid == geteuid();
}

mg_file *mg_io_reuse(const char *path) {
    int fd;
    mg_file *f = mg_io_new_file(path);
    if (!f) return NULL;
    MG_IO_RETRY(fd, open(path, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    if (fd < 0) {
        mg_io_fail_call("open", path);
    } else {
        mg_io_set_open(f, fd);
        f->reused = is_own_file(fd) && is_open_nowhere_else(fd);
        if (f->reused) return f;
        mg_fail(MG_IO, "cannot write over %s: others may use it", path);
    }
    mg_io_free_file(f);
    return NULL;
}
