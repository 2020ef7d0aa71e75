/* The archive of a packed program: a zip with the script, its modules, models and data, and the Lua
 * files of mgpu, in memory.
 *
 *     files/NAME          what the script opens as NAME
 *     mgpulua/lua/...     the Lua files of mgpu, and mgpulua/models/ the zoo
 *     mgpulua/plugins/    plug-ins, mgpu-NAME.so
 *     mgpulua/manifest    lines of fields between tabs: "script NAME", "module NAME FILE",
 *                         "plugin NAME"; written by lua/mgpu/pack/contents.lua
 *
 * The files below files/ and mgpulua/ become the files inside of the program (core/io_packed.h):
 * the latter have names that begin with "mgpulua:/". Checksums are compared at the first use. */
#ifndef MG_PACK_ARCHIVE_H
#define MG_PACK_ARCHIVE_H

#include "core/status.h"
#include <stdbool.h>
#include <stddef.h>

/* Where Lua finds the files of mgpu. */
#define MG_PACK_ROOT "mgpulua:"

/* Opens the archive, which must stay in memory; `who` is the file's name in messages, `folder` that
 * of mg_packed_set, or NULL. Once in a process. MG_DATA: damaged; MG_OOM. */
mg_status mg_archive_open(const void *bytes, size_t size, const char *who, const char *folder);

/* One line of the manifest, cut into its fields. */
typedef struct mg_manifest_line {
    const char *kind, *name, *file; /* borrowed; "" where there are fewer fields */
} mg_manifest_line;
/* The i-th line, from 0, in *line; false behind the last. */
bool mg_archive_manifest(size_t i, mg_manifest_line *line);

/* The contents of a file inside of the program; NULL: there is none of this name, or an error is
 * stored (mg_error_code() is not MG_OK). Borrowed. */
const void *mg_archive_file(const char *path, size_t *size);
/* Frees the unpacked contents of a file that nobody uses any more. */
void mg_archive_forget(const char *path);

#endif
