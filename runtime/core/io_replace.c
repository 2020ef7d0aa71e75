/* New files appear whole or not at all; lock files.
 *
 * A new file is written without a name (O_TMPFILE), so that it vanishes with a process that is
 * killed. To replace the old file it needs a name for a moment, since linkat does not replace and
 * rename does: a temporary one with random digits. Where O_TMPFILE or /proc is missing, the file
 * has that name from the start. O_EXCL and random digits keep others from planting a file or a link
 * there.
 *
 * A temporary name may outlive a killed process. Whether its process lives is told by a lock
 * (flock) that a writer holds from the start until after the rename. The kernel releases it when
 * the process ends. A process id would not do: another container may use the same one. The name
 * also holds the id of the kernel's boot, because some network file systems keep locks on one
 * machine: files of other boots are removed only if they have not changed for an hour. */
#define _GNU_SOURCE
#include "core/alloc.h"
#include "core/io_file.h"
#include "core/threads.h"
#include <dirent.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

/* Temporary names: PREFIX, 8 digits of the boot, '-', 16 random digits, SUFFIX. */
static const char PREFIX[] = ".mgpulua-", SUFFIX[] = ".tmp", HEX[] = "0123456789abcdef";
enum { BOOT_DIGITS = 8, RANDOM_DIGITS = 16, MAX_LINKS = 40, TRIES = 100 };
enum { FOREIGN_SECONDS = 3600, LOCK_POLL_US = 50 * 1000 };

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
 * stat comes first: it is refused where the system forbids following links that others may have
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

/* ---- temporary names ---- */

static pthread_once_t boot_once = PTHREAD_ONCE_INIT;
static char boot[BOOT_DIGITS + 1] = "00000000";
static void read_boot(void) {
    char text[BOOT_DIGITS];
    const int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    if (read(fd, text, sizeof text) == (ssize_t)sizeof text) memcpy(boot, text, sizeof text);
    close(fd);
}

/* A new name in the folder. Owned; NULL: MG_OOM, MG_IO. */
static char *temporary_name(const mg_file *f) {
    uint64_t digits;
    pthread_once(&boot_once, read_boot);
    if (getrandom(&digits, sizeof digits, 0) != sizeof digits) {
        mg_io_fail_call("make a temporary name for", f->path);
        return NULL;
    }
    const size_t n = strlen(f->folder) + 64;
    char *name = mg_alloc(n);
    if (name)
        snprintf(name, n, "%s/%s%s-%016llx%s", f->folder, PREFIX, boot, (unsigned long long)digits,
                 SUFFIX);
    return name;
}

/* Whether a name is one of ours; *same_boot: its writer used this kernel. */
static bool is_temporary_name(const char *name, bool *same_boot) {
    pthread_once(&boot_once, read_boot);
    const size_t prefix = sizeof PREFIX - 1;
    if (strncmp(name, PREFIX, prefix) != 0) return false;
    const char *digits = name + prefix;
    if (strspn(digits, HEX) != BOOT_DIGITS || digits[BOOT_DIGITS] != '-') return false;
    *same_boot = strncmp(digits, boot, BOOT_DIGITS) == 0;
    digits += BOOT_DIGITS + 1;
    return strspn(digits, HEX) == RANDOM_DIGITS && strcmp(digits + RANDOM_DIGITS, SUFFIX) == 0;
}

/* ---- sweeping ---- */

/* Removes the temporary file `name` if the process that wrote it has ended. */
static void sweep_file(int folder, const char *name, bool same_boot) {
    struct stat s;
    const int fd = openat(folder, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return;
    if (fstat(fd, &s) == 0 && S_ISREG(s.st_mode) && flock(fd, LOCK_EX | LOCK_NB) == 0 &&
        (same_boot || time(NULL) - s.st_mtime > FOREIGN_SECONDS))
        unlinkat(folder, name, 0);
    close(fd);
}

/* Removes what killed processes left in the folder. Failures are ignored: the files are in nobody's
 * way. */
static void sweep_folder(const char *folder) {
    bool same_boot;
    DIR *d = opendir(folder);
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d))
        if (is_temporary_name(e->d_name, &same_boot)) sweep_file(dirfd(d), e->d_name, same_boot);
    if (d) closedir(d);
}

/* ---- creating ---- */

/* Locks an open file; false if somebody else has the lock, or on an error. Without locks in the
 * file system all is well too: then nobody can sweep. */
static bool lock_file(int fd) {
    int done;
    MG_IO_RETRY(done, flock(fd, LOCK_EX | LOCK_NB));
    return done == 0 || mg_io_unsupported();
}

/* Opens a file without a name; -1 with errno. linkat needs /proc to name it later. */
static int open_unnamed(const mg_file *f, mode_t mode) {
    int fd;
    char proc[64];
    MG_IO_RETRY(fd, open(f->folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, mode));
    if (fd < 0) return -1;
    snprintf(proc, sizeof proc, "/proc/self/fd/%d", fd);
    const bool can_link = access(proc, F_OK) == 0;
    if (can_link && lock_file(fd)) return fd;
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
        char *name = temporary_name(f);
        if (!name) return -1;
        MG_IO_RETRY(fd, open(name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
        if (fd >= 0 && lock_file(fd) && fstat(fd, &s) == 0 && s.st_nlink == 1) {
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

/* Until its mode is set at commit, nobody else can read what replaces a file. */
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
    mg_file *f = mg_io_new_file(path);
    if (!f) return NULL;
    mg_error_clear();
    mg_status status = follow_links(f);
    if (status == MG_OK) status = check_target(f);
    if (status == MG_OK) status = find_folder(f);
    if (status == MG_OK) sweep_folder(f->folder);
    if (status == MG_OK) status = open_temporary(f);
    if (status == MG_OK) return f;
    mg_io_free_file(f);
    return NULL;
}

/* The links of the path are followed, and the folder looked at, as mg_io_create will do. */
mg_status mg_io_check_creatable(const char *path) {
    struct stat s;
    int done = -1;
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
    if (!f->replaces) return true;
    MG_IO_RETRY(done, fchown(f->fd, f->old.st_uid, f->old.st_gid));
    if (done != 0 && errno == EPERM) MG_IO_RETRY(done, fchown(f->fd, (uid_t)-1, f->old.st_gid));
    if (done != 0 && errno != EPERM && !mg_io_unsupported()) return false;
    if (done != 0) mode &= 0707 | (mode & 07) << 3;
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
        char *name = temporary_name(f);
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

mg_status mg_io_commit(mg_file *f) {
    int done;
    mg_error_clear();
    done = keep_mode(f) ? 0 : -1;
    if (done == 0) MG_IO_RETRY(done, fsync(f->fd));
    if (done == 0 && !name_file(f)) done = -1;
    if (done == 0) MG_IO_RETRY(done, rename(f->temporary, f->target));
    mg_status status = MG_OK;
    if (done != 0) {
        status = mg_error_code() == MG_OOM ? MG_OOM : mg_io_fail_call("write", f->path);
    } else {
        mg_free(f->temporary);
        f->temporary = NULL;
        status = sync_name(f);
    }
    mg_io_close(f);
    return status;
}

/* ---- lock files ---- */

/* Tries once: true if f now holds the lock. *wait: another process has it. The holder removes the
 * file before it lets go, so the lock counts only if the file is still the one at the path. */
static bool try_lock(mg_file *f, bool *wait) {
    struct stat mine, there;
    int fd, done;
    MG_IO_RETRY(fd, open(f->path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666));
    *wait = false;
    if (fd < 0) return false;
    MG_IO_RETRY(done, flock(fd, LOCK_EX | LOCK_NB));
    *wait = done != 0 && errno == EWOULDBLOCK;
    if ((done == 0 || mg_io_unsupported()) && fstat(fd, &mine) == 0) {
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
            usleep(LOCK_POLL_US);
    }
    /* mg_io_close removes the lock file like a temporary one */
    if (status == MG_OK) f->temporary = mg_strdup(path);
    if (f->temporary) return f;
    mg_io_free_file(f);
    return NULL;
}
