/* mgpu-fetch.so: downloads with libcurl, checksums with libcrypto.
 *
 * The bytes go to a temporary file and through SHA-256 as they arrive. The file gets its name only
 * when it is complete and the checksum is right. */
#include "core/alloc.h"
#include "core/io.h"
#include "core/threads.h"
#include "data/fetch.h"
#include <curl/curl.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* A transfer slower than STALL_BYTES per second for STALL_SECONDS is aborted. */
enum {
    CONNECT_SECONDS = 20,
    STALL_SECONDS = 30,
    STALL_BYTES = 100,
    MAX_REDIRECTS = 10,
    CHUNK = 256 << 10
};

typedef struct download {
    const mg_download *wanted;
    mg_file *file;     /* owned */
    int64_t received;  /* bytes */
    EVP_MD_CTX *sum;   /* owned */
    CURL *curl;        /* owned */
    mg_status refused; /* the status with which a callback ended the transfer */
} download;

static mg_status fail_crypto(void) {
    return mg_fail(MG_INTERNAL, "libcrypto cannot compute a SHA-256");
}

/* libcurl's write callback: returns how many bytes were taken; fewer than given ends the transfer.
 */
static size_t on_bytes(char *bytes, size_t size, size_t n, void *context) {
    download *d = context;
    n *= size;
    d->received += (int64_t)n;
    if (d->wanted->bytes && d->received > d->wanted->bytes)
        d->refused =
            mg_fail(MG_DATA, "cannot download %s: it has more than the expected %lld bytes",
                    d->wanted->url, (long long)d->wanted->bytes);
    else
        d->refused = mg_io_write(d->file, bytes, n);
    if (d->refused == MG_OK && EVP_DigestUpdate(d->sum, bytes, n) != 1) d->refused = fail_crypto();
    return d->refused == MG_OK ? n : 0;
}

/* libcurl's progress callback, called about once a second, also while nothing arrives. Non-zero
 * ends the transfer: this makes Ctrl-C work. */
static int on_progress(void *context, curl_off_t total, curl_off_t now, curl_off_t up_total,
                       curl_off_t up_now) {
    download *d = context;
    (void)total, (void)now, (void)up_total, (void)up_now;
    if (!mg_interrupt_pending() || !mg_interrupt_take()) return 0;
    d->refused = mg_fail(MG_INTERRUPTED, "interrupted");
    return 1;
}

/* Allows only the expected protocols, and redirects only to https: not to local files or
 * unencrypted connections. libcurl 7.85 renamed the options. */
static void set_protocols(CURL *curl) {
#if LIBCURL_VERSION_NUM >= 0x075500
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https,file");
    curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR, "https");
#else
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS, CURLPROTO_HTTP | CURLPROTO_HTTPS | CURLPROTO_FILE);
    curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS, CURLPROTO_HTTPS);
#endif
}

/* Transfers the body of the URL through on_bytes. */
static mg_status run_transfer(download *d) {
    char reason[CURL_ERROR_SIZE] = "";
    CURL *curl = d->curl;
    curl_easy_setopt(curl, CURLOPT_URL, d->wanted->url);
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
    return mg_fail(MG_IO, "cannot download %s: %s", d->wanted->url,
                   reason[0] ? reason : curl_easy_strerror(code));
}

/* Begins the computation of the checksum of n hex digits. */
static mg_status start_sum(EVP_MD_CTX *sum, size_t n) {
    const EVP_MD *kind = n == MG_MD5_DIGITS ? EVP_md5() : EVP_sha256();
    return sum && EVP_DigestInit_ex(sum, kind, NULL) == 1 ? MG_OK : fail_crypto();
}

/* Ends the computation and writes the sum's digits. */
static mg_status finish_sum(EVP_MD_CTX *sum, char digits[65]) {
    unsigned char raw[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    if (EVP_DigestFinal_ex(sum, raw, &n) != 1 || n > 32) return fail_crypto();
    for (unsigned i = 0; i < n; i++) snprintf(digits + 2 * i, 3, "%02x", raw[i]);
    return MG_OK;
}

/* MG_DATA if the size or the checksum differs from the expected one. */
static mg_status check_file(download *d) {
    char digits[65];
    const mg_download *wanted = d->wanted;
    MG_TRY(finish_sum(d->sum, digits));
    if (wanted->bytes && d->received != wanted->bytes)
        return mg_fail(MG_DATA, "cannot download %s: it has %lld bytes, expected %lld", wanted->url,
                       (long long)d->received, (long long)wanted->bytes);
    if (!wanted->checksum || strcasecmp(digits, wanted->checksum) == 0) return MG_OK;
    return mg_fail(MG_DATA, "cannot download %s: it has the %s %s, expected %s", wanted->url,
                   strlen(digits) == MG_MD5_DIGITS ? "MD5" : "SHA-256", digits, wanted->checksum);
}

/* See fetch.h. */
mg_checksum_function mg_checksum_plugin;
mg_status mg_checksum_plugin(const char *path, size_t n, char digits[65]) {
    size_t got = 1;
    mg_file *f = mg_io_open(path);
    unsigned char *chunk = f ? mg_alloc(CHUNK) : NULL;
    EVP_MD_CTX *sum = chunk ? EVP_MD_CTX_new() : NULL;
    mg_status status = chunk ? MG_OK : mg_error_code();
    if (chunk) status = start_sum(sum, n);
    while (status == MG_OK && got) {
        status = mg_io_read(f, chunk, CHUNK, &got);
        if (status == MG_OK && EVP_DigestUpdate(sum, chunk, got) != 1) status = fail_crypto();
    }
    if (status == MG_OK) status = finish_sum(sum, digits);
    EVP_MD_CTX_free(sum);
    mg_free(chunk);
    mg_io_close(f);
    return status;
}

/* libcurl's process-wide state, once. */
static pthread_once_t curl_once = PTHREAD_ONCE_INIT;
static void init_curl(void) {
    curl_global_init(CURL_GLOBAL_DEFAULT);
}

/* See mg_fetch in fetch.h.
 *
 * The new file is thrown away on every failure, by mg_io_close. */
mg_fetch_function mg_fetch_plugin;
mg_status mg_fetch_plugin(const mg_download *wanted) {
    pthread_once(&curl_once, init_curl);
    download d = {.wanted = wanted};
    d.curl = curl_easy_init();
    d.sum = EVP_MD_CTX_new();
    mg_status status = MG_OK;
    if (!d.curl) status = mg_fail(MG_INTERNAL, "cannot start libcurl");
    if (status == MG_OK)
        status = start_sum(d.sum, wanted->checksum ? strlen(wanted->checksum) : MG_SHA256_DIGITS);
    if (status == MG_OK) {
        d.file = mg_io_create(wanted->path);
        if (!d.file) status = mg_error_code();
    }
    if (status == MG_OK) status = run_transfer(&d);
    if (status == MG_OK) status = check_file(&d);
    if (status == MG_OK)
        status = mg_io_commit(d.file);
    else
        mg_io_close(d.file);
    EVP_MD_CTX_free(d.sum);
    curl_easy_cleanup(d.curl);
    return status;
}
