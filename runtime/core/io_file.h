/* What the files of core/io share: open files, fault points, calls that a signal interrupts. */
#ifndef MG_CORE_IO_FILE_H
#define MG_CORE_IO_FILE_H

#include "core/io.h"
#include <errno.h>
#include <sys/stat.h>

/* A file that is read, a new file that is written, or a lock file. */
struct mg_file {
    int fd;
    _Atomic int64_t checked; /* the tick in which it was last seen to be unchanged; 0: none */
    char *path;              /* owned: as the user named it */
    char *target;            /* owned: new files: what is replaced: path with its links followed */
    char *folder;            /* owned: new files: the folder of target */
    char *temporary;         /* owned: the temporary name, or NULL while the file has none */
    bool reused;             /* mg_io_reuse: its old bytes are written over */
    size_t unsent;           /* bytes written since writeback was last started */
    bool replaces;           /* new files: there is a file at target, with this mode and owner */
    bool executable;         /* new files: mg_io_make_executable */
    struct stat old;
    const char *memory;             /* mg_io_memory: the contents; NULL: it is a file on the disk */
    int64_t memory_size, memory_at; /* bytes, and the current position */
};

/* The fault point: called before every file call. True: the call must fail, and errno is set. `n`:
 * the bytes of a read or write, which may be reduced; NULL for other calls. */
bool mg_io_fault(size_t *n);

/* Repeats a call that a signal interrupted, but not for ever. `result` is -1 if it failed. */
enum { MG_IO_RETRIES = 1000 };
#define MG_IO_RETRY(result, call)                                                                  \
    do {                                                                                           \
        for (int tries_ = 0; tries_ < MG_IO_RETRIES; tries_++) {                                   \
            (result) = mg_io_fault(NULL) ? -1 : (call);                                            \
            if ((result) >= 0 || errno != EINTR) break;                                            \
        }                                                                                          \
    } while (0)

/* Whether errno says that the file system lacks a feature. */
static inline bool mg_io_unsupported(void) {
    return errno == EOPNOTSUPP || errno == EINVAL || errno == ENOSYS || errno == ENOLCK ||
           errno == EISDIR;
}

/* "cannot WHAT PATH: errno's text", MG_IO. */
mg_status mg_io_fail_call(const char *what, const char *path);
/* io.c: cuts the file to `size` bytes. MG_IO if it is shorter. */
mg_status mg_io_cut(mg_file *f, int64_t size);
/* A handle without an open file. Owned (mg_io_free_file). NULL: MG_OOM. */
mg_file *mg_io_new_file(const char *path);
/* Sets the descriptor and counts it as open. */
void mg_io_set_open(mg_file *f, int fd);
/* io_temporary.c: a new name in f->folder. Owned (mg_free); NULL: MG_OOM, MG_IO. */
char *mg_io_temporary_name(const mg_file *f);
/* Removes what killed processes left in the folder. Failures are ignored: a leftover file does no
 * harm. */
void mg_io_sweep(const char *folder);
/* io_lock.c: locks an open file without waiting; false with errno if the lock is held elsewhere, or
 * on an error. True where the file system has no locks: then no process can sweep either. */
bool mg_io_try_flock(int fd);
/* io_packed.c: a file inside of the program, opened; NULL: its contents are damaged, MG_OOM. */
mg_file *mg_packed_open(const char *path, int64_t file);
/* Reads from a file in memory; returns the number of bytes. */
size_t mg_packed_read(mg_file *f, void *dst, size_t n, int64_t position);
/* The descriptor of a copy of a file in memory, which f owns; -1 if there is no memory for it. */
int mg_packed_descriptor(mg_file *f);
/* MG_IO if the path belongs to a file inside of the program. */
mg_status mg_packed_refuse(const char *path);
mg_status mg_packed_identify(const char *path, mg_io_identity *identity);
/* Closes and frees; a temporary file that has a name stays. */
void mg_io_free_file(mg_file *f);

#endif
