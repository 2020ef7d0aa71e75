/* Finds the download plug-in and hands it the work. */
#include "data/fetch.h"
#include "core/plugin.h"
#include <ctype.h>
#include <stddef.h>

/* MG_USAGE unless it is NULL or 64 hexadecimal digits. */
static mg_status check_sha256_text(const char *sha256) {
    size_t n = 0;
    while (sha256 && isxdigit((unsigned char)sha256[n])) n++;
    if (!sha256 || (n == 64 && !sha256[n])) return MG_OK;
    return mg_fail(MG_USAGE, "fetch: a SHA-256 is 64 hexadecimal digits, not \"%.80s\"", sha256);
}

/* The checksum's text is checked first, so that a mistake in it costs no download.
 *
 * Without the plug-in, the message tells how to go on by hand. */
mg_status mg_fetch(const char *url, const char *path, const char *sha256) {
    MG_TRY(check_sha256_text(sha256));
    const char *why = NULL;
    mg_fetch_function *fetch = NULL;
    *(void **)&fetch = mg_plugin_symbol("fetch", MG_FETCH_SYMBOL, &why);
    if (fetch) return fetch(url, path, sha256);
    return mg_fail(MG_UNSUPPORTED,
                   "cannot download %s: mgpu-fetch.so: %s; install libcurl and build again, or get "
                   "the file by hand and put it at %s",
                   url, why, path);
}
