/* The part of mgpu-fetch.so that posts: see mg_post in fetch.h. */
#include "data/fetch.h"
#include "data/http/session.h"

/* The whole exchange; the server may take this long to answer. */
enum { POST_SECONDS = 60 };

/* The answer's body is not looked at. */
static size_t drop_bytes(char *bytes, size_t size, size_t n, void *context) {
    (void)bytes, (void)context;
    return size * n;
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

mg_post_function mg_post_plugin;
mg_status mg_post_plugin(const mg_post_request *p) {
    http_session s = {0};
    struct curl_slist *headers = NULL;
    mg_status status = http_open(&s, p->url);
    if (status == MG_OK) status = list_headers(p, &headers);
    if (status == MG_OK) {
        curl_easy_setopt(s.curl, CURLOPT_POSTFIELDS, p->body);
        curl_easy_setopt(s.curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)p->n);
        curl_easy_setopt(s.curl, CURLOPT_HTTPHEADER, headers);
        curl_easy_setopt(s.curl, CURLOPT_TIMEOUT, (long)POST_SECONDS);
        curl_easy_setopt(s.curl, CURLOPT_WRITEFUNCTION, drop_bytes);
        status = http_run(&s, "cannot post to", p->url);
    }
    curl_slist_free_all(headers);
    http_close(&s);
    return status;
}
