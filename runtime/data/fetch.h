/* Downloads, and files that are known by their SHA-256. Network and checksum are in a plug-in,
 * mgpu-fetch.so, which is opened when it is first needed: the library itself depends on neither. */
#ifndef MG_DATA_FETCH_H
#define MG_DATA_FETCH_H

#include "core/status.h"
#include <stdbool.h>
#include <stdint.h>

/* What to download, and where to. */
typedef struct mg_download {
    const char *url, *path;
    const char *sha256; /* 64 hex digits; NULL: not checked */
    int64_t bytes;      /* the file's size, beyond which the download is given up; 0: unknown */
} mg_download;

/* Downloads a file, which is then complete and has the checksum; otherwise nothing is left at
 * path. If another process is at it, waits, and takes over what that has downloaded. MG_IO: the
 * download failed, MG_DATA: another size or checksum, MG_UNSUPPORTED: the plug-in is not installed,
 * MG_INTERRUPTED. */
mg_status mg_fetch(const mg_download *d);

/* Sets *right to whether a file that is there has the checksum. It is computed once: a file
 * PATH.verified remembers it, with the size and the time of the last change that the file had then.
 * Without the plug-in every file is taken for right. MG_IO. */
mg_status mg_fetch_verify(const char *path, const char *sha256, bool *right);

/* What the plug-in exports: the download itself, and the SHA-256 of a file as 64 hex digits. */
typedef mg_status mg_fetch_function(const mg_download *d);
typedef mg_status mg_sha256_function(const char *path, char digits[65]);
#define MG_FETCH_SYMBOL "mg_fetch_plugin"
#define MG_SHA256_SYMBOL "mg_sha256_plugin"

#endif
