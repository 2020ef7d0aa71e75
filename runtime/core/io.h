/* Files: every file call of the library goes through here, so that tests can make the n-th fail.
 *
 * Errors are MG_IO with path and reason (errno's text). */
#ifndef MG_CORE_IO_H
#define MG_CORE_IO_H

#include "core/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct mg_file mg_file;

/* Reading. mg_io_open fails with MG_IO "cannot open PATH: reason". */
mg_file *mg_io_open(const char *path);
mg_status mg_io_size(mg_file *f, int64_t *bytes);
/* A file that was changed later differs in one of these. (Not in its inode's number alone: some
 * network file systems give files new numbers.) */
typedef struct mg_io_state {
    int64_t bytes;
    int64_t changed; /* the time of the last change, in nanoseconds */
} mg_io_state;
mg_status mg_io_look(mg_file *f, mg_io_state *now);
/* MG_IO if the file has changed. May be called from any thread. The file is checked at most once
 * per tick of the system's clock (1 to 10 ms), the resolution of a file's time of change. */
mg_status mg_io_check_unchanged(mg_file *f, const mg_io_state *before);
/* Reads up to n bytes at the current position; *got < n only at the end. */
mg_status mg_io_read(mg_file *f, void *dst, size_t n, size_t *got);
/* The same at a position, from the start of the file; the current position stays. Several threads
 * may read from one file in this way. */
mg_status mg_io_read_at(mg_file *f, void *dst, size_t n, int64_t position, size_t *got);
mg_status mg_io_seek(mg_file *f, int64_t position);
/* The file's descriptor, to be handed to another process; -1 if there is no memory for the copy of
 * a file that lies in memory (core/io_packed.h). */
int mg_io_descriptor(mg_file *f);

/* Maps the first `bytes` bytes at *data until mg_io_unmap; the file may be closed earlier. If
 * another process shortens the file meanwhile, the next access kills this process (SIGBUS), so map
 * only files that are never changed in place. NULL for 0 bytes. */
mg_status mg_io_map(mg_file *f, size_t bytes, const void **data);
/* Accepts NULL. */
void mg_io_unmap(const void *data, size_t bytes);

/* Writing, atomically: the bytes go to a temporary file in the folder of PATH; nothing is seen at
 * PATH before commit. If PATH is a symbolic link, the file it points to is replaced and the link
 * stays. A file that is there keeps its mode and, where that is allowed, its owner and group; other
 * hard links to it keep the old contents. A read-only file is refused, also for root. Temporary
 * files of processes that were killed are removed (core/io_temporary.c). */
mg_file *mg_io_create(const char *path);
/* Opens a file that is not needed any more, to write over its bytes. The file must have one name,
 * belong to this user and not be open elsewhere; links are not followed. The file is not replaced:
 * mg_io_reserve gives it its new size, mg_io_commit syncs and closes it. NULL: MG_IO, MG_OOM; the
 * caller can then write another file. */
mg_file *mg_io_reuse(const char *path);
/* Reserves disk space for a file of `bytes` bytes: a full disk is found before the first byte is
 * written, and writing is faster. Does nothing if the file system cannot reserve space. A reused
 * file that is longer is cut to this size. */
mg_status mg_io_reserve(mg_file *f, int64_t bytes);
mg_status mg_io_write(mg_file *f, const void *src, size_t n);
/* mg_io_commit gives the file the mode 0755. */
void mg_io_make_executable(mg_file *f);
/* fsync, rename over PATH, sync the folder, close. On failure PATH is untouched and no temporary
 * file is left; only a failure to sync the folder comes after the rename, and says so. */
mg_status mg_io_commit(mg_file *f);

/* Writes n bytes in place after the first *size bytes of a file, which is created if it is missing,
 * and adds n to *size. Bytes after these are cut off first. On failure the file has its first *size
 * bytes, and the call can be repeated. MG_IO, also if the file is shorter than *size; MG_OOM. */
mg_status mg_io_append(const char *path, int64_t *size, const void *bytes, size_t n);

/* A new file without a name in the folder TMPDIR (/tmp), to be written and then read at positions.
 * Closing frees its space. */
mg_file *mg_io_unnamed(void);
/* Bytes that can still be written to the file's disk. */
mg_status mg_io_free_space(mg_file *f, int64_t *bytes);

/* Closes; an uncommitted new file is removed. Accepts NULL. */
void mg_io_close(mg_file *f);

/* Creates a folder and its parents. */
mg_status mg_io_make_folder(const char *path);
/* Creates a folder in one that exists. *made: whether this call made it; false: something has that
 * name already. Of several processes that call it at once, one makes the folder. */
mg_status mg_io_new_folder(const char *path, bool *made);
/* 1 if a regular file is there, else 0. */
int mg_io_exists(const char *path);
/* Whether both paths lead to one file or folder, by links too. */
bool mg_io_is_same(const char *a, const char *b);
/* MG_IO unless a file could be made at the path now: its folder exists, this process may write to
 * it, and what is at the path may be replaced. */
mg_status mg_io_check_creatable(const char *path);

mg_status mg_io_remove(const char *path);
typedef mg_status mg_io_visit(void *context, const char *name, int64_t bytes, int64_t changed);
/* Calls visit for each regular file in a folder, until one call fails, with its name, its size, and
 * the time of its last change in nanoseconds. */
mg_status mg_io_each(const char *folder, mg_io_visit *visit, void *context);
/* The same for each folder in it. */
mg_status mg_io_each_folder(const char *folder, mg_io_visit *visit, void *context);
/* 1 if a folder is there, else 0. */
int mg_io_folder_exists(const char *path);
/* Which file or folder a path leads to, whatever its name, and whether the path itself is a link.
 */
typedef struct mg_io_identity {
    uint64_t device, file;
    bool is_link;
} mg_io_identity;
mg_status mg_io_identify(const char *path, mg_io_identity *identity);
/* Renames a file or folder, without syncing. */
mg_status mg_io_rename(const char *from, const char *to);
/* Removes an empty folder. */
mg_status mg_io_remove_folder(const char *path);
/* Makes the names in a folder survive a crash of the machine. */
mg_status mg_io_sync_folder(const char *path);

/* Creates and locks the lock file PATH, after waiting until no other process holds it. mg_io_close
 * removes it. The kernel releases the lock of a killed process. Ctrl-C ends the wait:
 * MG_INTERRUPTED. */
mg_file *mg_io_lock(const char *path);
/* Locks a folder until mg_io_close, even if it is renamed meanwhile. *lock: owned; NULL if another
 * process holds the lock. Where the file system cannot lock folders, every caller gets the lock.
 * MG_IO, MG_OOM. */
mg_status mg_io_lock_folder(const char *path, mg_file **lock);

/* Faults, for tests: the n-th file call from now fails with errno `error` (ENOSPC, say): only this
 * call (fail_after), or this and all later ones (fail_from). n = 0 switches faults off. MG_IO_SHORT
 * makes reads and writes transfer only half of the bytes; MG_IO_KILL ends the process with SIGKILL;
 * MG_IO_SLOW makes the call take MG_IO_SLOW_SECONDS, as on a disk of another machine. */
enum { MG_IO_SHORT = -1, MG_IO_KILL = -2, MG_IO_SLOW = -3, MG_IO_SLOW_SECONDS = 2 };
void mg_io_fail_after(int64_t n, int error);
void mg_io_fail_from(int64_t n, int error);
/* Switches faults off. True if a call has failed by a fault. */
bool mg_io_fail_stop(void);
/* Files that are open now. */
int64_t mg_io_open_count(void);

#endif
