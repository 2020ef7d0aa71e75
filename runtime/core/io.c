/* Counted file calls with a fault point: reading, mapping, writing and folders. io_replace.c makes
 * new files appear whole or not at all. */
#define _GNU_SOURCE
#include "core/alloc.h"
#include "core/io_file.h"
#include "core/io_packed.h"
#include "core/limits.h"
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

/* ---- faults ---- */

/* Calls until the injected failure (0: none is planned); its errno; whether later calls fail as
 * well; whether a call failed; and files open now. */
static atomic_llong fail_in, open_files;
static atomic_int fail_errno;
static atomic_bool fail_always, fail_hit;

bool mg_io_fault(size_t *n) {
    const long long left = atomic_load(&fail_in);
    if (left <= 0) return false;
    if (left > 1 || !atomic_load(&fail_always)) {
        if (atomic_fetch_sub(&fail_in, 1) != 1) return false;
    }
    atomic_store(&fail_hit, true);
    const int error = atomic_load(&fail_errno);
    if (error == MG_IO_KILL) raise(SIGKILL);
    if (error == MG_IO_SLOW) {
        nanosleep(&(struct timespec){.tv_sec = MG_IO_SLOW_SECONDS}, NULL);
        return false;
    }
    if (error == MG_IO_SHORT) {
        if (n) *n = (*n + 1) / 2;
        return false;
    }
    errno = error;
    return true;
}

/* fail_in is set last: another thread may make the failing call at once. */
static void plan_fault(int64_t n, int error, bool always) {
    atomic_store(&fail_in, 0);
    atomic_store(&fail_errno, error);
    atomic_store(&fail_always, always);
    atomic_store(&fail_hit, false);
    atomic_store(&fail_in, n);
}

void mg_io_fail_after(int64_t n, int error) {
    plan_fault(n, error, false);
}

void mg_io_fail_from(int64_t n, int error) {
    plan_fault(n, error, true);
}

bool mg_io_fail_stop(void) {
    atomic_store(&fail_in, 0);
    return atomic_load(&fail_hit);
}

/* ---- open files ---- */

mg_status mg_io_fail_call(const char *what, const char *path) {
    return mg_fail(MG_IO, "cannot %s %s: %s", what, path, mg_reason(errno));
}

mg_file *mg_io_new_file(const char *path) {
    mg_file *f = mg_alloc_zero(sizeof *f);
    if (!f) return NULL;
    f->fd = -1;
    f->path = mg_strdup(path);
    if (f->path) return f;
    mg_free(f);
    return NULL;
}

void mg_io_set_open(mg_file *f, int fd) {
    f->fd = fd;
    atomic_fetch_add(&open_files, 1);
}

void mg_io_free_file(mg_file *f) {
    if (f->fd >= 0) {
        close(f->fd);
        atomic_fetch_sub(&open_files, 1);
    }
    mg_free(f->temporary);
    mg_free(f->folder);
    mg_free(f->target);
    mg_free(f->path);
    mg_free(f);
}

int mg_io_descriptor(mg_file *f) {
    return f->fd < 0 && f->memory ? mg_packed_descriptor(f) : f->fd;
}

/* Before mg_io_commit the new file is thrown away. */
void mg_io_close(mg_file *f) {
    if (!f) return;
    if (f->temporary) unlink(f->temporary);
    mg_io_free_file(f);
}

/* For leak checks in tests. */
int64_t mg_io_open_count(void) {
    return atomic_load(&open_files);
}

/* ---- reading ---- */

/* O_NONBLOCK: opening a pipe must not wait for a writer. */
mg_file *mg_io_open(const char *path) {
    const int64_t packed = mg_packed_find(path);
    if (packed >= 0) return mg_packed_open(path, packed);
    mg_file *f = mg_io_new_file(path);
    if (!f) return NULL;
    int fd;
    MG_IO_RETRY(fd, open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (fd >= 0) {
        mg_io_set_open(f, fd);
        return f;
    }
    mg_io_fail_call("open", path);
    mg_io_free_file(f);
    return NULL;
}

/* Only regular files are looked at: a pipe or a folder is refused here, before anything is read. */
static mg_status look_at(mg_file *f, struct stat *s) {
    int done;
    MG_IO_RETRY(done, fstat(f->fd, s));
    if (done != 0) return mg_io_fail_call("look at", f->path);
    return S_ISREG(s->st_mode) ? MG_OK : mg_fail(MG_IO, "%s is not a regular file", f->path);
}

/* Nanoseconds since 1970. */
static int64_t change_time(const struct stat *s) {
    return s->st_mtim.tv_sec * (int64_t)1000000000 + s->st_mtim.tv_nsec;
}

mg_status mg_io_size(mg_file *f, int64_t *bytes) {
    struct stat s;
    *bytes = f->memory_size;
    if (f->memory) return MG_OK;
    MG_TRY(look_at(f, &s));
    *bytes = s.st_size;
    return MG_OK;
}

mg_status mg_io_look(mg_file *f, mg_io_state *now) {
    struct stat s;
    *now = (mg_io_state){.bytes = f->memory_size};
    if (f->memory) return MG_OK;
    MG_TRY(look_at(f, &s));
    *now = (mg_io_state){.bytes = s.st_size, .changed = change_time(&s)};
    return MG_OK;
}

/* The time of the last tick, in nanoseconds: read without a system call. */
static int64_t last_tick(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    return t.tv_sec * (int64_t)1000000000 + t.tv_nsec;
}

mg_status mg_io_check_unchanged(mg_file *f, const mg_io_state *before) {
    mg_io_state now;
    if (f->memory) return MG_OK;
    const int64_t tick = last_tick();
    if (atomic_load_explicit(&f->checked, memory_order_relaxed) == tick) return MG_OK;
    MG_TRY(mg_io_look(f, &now));
    atomic_store_explicit(&f->checked, tick, memory_order_relaxed);
    if (now.bytes == before->bytes && now.changed == before->changed) return MG_OK;
    atomic_store_explicit(&f->checked, 0, memory_order_relaxed);
    return mg_fail(MG_IO, "%s has changed since the data set was opened", f->path);
}

/* One read to dst or, if dst is NULL, one write from src, repeated if a signal interrupts it.
 * Returns the bytes moved, or -1 with errno. `position`: the offset of a read, or HERE for the
 * file's current position, where writes always go. */
enum { HERE = -1 };
static ssize_t transfer(mg_file *f, void *dst, const void *src, size_t n, int64_t position) {
    ssize_t moved = -1;
    for (int tries = 0; tries < MG_IO_RETRIES; tries++) {
        size_t some = n;
        if (!mg_io_fault(&some))
            moved = position != HERE ? pread(f->fd, dst, some, position)
                    : dst            ? read(f->fd, dst, some)
                                     : mg_write_held(f->fd, src, some);
        if (moved >= 0 || errno != EINTR) break;
    }
    return moved;
}

/* Repeats short reads. */
static mg_status read_all(mg_file *f, void *dst, size_t n, int64_t position, size_t *got) {
    *got = 0;
    while (*got < n) {
        const int64_t at = position == HERE ? HERE : position + (int64_t)*got;
        const ssize_t r = transfer(f, (char *)dst + *got, NULL, n - *got, at);
        if (r < 0) return mg_io_fail_call("read", f->path);
        if (r == 0) break; /* the end of the file */
        *got += (size_t)r;
    }
    return MG_OK;
}

mg_status mg_io_read(mg_file *f, void *dst, size_t n, size_t *got) {
    if (f->memory) {
        *got = mg_packed_read(f, dst, n, f->memory_at);
        f->memory_at += (int64_t)*got;
        return MG_OK;
    }
    return read_all(f, dst, n, HERE, got);
}

mg_status mg_io_read_at(mg_file *f, void *dst, size_t n, int64_t position, size_t *got) {
    if (f->memory) {
        *got = mg_packed_read(f, dst, n, position);
        return MG_OK;
    }
    return read_all(f, dst, n, position, got);
}

/* From the start of the file. */
mg_status mg_io_seek(mg_file *f, int64_t position) {
    int done;
    f->memory_at = position;
    if (f->memory) return MG_OK;
    MG_IO_RETRY(done, lseek(f->fd, position, SEEK_SET) < 0 ? -1 : 0);
    return done == 0 ? MG_OK : mg_io_fail_call("seek in", f->path);
}

mg_status mg_io_map(mg_file *f, size_t bytes, const void **data) {
    *data = NULL;
    if (bytes == 0) return MG_OK;
    const int fd = mg_io_descriptor(f);
    void *mapped = mg_io_fault(NULL) ? MAP_FAILED : mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED) return mg_io_fail_call("map", f->path);
    *data = mapped;
    return MG_OK;
}

void mg_io_unmap(const void *data, size_t bytes) {
    if (data) munmap((void *)data, bytes);
}

/* Lets the disk begin with a large file while the rest is still being written: fsync then finds
 * little to wait for. This is only a hint, so failures do not matter. */
static void start_writeback(mg_file *f, size_t n) {
    enum { PIECE = 4 << 20 }; /* bytes */
    f->unsent += n;
    if (f->unsent < PIECE) return;
    sync_file_range(f->fd, 0, 0, SYNC_FILE_RANGE_WRITE);
    f->unsent = 0;
}

/* Repeats short writes. */
mg_status mg_io_write(mg_file *f, const void *src, size_t n) {
    for (size_t done = 0; done < n;) {
        const ssize_t w = transfer(f, NULL, (const char *)src + done, n - done, HERE);
        if (w == 0) errno = ENOSPC;
        if (w <= 0) return mg_io_fail_call("write", f->path);
        done += (size_t)w;
    }
    start_writeback(f, n);
    return MG_OK;
}

mg_status mg_io_cut(mg_file *f, int64_t size) {
    int64_t bytes;
    int done;
    MG_TRY(mg_io_size(f, &bytes));
    if (bytes < size)
        return mg_fail(MG_IO, "%s has %lld bytes, but %lld were written before", f->path,
                       (long long)bytes, (long long)size);
    MG_IO_RETRY(done, ftruncate(f->fd, size));
    return done == 0 ? MG_OK : mg_io_fail_call("cut", f->path);
}

/* Opens a file, or makes it, to append after its first `size` bytes. */
static mg_file *open_to_append(const char *path, int64_t size) {
    if (mg_packed_refuse(path) != MG_OK) return NULL;
    mg_file *f = mg_io_new_file(path);
    if (!f) return NULL;
    int fd;
    MG_IO_RETRY(fd, open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666));
    if (fd < 0) {
        mg_io_fail_call("open", path);
    } else {
        mg_io_set_open(f, fd);
        if (mg_io_cut(f, size) == MG_OK) return f;
    }
    mg_io_free_file(f);
    return NULL;
}

/* The part of a write that failed is cut off again. If that fails too, the next append does it. */
mg_status mg_io_append(const char *path, int64_t *size, const void *bytes, size_t n) {
    mg_file *f = open_to_append(path, *size);
    if (!f) return mg_error_code();
    const mg_status status = mg_io_write(f, bytes, n);
    if (status == MG_OK) *size += (int64_t)n;
    const bool cut = status == MG_OK || ftruncate(f->fd, *size) == 0;
    (void)cut;
    mg_io_close(f);
    return status;
}

/* Unlinked at once, so that nothing stays behind whatever happens to the process. The path, for
 * messages, is the folder's. */
mg_file *mg_io_unnamed(void) {
    const char *set = getenv("TMPDIR"), *folder = set && *set ? set : "/tmp";
    const size_t room = strlen(folder) + sizeof "/mgpulua-XXXXXX";
    mg_file *f = mg_io_new_file(folder);
    char *name = f ? mg_alloc(room) : NULL;
    int fd = -1;
    if (name) {
        snprintf(name, room, "%s/mgpulua-XXXXXX", folder);
        fd = mg_io_fault(NULL) ? -1 : mkostemp(name, O_CLOEXEC);
        if (fd < 0) mg_io_fail_call("make a temporary file in", folder);
    }
    if (fd >= 0) {
        unlink(name);
        mg_io_set_open(f, fd);
    } else if (f) {
        mg_io_free_file(f);
        f = NULL;
    }
    mg_free(name);
    return f;
}

mg_status mg_io_free_space(mg_file *f, int64_t *bytes) {
    struct statvfs v;
    int done;
    MG_IO_RETRY(done, fstatvfs(f->fd, &v));
    if (done != 0) return mg_io_fail_call("look at the disk of", f->path);
    if (__builtin_mul_overflow(v.f_bavail, v.f_frsize, bytes)) *bytes = INT64_MAX;
    return MG_OK;
}

/* ---- folders ---- */

/* True if the folder exists afterwards. A file of that name counts as failure: ENOTDIR. */
static bool make_one_folder(const char *path) {
    struct stat s;
    int done;
    MG_IO_RETRY(done, mkdir(path, 0777));
    if (done == 0) return true;
    if (errno != EEXIST || stat(path, &s) != 0) return false;
    errno = ENOTDIR; /* in case something else has the name */
    return S_ISDIR(s.st_mode);
}

/* Creates each parent in turn, then the folder itself. */
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
            status = mg_io_fail_call("make the folder", part);
            break;
        }
        *p = kept;
        if (!kept) break; /* that was the whole path */
    }
    mg_free(part);
    return status;
}

mg_status mg_io_new_folder(const char *path, bool *made) {
    int done;
    MG_IO_RETRY(done, mkdir(path, 0777));
    *made = done == 0;
    return done == 0 || errno == EEXIST ? MG_OK : mg_io_fail_call("make the folder", path);
}

/* No fault point: this call reports no errors. */
int mg_io_exists(const char *path) {
    struct stat s;
    return mg_packed_find(path) >= 0 || (stat(path, &s) == 0 && S_ISREG(s.st_mode));
}

bool mg_io_is_same(const char *a, const char *b) {
    struct stat s, t;
    return stat(a, &s) == 0 && stat(b, &t) == 0 && s.st_dev == t.st_dev && s.st_ino == t.st_ino;
}

/* A file that is not there is an error. */
mg_status mg_io_remove(const char *path) {
    int done;
    MG_TRY(mg_packed_refuse(path));
    MG_IO_RETRY(done, unlink(path));
    return done == 0 ? MG_OK : mg_io_fail_call("remove", path);
}

/* The next entry of a folder; NULL at the end, or with errno. */
static struct dirent *next_entry(DIR *d) {
    errno = 0;
    return mg_io_fault(NULL) ? NULL : readdir(d);
}

/* Visits the entries of this type (S_IFREG, S_IFDIR), but not "." and "..". Entries that vanish
 * between readdir and fstatat are skipped, links to nowhere and the like too. */
static mg_status each_entry(const char *folder, mode_t type, mg_io_visit *visit, void *context) {
    mg_status status = MG_OK;
    struct stat s;
    DIR *d = mg_io_fault(NULL) ? NULL : opendir(folder);
    if (!d) return mg_io_fail_call("look into", folder);
    struct dirent *e = next_entry(d);
    for (; e && status == MG_OK; e = next_entry(d))
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
            fstatat(dirfd(d), e->d_name, &s, 0) == 0 && (s.st_mode & S_IFMT) == type)
            status = visit(context, e->d_name, s.st_size, change_time(&s));
    if (!e && errno && status == MG_OK) status = mg_io_fail_call("look into", folder);
    closedir(d);
    return status;
}

mg_status mg_io_each(const char *folder, mg_io_visit *visit, void *context) {
    if (mg_packed_is_folder(folder)) return mg_packed_each(folder, false, visit, context);
    return each_entry(folder, S_IFREG, visit, context);
}

mg_status mg_io_each_folder(const char *folder, mg_io_visit *visit, void *context) {
    if (mg_packed_is_folder(folder)) return mg_packed_each(folder, true, visit, context);
    return each_entry(folder, S_IFDIR, visit, context);
}

int mg_io_folder_exists(const char *path) {
    struct stat s;
    return mg_packed_is_folder(path) || (stat(path, &s) == 0 && S_ISDIR(s.st_mode));
}

mg_status mg_io_identify(const char *path, mg_io_identity *identity) {
    struct stat own, s;
    int done;
    if (mg_packed_find(path) >= 0 || mg_packed_is_folder(path))
        return mg_packed_identify(path, identity);
    MG_IO_RETRY(done, lstat(path, &own) == 0 ? stat(path, &s) : -1);
    if (done != 0) return mg_io_fail_call("look at", path);
    *identity = (mg_io_identity){s.st_dev, s.st_ino, S_ISLNK(own.st_mode)};
    return MG_OK;
}

mg_status mg_io_rename(const char *from, const char *to) {
    int done;
    MG_IO_RETRY(done, rename(from, to));
    return done == 0 ? MG_OK : mg_io_fail_call("rename", from);
}

mg_status mg_io_remove_folder(const char *path) {
    int done;
    MG_IO_RETRY(done, rmdir(path));
    return done == 0 ? MG_OK : mg_io_fail_call("remove", path);
}

/* Folders that cannot be opened or synced, as on some network file systems, are left to the system.
 */
mg_status mg_io_sync_folder(const char *path) {
    int fd, done = -1;
    MG_IO_RETRY(fd, open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (fd < 0) return errno == EACCES ? MG_OK : mg_io_fail_call("open", path);
    MG_IO_RETRY(done, fsync(fd));
    const bool failed = done != 0 && !mg_io_unsupported();
    const mg_status status = failed ? mg_io_fail_call("sync", path) : MG_OK;
    close(fd);
    return status;
}
