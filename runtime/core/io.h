/* Files: every file call of the library goes through here, so that tests can make the n-th fail.
 *
 * Errors are MG_IO with path and reason (errno's text). */
#ifndef MG_CORE_IO_H
#define MG_CORE_IO_H

#include "core/status.h"
#include <stddef.h>
#include <stdint.h>

typedef struct mg_file mg_file;

/* Reading. mg_io_open fails with MG_IO "cannot open PATH: reason". */
mg_file *mg_io_open(const char *path);
mg_status mg_io_size(mg_file *f, int64_t *bytes);
/* Reads up to n bytes at the current position; *got < n only at the end. */
mg_status mg_io_read(mg_file *f, void *dst, size_t n, size_t *got);
mg_status mg_io_seek(mg_file *f, int64_t position);

/* Writing, atomically: creates PATH.tmp.PID beside PATH; nothing is seen at PATH before commit. */
mg_file *mg_io_create(const char *path);
mg_status mg_io_write(mg_file *f, const void *src, size_t n);
/* fsync, rename over PATH, sync the folder, close. On failure the temporary file is removed and
 * PATH is untouched. */
mg_status mg_io_commit(mg_file *f);

/* Closes; an uncommitted new file is removed. Accepts NULL. */
void mg_io_close(mg_file *f);

/* Creates a folder and its parents. */
mg_status mg_io_make_folder(const char *path);
/* 1 if a regular file is there, else 0. */
int mg_io_exists(const char *path);
/* MG_IO unless a file could be made at the path now: its folder exists, this process may write to
 * it, and the path is no folder. */
mg_status mg_io_check_creatable(const char *path);

mg_status mg_io_remove(const char *path);
typedef mg_status mg_io_visit(void *context, const char *name, int64_t bytes, int64_t changed);
/* Calls visit for each regular file in a folder, until one call fails, with its name, its size, and
 * the time of its last change in nanoseconds. */
mg_status mg_io_each(const char *folder, mg_io_visit *visit, void *context);

/* The n-th file call from now fails once with errno `error` (ENOSPC, say); 0 switches faults off.
 */
void mg_io_fail_after(int64_t n, int error);
/* Files that are open now. */
int64_t mg_io_open_count(void);

#endif
