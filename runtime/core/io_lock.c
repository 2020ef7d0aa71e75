/* Lock files, and locks on files in general (flock). */
#define _GNU_SOURCE
#include "core/alloc.h"
#include "core/io_file.h"
#include "core/threads.h"
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

enum { POLL_US = 50 * 1000 };

bool mg_io_try_flock(int fd) {
    int done;
    MG_IO_RETRY(done, flock(fd, LOCK_EX | LOCK_NB));
    return done == 0 || mg_io_unsupported();
}

/* Tries once: true if f now holds the lock. *wait: another process has it. The holder removes the
 * file before it releases the lock, so the lock counts only if the locked file is still the one at
 * the path. */
static bool try_lock(mg_file *f, bool *wait) {
    struct stat mine, there;
    int fd;
    MG_IO_RETRY(fd, open(f->path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666));
    *wait = false;
    if (fd < 0) return false;
    const bool locked = mg_io_try_flock(fd);
    *wait = !locked && errno == EWOULDBLOCK;
    if (locked && fstat(fd, &mine) == 0) {
        if (lstat(f->path, &there) == 0 && mine.st_ino == there.st_ino &&
            mine.st_dev == there.st_dev) {
            mg_io_set_open(f, fd);
            return true;
        }
        *wait = true;
    }
    const int error = errno;
    close(fd);
    errno = error;
    return false;
}

mg_file *mg_io_lock(const char *path) {
    mg_file *f = mg_io_new_file(path);
    bool wait = false;
    mg_status status = MG_OK;
    if (!f) return NULL;
    while (status == MG_OK && !try_lock(f, &wait)) {
        if (!wait)
            status = mg_io_fail_call("lock", path);
        else if (mg_interrupt_pending() && mg_interrupt_take())
            status = mg_fail(MG_INTERRUPTED, "interrupted while waiting for %s", path);
        else
            usleep(POLL_US);
    }
    /* mg_io_close removes the lock file like a temporary one */
    if (status == MG_OK) f->temporary = mg_strdup(path);
    if (f->temporary) return f;
    mg_io_free_file(f);
    return NULL;
}

/* Network file systems lock only files that are open for writing, which a folder cannot be: EBADF.
 */
mg_status mg_io_lock_folder(const char *path, mg_file **lock) {
    int fd;
    *lock = mg_io_new_file(path);
    if (!*lock) return MG_OOM;
    MG_IO_RETRY(fd, open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (fd >= 0) mg_io_set_open(*lock, fd);
    if (fd >= 0 && (mg_io_try_flock(fd) || errno == EBADF)) return MG_OK;
    const mg_status status = errno == EWOULDBLOCK ? MG_OK : mg_io_fail_call("lock", path);
    mg_io_free_file(*lock);
    *lock = NULL;
    return status;
}
