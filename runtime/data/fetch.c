/* Calls the download plug-in, in one process at a time, and remembers which files were verified. */
#include "data/fetch.h"
#include "core/alloc.h"
#include "core/io.h"
#include "core/plugin.h"
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { TEXT = 160 }; /* room for the contents of a .verified file */

/* MG_USAGE unless it is NULL or has the digits of a checksum. */
static mg_status check_text(const char *checksum) {
    size_t n = 0;
    while (checksum && isxdigit((unsigned char)checksum[n])) n++;
    if (!checksum || ((n == MG_SHA256_DIGITS || n == MG_MD5_DIGITS) && !checksum[n])) return MG_OK;
    return mg_fail(
        MG_USAGE, "fetch: a checksum is 64 hexadecimal digits (SHA-256) or 32 (MD5), not \"%.80s\"",
        checksum);
}

/* path + ending. Owned (mg_free); NULL: MG_OOM. */
static char *with_ending(const char *path, const char *ending) {
    const size_t n = strlen(path) + strlen(ending) + 1;
    char *text = mg_alloc(n);
    if (text) snprintf(text, n, "%s%s", path, ending);
    return text;
}

/* ---- verified files ---- */

/* Writes "CHECKSUM SIZE TIME" of the file at path: the contents of its note if the file has not
 * changed since it was verified. */
static mg_status describe(const char *path, const char *checksum, char text[TEXT]) {
    mg_io_state now = {0};
    mg_file *f = mg_io_open(path);
    const mg_status status = f ? mg_io_look(f, &now) : mg_error_code();
    mg_io_close(f);
    snprintf(text, TEXT, "%s %" PRId64 " %" PRId64 "\n", checksum, now.bytes, now.changed);
    return status;
}

/* Whether the file `note` holds this text. */
static bool has_text(const char *note, const char *text) {
    char there[TEXT + 1];
    size_t got = 0;
    mg_file *f = mg_io_exists(note) ? mg_io_open(note) : NULL;
    const bool read = f && mg_io_read(f, there, TEXT, &got) == MG_OK;
    mg_io_close(f);
    return read && got == strlen(text) && memcmp(there, text, got) == 0;
}

/* Writes the note; a failure only means that the checksum is computed again. */
static void remember(const char *note, const char *text) {
    mg_file *f = mg_io_create(note);
    if (!f) return;
    if (mg_io_write(f, text, strlen(text)) == MG_OK)
        mg_io_commit(f);
    else
        mg_io_close(f);
}

mg_status mg_fetch_verify(const char *path, const char *checksum, bool *right) {
    char text[TEXT], digits[65];
    const char *why = NULL;
    mg_checksum_function *compute = NULL;
    MG_TRY(check_text(checksum));
    MG_TRY(describe(path, checksum, text));
    char *note = with_ending(path, ".verified");
    if (!note) return MG_OOM;
    mg_status status = MG_OK;
    *right = has_text(note, text);
    if (!*right) {
        *(void **)&compute = mg_plugin_symbol("fetch", MG_CHECKSUM_SYMBOL, &why);
        *right = !compute;
        if (compute) status = compute(path, strlen(checksum), digits);
        if (compute && status == MG_OK) *right = strcasecmp(digits, checksum) == 0;
        if (compute && *right) remember(note, text);
    }
    mg_free(note);
    return status;
}

/* ---- downloads ---- */

/* Downloads, unless another process has done it while this one waited for the lock. */
static mg_status fetch_locked(const mg_download *d, mg_fetch_function *fetch) {
    bool right = false;
    if (d->checksum && mg_io_exists(d->path)) MG_TRY(mg_fetch_verify(d->path, d->checksum, &right));
    if (right) return MG_OK;
    MG_TRY(fetch(d));
    return d->checksum ? mg_fetch_verify(d->path, d->checksum, &right) : MG_OK;
}

/* The checksum's text is checked first, so that a mistake in it costs no download. */
mg_status mg_fetch(const mg_download *d) {
    MG_TRY(check_text(d->checksum));
    const char *why = NULL;
    mg_fetch_function *fetch = NULL;
    *(void **)&fetch = mg_plugin_symbol("fetch", MG_FETCH_SYMBOL, &why);
    if (!fetch)
        return mg_fail(MG_UNSUPPORTED,
                       "cannot download %s: mgpu-fetch.so: %s; install libcurl and build again",
                       d->url, why);
    char *name = with_ending(d->path, ".lock");
    mg_file *lock = name ? mg_io_lock(name) : NULL;
    mg_status status = lock ? fetch_locked(d, fetch) : mg_error_code();
    mg_io_close(lock);
    mg_free(name);
    return status;
}

/* ---- posts ---- */

/* The plug-in's function. NULL: MG_UNSUPPORTED. */
static mg_post_function *find_post(void) {
    const char *why = NULL;
    mg_post_function *post = NULL;
    *(void **)&post = mg_plugin_symbol("fetch", MG_POST_SYMBOL, &why);
    if (!post) mg_fail(MG_UNSUPPORTED, "mgpu-fetch.so: %s; install libcurl and build again", why);
    return post;
}

mg_status mg_can_post(void) {
    return find_post() ? MG_OK : MG_UNSUPPORTED;
}

mg_status mg_post(const mg_post_request *p) {
    mg_post_function *post = find_post();
    return post ? post(p) : MG_UNSUPPORTED;
}
