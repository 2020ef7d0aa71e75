/* mgpu-fetch.so: downloads with libcurl, checksums with libcrypto.
 *
 * The bytes go to a temporary file and through SHA-256 as they arrive. The file gets its name only
 * when it is complete and the checksum is right. */
#include "core/io.h"
#include "core/threads.h"
#include "data/fetch.h"
#include <curl/curl.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <strings.h>

/* A transfer of fewer than STALL_BYTES a second for STALL_SECONDS is given up. */
enum { CONNECT_SECONDS = 20, STALL_SECONDS = 30, STALL_BYTES = 100, MAX_REDIRECTS = 10 };

typedef struct download {
    const char *url, *path, *sha256;
    mg_file *file;     /* owned */
    EVP_MD_CTX *sum;   /* owned */
    CURL *curl;        /* owned */
    mg_status refused; /* the status with which a callback ended the transfer */
} download;

/* libcurl's write callback: returns how many bytes were taken; fewer than given ends the transfer.
 */
static size_t on_bytes(char *bytes, size_t size, size_t n, void *context) {
    download *d = context;
    n *= size;
    d->refused = mg_io_write(d->file, bytes, n);
    if (d->refused == MG_OK && EVP_DigestUpdate(d->sum, bytes, n) != 1)
        d->refused = mg_fail(MG_INTERNAL, "libcrypto cannot compute a SHA-256");
    return d->refused == MG_OK ? n : 0;
}

/* libcurl's progress callback, called about once a second, also while nothing arrives: non-zero
 * ends the transfer, so that Ctrl-C does. */
static int on_progress(void *context, curl_off_t total, curl_off_t now, curl_off_t up_total,
                       curl_off_t up_now) {
    download *d = context;
    (void)total, (void)now, (void)up_total, (void)up_now;
    if (!mg_interrupt_pending() || !mg_interrupt_take()) return 0;
    d->refused = mg_fail(MG_INTERRUPTED, "interrupted");
    return 1;
}

/* No other protocol, and no redirect to a local file. libcurl 7.85 renamed the options. */
static void set_protocols(CURL *curl) {
#if LIBCURL_VERSION_NUM >= 0x075500
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https,file");
    curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
#else
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS, CURLPROTO_HTTP | CURLPROTO_HTTPS | CURLPROTO_FILE);
    curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS, CURLPROTO_HTTP | CURLPROTO_HTTPS);
#endif
}

/* Transfers the body of d->url through on_bytes. */
static mg_status run_transfer(download *d) {
    char reason[CURL_ERROR_SIZE] = "";
    CURL *curl = d->curl;
    curl_easy_setopt(curl, CURLOPT_URL, d->url);
    set_protocols(curl);
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(curl, CURLOPT_MAXREDIRS, (long)MAX_REDIRECTS);
    curl_easy_setopt(curl, CURLOPT_FAILONERROR, 1L);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_SECONDS);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, (long)STALL_SECONDS);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, (long)STALL_BYTES);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "mgpulua");
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, reason);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_bytes);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, d);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, d);
    /* fails if the server does, if a callback does, or if the transfer stalls */
    const CURLcode code = curl_easy_perform(curl);
    if (code == CURLE_OK) return MG_OK;
    if (d->refused != MG_OK) return d->refused;
    return mg_fail(MG_IO, "cannot download %s: %s; get the file by hand and put it at %s", d->url,
                   reason[0] ? reason : curl_easy_strerror(code), d->path);
}

/* MG_DATA if the checksum is another than d->sha256. */
static mg_status check_sha256(download *d) {
    unsigned char raw[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    char text[2 * EVP_MAX_MD_SIZE + 1] = "";
    if (EVP_DigestFinal_ex(d->sum, raw, &n) != 1)
        return mg_fail(MG_INTERNAL, "libcrypto cannot compute a SHA-256");
    for (unsigned i = 0; i < n; i++) snprintf(text + 2 * i, 3, "%02x", raw[i]);
    if (!d->sha256 || strcasecmp(text, d->sha256) == 0) return MG_OK;
    return mg_fail(MG_DATA,
                   "%s has the SHA-256 %s, expected %s: the file is not kept; get the right one "
                   "by hand and put it at %s",
                   d->url, text, d->sha256, d->path);
}

/* libcurl's process-wide state, once. */
static pthread_once_t curl_once = PTHREAD_ONCE_INIT;
static void init_curl(void) {
    curl_global_init(CURL_GLOBAL_DEFAULT);
}

/* See mg_fetch in fetch.h.
 *
 * The temporary file is removed on every failure, by mg_io_close. */
mg_fetch_function mg_fetch_plugin;
mg_status mg_fetch_plugin(const char *url, const char *path, const char *sha256) {
    pthread_once(&curl_once, init_curl);
    download d = {.url = url, .path = path, .sha256 = sha256};
    d.curl = curl_easy_init();
    d.sum = EVP_MD_CTX_new();
    mg_status status = MG_OK;
    if (!d.curl || !d.sum || EVP_DigestInit_ex(d.sum, EVP_sha256(), NULL) != 1)
        status = mg_fail(MG_INTERNAL, "cannot start libcurl or libcrypto");
    if (status == MG_OK) {
        d.file = mg_io_create(path);
        if (!d.file) status = mg_error_code();
    }
    if (status == MG_OK) status = run_transfer(&d);
    if (status == MG_OK) status = check_sha256(&d);
    if (status == MG_OK)
        status = mg_io_commit(d.file);
    else
        mg_io_close(d.file);
    EVP_MD_CTX_free(d.sum);
    curl_easy_cleanup(d.curl);
    return status;
}
