/* Hands downloads to the plug-in. */
#include "data/fetch.h"
#include "core/plugin.h"
#include <ctype.h>
#include <stddef.h>

static mg_status check_sum_text(const char *sha256) {
    size_t n = 0;
    while (sha256 && isxdigit((unsigned char)sha256[n])) n++;
    if (!sha256 || (n == 64 && !sha256[n])) return MG_OK;
    return mg_fail(MG_USAGE, "fetch: a SHA-256 is 64 hexadecimal digits, not \"%.80s\"", sha256);
}

mg_status mg_fetch(const char *url, const char *path, const char *sha256) {
    MG_TRY(check_sum_text(sha256));
    const char *why = NULL;
    mg_fetch_function *fetch = NULL;
    *(void **)&fetch = mg_plugin_symbol("fetch", MG_FETCH_SYMBOL, &why);
    if (fetch) return fetch(url, path, sha256);
    return mg_fail(MG_UNSUPPORTED,
                   "cannot download %s: mgpu-fetch.so: %s; install libcurl and build again, or get "
                   "the file by "
                   "hand and put it at %s",
                   url, why, path);
}
