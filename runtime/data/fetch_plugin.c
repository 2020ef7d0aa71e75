/* mgpu-fetch.so: downloads with libcurl, checksums with libcrypto.
 *
 * The bytes go to a temporary file and through SHA-256 as they arrive. The file gets its name only
 * when it is complete and the checksum is right. */
#include "core/alloc.h"
#include "core/io.h"
#include "data/fetch.h"
#include "data/http/session.h"
#include <openssl/evp.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { MAX_REDIRECTS = 10, CHUNK = 256 << 10 };

typedef struct download {
    const mg_download *wanted;
    mg_file *file;     /* owned */
    int64_t received;  /* bytes */
    EVP_MD_CTX *sum;   /* owned */
    http_session http; /* owned */
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
        d->http.refused =
            mg_fail(MG_DATA, "cannot download %s: it has more than the expected %lld bytes",
                    d->wanted->url, (long long)d->wanted->bytes);
    else
        d->http.refused = mg_io_write(d->file, bytes, n);
    if (d->http.refused == MG_OK && EVP_DigestUpdate(d->sum, bytes, n) != 1)
        d->http.refused = fail_crypto();
    return d->http.refused == MG_OK ? n : 0;
}

/* Transfers the body of the URL through on_bytes. */
static mg_status run_transfer(download *d) {
    CURL *curl = d->http.curl;
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(curl, CURLOPT_MAXREDIRS, (long)MAX_REDIRECTS);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_bytes);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, d);
    return http_run(&d->http, "cannot download", d->wanted->url);
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

/* See mg_fetch in fetch.h.
 *
 * The new file is thrown away on every failure, by mg_io_close. */
mg_fetch_function mg_fetch_plugin;
mg_status mg_fetch_plugin(const mg_download *wanted) {
    download d = {.wanted = wanted};
    mg_status status = http_open(&d.http, wanted->url);
    d.sum = EVP_MD_CTX_new();
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
    http_close(&d.http);
    return status;
}
