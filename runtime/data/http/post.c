/* The part of mgpu-fetch.so that posts: see mg_post in fetch.h. */
#include "data/fetch.h"
#include "data/http/session.h"

/* The whole exchange; the server may take this long to answer. */
enum { POST_SECONDS = 60, MOST_ANSWER = 1 << 20 };

typedef struct post {
    const char *url;
    http_session http; /* owned */
    size_t received;   /* bytes of the answer */
} post;

/* The answer's body is not looked at. */
static size_t drop_bytes(char *bytes, size_t size, size_t n, void *context) {
    post *p = context;
    (void)bytes;
    p->received += size * n;
    if (p->received <= MOST_ANSWER) return size * n;
    p->http.refused =
        mg_fail(MG_IO, "cannot post to %s: the answer has more than %d bytes", p->url, MOST_ANSWER);
    return 0;
}

static mg_status out_of_memory(void) {
    return mg_fail(MG_OOM, "out of memory for the headers");
}

/* The headers as libcurl's list. Owned (curl_slist_free_all); MG_OOM. */
static mg_status list_headers(const mg_post_request *p, struct curl_slist **list) {
    for (size_t i = 0; i < p->n_headers; i++) {
        struct curl_slist *longer = curl_slist_append(*list, p->headers[i]);
        if (!longer) return out_of_memory();
        *list = longer;
    }
    return MG_OK;
}

/* Redirects are not followed: libcurl and others then drop the body. */
static mg_status check_answer(const post *p) {
    long code = 0;
    curl_easy_getinfo(p->http.curl, CURLINFO_RESPONSE_CODE, &code);
    if (code >= 200 && code < 300) return MG_OK;
    return mg_fail(MG_IO, "cannot post to %s: the server answers %ld%s", p->url, code,
                   code >= 300 ? ", a redirect: use the address that it leads to" : "");
}

static mg_status run_post(post *p, const mg_post_request *request, struct curl_slist *headers) {
    CURL *curl = p->http.curl;
    http_allow(curl, "http,https");
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, request->body);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->n);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, 0L); /* servers may think */
    curl_easy_setopt(curl, CURLOPT_TIMEOUT, (long)POST_SECONDS);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, drop_bytes);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, p);
    MG_TRY(http_run(&p->http, "cannot post to", p->url));
    return check_answer(p);
}

mg_post_function mg_post_plugin;
mg_status mg_post_plugin(const mg_post_request *request) {
    post p = {.url = request->url};
    struct curl_slist *headers = NULL;
    mg_status status = http_open(&p.http, p.url);
    if (status == MG_OK) status = list_headers(request, &headers);
    if (status == MG_OK) status = run_post(&p, request, headers);
    curl_slist_free_all(headers);
    http_close(&p.http);
    return status;
}
