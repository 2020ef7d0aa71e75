/* Downloads, files that are known by their checksum, and posts. Network and checksum are in a
 * plug-in, mgpu-fetch.so, which is opened when it is first needed: the library itself depends on
 * neither. */
#ifndef MG_DATA_FETCH_H
#define MG_DATA_FETCH_H

#include "core/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What to download, and where to. */
typedef struct mg_download {
    const char *url, *path;
    /* 64 hex digits of a SHA-256 or, if the publisher gives only that, 32 of an MD5. NULL: not
     * checked. */
    const char *checksum;
    int64_t bytes; /* the file's size, a longer download is refused; 0: unknown */
} mg_download;

/* Downloads a file, which is then complete and has the checksum; otherwise nothing is left at path.
 * If another process is downloading it, waits and uses that file. MG_IO: the download failed,
 * MG_DATA: another size or checksum, MG_UNSUPPORTED: the plug-in is not installed,
 * MG_INTERRUPTED. */
mg_status mg_fetch(const mg_download *d);

/* Sets *right to whether an existing file has the checksum. The checksum is computed once: a file
 * PATH.verified stores it, with the file's size and time of change. Without the plug-in every file
 * is accepted. MG_IO. */
mg_status mg_fetch_verify(const char *path, const char *checksum, bool *right);

/* What to post, and where to. */
typedef struct mg_post_request {
    const char *url, *body;
    size_t n;                   /* bytes of the body */
    const char *const *headers; /* "Name: value" each */
    size_t n_headers;
} mg_post_request;

/* Posts the body and waits for the answer, a minute at most. MG_IO: the server cannot be reached,
 * or does not answer, or with an error; MG_UNSUPPORTED: the plug-in is not installed;
 * MG_INTERRUPTED. */
mg_status mg_post(const mg_post_request *p);

/* Whether the plug-in is installed. MG_UNSUPPORTED says why not. */
mg_status mg_can_post(void);

/* The digits of the two checksums. */
enum { MG_SHA256_DIGITS = 64, MG_MD5_DIGITS = 32 };

/* What the plug-in exports: the download itself, and the checksum of a file with the given number
 * of hex digits. */
typedef mg_status mg_fetch_function(const mg_download *d);
typedef mg_status mg_checksum_function(const char *path, size_t n, char digits[65]);
typedef mg_status mg_post_function(const mg_post_request *p);
#define MG_FETCH_SYMBOL "mg_fetch_plugin"
#define MG_POST_SYMBOL "mg_post_plugin"
#define MG_CHECKSUM_SYMBOL "mg_checksum_plugin"

#endif
