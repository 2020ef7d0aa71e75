/* Temporary names of new files, and the removal of those that killed processes have left.
 *
 * A writer holds a lock (flock) on its temporary file until after the rename, and the kernel
 * releases it when the process ends. So an unlocked temporary file belongs to a process that has
 * ended. Process ids cannot tell this: another container may use the same one. The name also holds
 * the id of the kernel's boot, because some network file systems keep locks on one machine: files
 * of other boots are removed only if they have not changed for an hour. */
#define _GNU_SOURCE
#include "core/alloc.h"
#include "core/io_file.h"
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

/* A name: PREFIX, 8 digits of the boot, '-', 16 random digits, SUFFIX. */
static const char PREFIX[] = ".mgpulua-", SUFFIX[] = ".tmp", HEX[] = "0123456789abcdef";
enum { BOOT_DIGITS = 8, RANDOM_DIGITS = 16, FOREIGN_SECONDS = 3600 };

/* ---- names ---- */

static pthread_once_t boot_once = PTHREAD_ONCE_INIT;
static char boot[BOOT_DIGITS + 1] = "00000000";
static void read_boot(void) {
    char text[BOOT_DIGITS];
    const int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    if (read(fd, text, sizeof text) == (ssize_t)sizeof text) memcpy(boot, text, sizeof text);
    close(fd);
}

char *mg_io_temporary_name(const mg_file *f) {
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

void mg_io_sweep(const char *folder) {
    bool same_boot;
    DIR *d = opendir(folder);
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d))
        if (is_temporary_name(e->d_name, &same_boot)) sweep_file(dirfd(d), e->d_name, same_boot);
    if (d) closedir(d);
}
