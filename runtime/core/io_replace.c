/* New files appear whole or not at all.
 *
 * A new file is written without a name (O_TMPFILE), so that it vanishes with a process that is
 * killed. To replace the old file it gets a temporary name (io_temporary.c) for a moment, because
 * rename can replace a file and linkat cannot. Where O_TMPFILE or /proc is missing, the file has
 * the temporary name from the start, opened with O_EXCL, so that no file or link that others have
 * planted is opened. */
#define _GNU_SOURCE
#include "core/alloc.h"
#include "core/io_file.h"
#include "core/limits.h"
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <linux/magic.h>
#include <sys/vfs.h>
#include <unistd.h>

enum { MAX_LINKS = 40, TRIES = 100 };

/* ---- the file to replace ---- */

/* What the symbolic link `path` points to, relative to the link's folder. Owned (mg_free); NULL
 * with errno. */
static char *read_link(const char *path) {
    char text[PATH_MAX];
    const ssize_t n = readlink(path, text, sizeof text - 1);
    if (n < 0) return NULL;
    text[n] = 0;
    const char *slash = strrchr(path, '/');
    const size_t folder = text[0] == '/' || !slash ? 0 : (size_t)(slash - path) + 1;
    char *joined = mg_alloc(folder + (size_t)n + 1);
    if (!joined) return NULL;
    memcpy(joined, path, folder);
    memcpy(joined + folder, text, (size_t)n + 1);
    return joined;
}

/* Sets f->target: the path with its links followed. The last one may point to nothing.
 *
 * stat is called first: it fails where the system forbids following links that others may have
 * planted (fs.protected_symlinks). */
static mg_status follow_links(mg_file *f) {
    f->target = mg_strdup(f->path);
    for (int i = 0; f->target && i < MAX_LINKS; i++) {
        int found;
        MG_IO_RETRY(found, stat(f->target, &f->old));
        f->replaces = found == 0;
        if (found != 0 && errno != ENOENT && errno != ENOTDIR)
            return mg_io_fail_call("write", f->path);
        char *next = read_link(f->target);
        if (!next && mg_error_code() == MG_OOM) return MG_OOM;
        if (!next) return MG_OK; /* no link */
        mg_free(f->target);
        f->target = next;
    }
    if (!f->target) return MG_OOM;
    errno = ELOOP;
    return mg_io_fail_call("write", f->path);
}

/* Refuses what must not be replaced by a file: folders, devices and pipes, read-only files. */
static mg_status check_target(const mg_file *f) {
    if (!f->replaces) return MG_OK;
    if (S_ISDIR(f->old.st_mode)) {
        errno = EISDIR;
        return mg_io_fail_call("write", f->path);
    }
    if (!S_ISREG(f->old.st_mode)) return mg_fail(MG_IO, "%s is not a regular file", f->path);
    if (f->old.st_mode & 0222 && faccessat(AT_FDCWD, f->target, W_OK, AT_EACCESS) == 0)
        return MG_OK;
    return mg_fail(MG_IO, "cannot write %s: the file is read-only", f->path);
}

/* The folder that holds f->target. */
static mg_status find_folder(mg_file *f) {
    char *copy = mg_strdup(f->target);
    if (copy) f->folder = mg_strdup(dirname(copy));
    mg_free(copy);
    return f->folder ? MG_OK : MG_OOM;
}

/* ---- creating ---- */

/* Opens a file without a name; -1 with errno. linkat needs /proc to name it later. */
static int open_unnamed(const mg_file *f, mode_t mode) {
    int fd;
    char proc[64];
    MG_IO_RETRY(fd, open(f->folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, mode));
    if (fd < 0) return -1;
    snprintf(proc, sizeof proc, "/proc/self/fd/%d", fd);
    const bool can_link = access(proc, F_OK) == 0;
    if (can_link && mg_io_try_flock(fd)) return fd;
    const int error = can_link ? errno : EOPNOTSUPP;
    close(fd);
    errno = error;
    return -1;
}

/* Opens a file with a temporary name, locked; -1 with errno. A sweeper may take it away in the
 * moment before it is locked: then it has no name any more, and another one is tried. */
static int open_named(mg_file *f, mode_t mode) {
    for (int i = 0; i < TRIES; i++) {
        int fd;
        struct stat s;
        char *name = mg_io_temporary_name(f);
        if (!name) return -1;
        MG_IO_RETRY(fd, open(name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
        if (fd >= 0 && mg_io_try_flock(fd) && fstat(fd, &s) == 0 && s.st_nlink == 1) {
            f->temporary = name;
            return fd;
        }
        const int error = errno;
        if (fd >= 0) unlink(name);
        if (fd >= 0) close(fd);
        mg_free(name);
        errno = error;
        if (fd < 0 && error != EEXIST) return -1;
    }
    return -1;
}

/* A file that will replace another one is private to its owner until commit sets the old file's
 * mode. */
static mg_status open_temporary(mg_file *f) {
    const mode_t mode = f->replaces ? 0600 : 0666;
    int fd = open_unnamed(f, mode);
    if (fd < 0 && (mg_io_unsupported() || errno == ENOENT)) {
        mg_error_clear();
        fd = open_named(f, mode);
        if (fd < 0 && mg_error_code() == MG_OOM) return MG_OOM;
    }
    if (fd < 0) return mg_io_fail_call("write", f->path);
    mg_io_set_open(f, fd);
    return MG_OK;
}

mg_file *mg_io_create(const char *path) {
    if (mg_packed_refuse(path) != MG_OK) return NULL;
    mg_file *f = mg_io_new_file(path);
    if (!f) return NULL;
    mg_error_clear();
    mg_status status = follow_links(f);
    if (status == MG_OK) status = check_target(f);
    if (status == MG_OK) status = find_folder(f);
    if (status == MG_OK) mg_io_sweep(f->folder);
    if (status == MG_OK) status = open_temporary(f);
    if (status == MG_OK) return f;
    mg_io_free_file(f);
    return NULL;
}

void mg_io_make_executable(mg_file *f) {
    f->executable = true;
}

static int allocate(int fd, int64_t bytes) {
    mg_file_limit_hold();
    const int done = fallocate(fd, 0, 0, bytes);
    mg_file_limit_release();
    return done;
}

/* Skipped on tmpfs: it has no disk blocks to allocate, and each page would be touched twice. */
mg_status mg_io_reserve(mg_file *f, int64_t bytes) {
    int done;
    struct statfs s;
    int64_t old = 0;
    if (f->reused) MG_TRY(mg_io_size(f, &old));
    if (old > bytes) MG_TRY(mg_io_cut(f, bytes));
    MG_IO_RETRY(done, fstatfs(f->fd, &s));
    if (done == 0 && s.f_type == TMPFS_MAGIC) return MG_OK;
    if (done == 0) MG_IO_RETRY(done, allocate(f->fd, bytes));
    return done == 0 || mg_io_unsupported() ? MG_OK : mg_io_fail_call("write", f->path);
}

/* The links of the path are followed, and the folder looked at, as mg_io_create will do. */
mg_status mg_io_check_creatable(const char *path) {
    struct stat s;
    int done = -1;
    MG_TRY(mg_packed_refuse(path));
    mg_file *f = mg_io_new_file(path);
    if (!f) return MG_OOM;
    mg_error_clear();
    mg_status status = follow_links(f);
    if (status == MG_OK) status = check_target(f);
    if (status == MG_OK) status = find_folder(f);
    if (status == MG_OK) {
        MG_IO_RETRY(done, stat(f->folder, &s));
        if (done == 0 && !S_ISDIR(s.st_mode))
            status = mg_fail(MG_IO, "cannot write %s: %s is not a folder", path, f->folder);
        else if (done != 0 || access(f->folder, W_OK | X_OK) != 0)
            status = mg_io_fail_call("write to the folder", f->folder);
    }
    mg_io_free_file(f);
    return status;
}

/* ---- replacing ---- */

/* Gives the new file the old one's mode, owner and group, as far as the system allows. A group that
 * cannot be kept gets no more rights than everybody. */
static bool keep_mode(const mg_file *f) {
    int done;
    mode_t mode = f->old.st_mode & 0777;
    if (f->executable && !f->replaces) {
        MG_IO_RETRY(done, fchmod(f->fd, 0755));
        return done == 0;
    }
    if (!f->replaces) return true;
    MG_IO_RETRY(done, fchown(f->fd, f->old.st_uid, f->old.st_gid));
    if (done != 0 && errno == EPERM) MG_IO_RETRY(done, fchown(f->fd, (uid_t)-1, f->old.st_gid));
    if (done != 0 && errno != EPERM && !mg_io_unsupported()) return false;
    if (done != 0) mode &= 0707 | (mode & 07) << 3;
    if (f->executable) mode = 0755;
    MG_IO_RETRY(done, fchmod(f->fd, mode));
    return done == 0 || errno == EPERM || mg_io_unsupported();
}

/* Gives a file without a name a temporary one; false with errno. */
static bool name_file(mg_file *f) {
    char proc[64];
    if (f->temporary) return true;
    snprintf(proc, sizeof proc, "/proc/self/fd/%d", f->fd);
    for (int i = 0; i < TRIES; i++) {
        int done;
        char *name = mg_io_temporary_name(f);
        if (!name) return false;
        MG_IO_RETRY(done, linkat(AT_FDCWD, proc, AT_FDCWD, name, AT_SYMLINK_FOLLOW));
        if (done == 0) f->temporary = name;
        if (done == 0) return true;
        mg_free(name);
        if (errno != EEXIST) return false;
    }
    return false;
}

/* Makes the new name survive a crash of the machine. */
static mg_status sync_name(const mg_file *f) {
    char why[512];
    if (mg_io_sync_folder(f->folder) == MG_OK) return MG_OK;
    snprintf(why, sizeof why, "%s", mg_error_message());
    return mg_fail(MG_IO, "%s is written, but a crash of the machine may undo it: %s", f->path,
                   why);
}

/* A reused file already has its final name. */
mg_status mg_io_commit(mg_file *f) {
    int done;
    mg_error_clear();
    done = keep_mode(f) ? 0 : -1;
    if (done == 0) MG_IO_RETRY(done, fsync(f->fd));
    if (done == 0 && !f->reused && !name_file(f)) done = -1;
    if (done == 0 && !f->reused) MG_IO_RETRY(done, rename(f->temporary, f->target));
    mg_status status = MG_OK;
    if (done != 0) {
        status = mg_error_code() == MG_OOM ? MG_OOM : mg_io_fail_call("write", f->path);
    } else if (!f->reused) {
        mg_free(f->temporary);
        f->temporary = NULL;
        status = sync_name(f);
    }
    mg_io_close(f);
    return status;
}
