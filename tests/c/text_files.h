/* The temporary folder of a test, whose path is in `folder`, and files of text in it; to be
 * included below `folder`. */
#ifndef MG_TEST_TEXT_FILES_H
#define MG_TEST_TEXT_FILES_H

#include "core/alloc.h"
#include "core/io.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Setup of the group: makes the temporary folder. */
static int open_folder(void **state) {
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

/* Teardown: fails if memory or an open file is left. */
static int remove_folder(void **state) {
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", folder);
    if (system(command) != 0) return -1;
    return mg_alloc_get_stats().live_blocks == 0 && mg_io_open_count() == 0 ? 0 : -1;
}

/* A path in the tests' folder. The text is valid until the eighth call after this one. */
static const char *in_folder(const char *name) {
    static char paths[8][256];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

/* Writes the text byte by byte, so that a failure can hit the middle of a file, and commits it;
 * gives the file up after a failure. With `reserve`, the file's blocks are allocated first. */
static mg_status write_bytes(const char *path, const char *text, bool reserve) {
    mg_file *f = mg_io_create(path);
    if (!f) return mg_error_code();
    mg_status status = reserve ? mg_io_reserve(f, (int64_t)strlen(text)) : MG_OK;
    for (const char *p = text; *p && status == MG_OK; p++) status = mg_io_write(f, p, 1);
    if (status == MG_OK) return mg_io_commit(f);
    mg_io_close(f);
    return status;
}

#endif
