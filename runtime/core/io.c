/* Counted file calls with a fault point; new files appear whole or not at all.
 *
 * A new file is written under a temporary name beside its place, synced, and renamed over it.
 * rename is atomic, so a crash leaves the old file or the new one. */
#define _GNU_SOURCE
#include "core/io.h"
#include "core/alloc.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A file that is read (no temporary name) or a new file that is written. */
struct mg_file {
    int fd;
    char *path;      /* owned: as the user named it */
    char *temporary; /* owned: where a new file is written, or NULL when reading */
};

/* Calls until the injected failure (0: none is planned), its errno, and files open now. */
static atomic_llong fail_in, open_files;
static atomic_int fail_errno;

/* Every file call asks this first. True: this call must fail, and errno is set as mg_io_fail_after
 * said. */
static bool fault_now(void) {
    if (atomic_load(&fail_in) <= 0 || atomic_fetch_sub(&fail_in, 1) != 1) return false;
    errno = atomic_load(&fail_errno);
    return true;
}

/* The error for a failed call, with errno's text. */
static mg_status fail_call(const char *what, const char *path) {
    return mg_fail(MG_IO, "cannot %s %s: %s", what, path, strerror(errno));
}

/* An mg_file without an open file. Owned. */
static mg_file *new_file(const char *path) {
    mg_file *f = mg_alloc_zero(sizeof *f);
    if (!f) return NULL;
    f->fd = -1;
    f->path = mg_strdup(path);
    if (f->path) return f;
    mg_free(f);
    return NULL;
}

/* Closes and frees; the temporary file, if there is one, stays on disk. */
static void free_file(mg_file *f) {
    if (f->fd >= 0) {
        close(f->fd);
        atomic_fetch_sub(&open_files, 1);
    }
    mg_free(f->temporary);
    mg_free(f->path);
    mg_free(f);
}

/* ---- reading ---- */

/* Owned by the caller until mg_io_close. */
mg_file *mg_io_open(const char *path) {
    mg_file *f = new_file(path);
    if (!f) return NULL;
    const int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK; /* a pipe must not hang us */
    f->fd = fault_now() ? -1 : open(path, flags);
    if (f->fd >= 0) {
        atomic_fetch_add(&open_files, 1);
        return f;
    }
    fail_call("open", path);
    free_file(f);
    return NULL;
}

/* Only regular files have a size: a pipe or a folder is refused here, before anything is read. */
mg_status mg_io_size(mg_file *f, int64_t *bytes) {
    struct stat s;
    if (fault_now() || fstat(f->fd, &s) != 0) return fail_call("look at", f->path);
    if (!S_ISREG(s.st_mode)) return mg_fail(MG_IO, "%s is not a regular file", f->path);
    *bytes = s.st_size;
    return MG_OK;
}

/* Repeats short reads and reads interrupted by a signal. */
mg_status mg_io_read(mg_file *f, void *dst, size_t n, size_t *got) {
    size_t done = 0;
    while (done < n) {
        const ssize_t r = fault_now() ? -1 : read(f->fd, (char *)dst + done, n - done);
        if (r < 0 && errno == EINTR) continue;
        if (r < 0) return fail_call("read", f->path);
        if (r == 0) break; /* the end of the file */
        done += (size_t)r;
    }
    *got = done;
    return MG_OK;
}

/* From the start of the file. */
mg_status mg_io_seek(mg_file *f, int64_t position) {
    if (fault_now() || lseek(f->fd, position, SEEK_SET) < 0) return fail_call("seek in", f->path);
    return MG_OK;
}

/* ---- writing ---- */

/* The name holds the process id, so that two processes never write to the same temporary file. */
mg_file *mg_io_create(const char *path) {
    mg_file *f = new_file(path);
    if (!f) return NULL;
    const size_t n = strlen(path) + 32;
    f->temporary = mg_alloc(n);
    if (!f->temporary) {
        free_file(f);
        return NULL;
    }
    snprintf(f->temporary, n, "%s.tmp.%ld", path, (long)getpid());
    const int flags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC;
    f->fd = fault_now() ? -1 : open(f->temporary, flags, 0666);
    if (f->fd >= 0) {
        atomic_fetch_add(&open_files, 1);
        return f;
    }
    fail_call("write", path);
    free_file(f);
    return NULL;
}

/* Repeats short writes and writes interrupted by a signal. */
mg_status mg_io_write(mg_file *f, const void *src, size_t n) {
    for (size_t done = 0; done < n;) {
        const ssize_t w = fault_now() ? -1 : write(f->fd, (const char *)src + done, n - done);
        if (w < 0 && errno == EINTR) continue;
        if (w < 0) return fail_call("write", f->path);
        done += (size_t)w;
    }
    return MG_OK;
}

/* Makes the new name survive a crash. A failure is ignored: the file's contents are already safe.
 */
static void sync_folder(const char *path) {
    char *copy = strdup(path);
    const int fd = copy ? open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
    free(copy);
}

/* On failure mg_io_close removes the temporary file, and the old file stays as it was. */
mg_status mg_io_commit(mg_file *f) {
    if (fault_now() || fsync(f->fd) != 0 || fault_now() || rename(f->temporary, f->path) != 0) {
        const mg_status status = fail_call("write", f->path);
        mg_io_close(f);
        return status;
    }
    sync_folder(f->path);
    free_file(f);
    return MG_OK;
}

/* Before mg_io_commit the new file is thrown away. */
void mg_io_close(mg_file *f) {
    if (!f) return;
    if (f->temporary) unlink(f->temporary);
    free_file(f);
}

/* ---- folders ---- */

/* True if the folder exists afterwards. A file of that name counts as failure: ENOTDIR. */
static bool make_one_folder(const char *path) {
    struct stat s;
    if (fault_now()) return false;
    if (mkdir(path, 0777) == 0) return true;
    if (errno != EEXIST || stat(path, &s) != 0) return false;
    errno = ENOTDIR; /* in case something else has the name */
    return S_ISDIR(s.st_mode);
}

/* Each prefix that ends before a slash or at the end is made in turn. */
mg_status mg_io_make_folder(const char *path) {
    if (!*path) return mg_fail(MG_USAGE, "cannot make a folder: the path is empty");
    char *part = mg_strdup(path);
    if (!part) return MG_OOM;
    mg_status status = MG_OK;
    for (char *p = part + 1;; p++) {
        if (*p != '/' && *p != 0) continue;
        const char kept = *p;
        *p = 0;
        if (!make_one_folder(part)) {
            status = fail_call("make the folder", part);
            break;
        }
        *p = kept;
        if (!kept) break; /* that was the whole path */
    }
    mg_free(part);
    return status;
}

/* No fault point: the answer alone cannot fail. */
int mg_io_exists(const char *path) {
    struct stat s;
    return stat(path, &s) == 0 && S_ISREG(s.st_mode);
}

/* The folder is looked at as mg_io_create and mg_io_commit will use it. */
mg_status mg_io_check_creatable(const char *path) {
    struct stat s;
    char *copy = mg_strdup(path);
    if (!copy) return MG_OOM;
    const char *folder = dirname(copy);
    mg_status status = MG_OK;
    if (fault_now() || stat(folder, &s) != 0)
        status = fail_call("write to the folder", folder);
    else if (!S_ISDIR(s.st_mode))
        status = mg_fail(MG_IO, "cannot write %s: %s is not a folder", path, folder);
    else if (access(folder, W_OK | X_OK) != 0)
        status = fail_call("write to the folder", folder);
    else if (stat(path, &s) == 0 && S_ISDIR(s.st_mode))
        status = mg_fail(MG_IO, "cannot write %s: it is a folder", path);
    mg_free(copy);
    return status;
}

/* A file that is not there is an error. */
mg_status mg_io_remove(const char *path) {
    return fault_now() || unlink(path) != 0 ? fail_call("remove", path) : MG_OK;
}

/* Entries that vanish between readdir and fstatat are skipped. */
mg_status mg_io_each(const char *folder, mg_io_visit *visit, void *context) {
    mg_status status = MG_OK;
    struct stat s;
    DIR *d = fault_now() ? NULL : opendir(folder);
    if (!d) return fail_call("look into", folder);
    /* Folders, links to nowhere and the like are left out. */
    for (struct dirent *e = readdir(d); e && status == MG_OK; e = readdir(d))
        if (fstatat(dirfd(d), e->d_name, &s, 0) == 0 && S_ISREG(s.st_mode))
            status = visit(context, e->d_name, s.st_size,
                           s.st_mtim.tv_sec * (int64_t)1000000000 + s.st_mtim.tv_nsec);
    closedir(d);
    return status;
}

/* The errno first: another thread may make the failing call at once. */
void mg_io_fail_after(int64_t n, int error) {
    atomic_store(&fail_errno, error);
    atomic_store(&fail_in, n);
}

/* For leak checks in tests. */
int64_t mg_io_open_count(void) {
    return atomic_load(&open_files);
}
