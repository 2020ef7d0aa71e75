/* See session.h. */
#include "data/http/session.h"
#include "core/threads.h"
#include <pthread.h>
#include <string.h>

/* A transfer slower than STALL_BYTES per second for STALL_SECONDS is aborted. */
enum { CONNECT_SECONDS = 20, STALL_SECONDS = 30, STALL_BYTES = 100 };

/* libcurl's process-wide state, once. */
static pthread_once_t curl_once = PTHREAD_ONCE_INIT;
static void init_curl(void) {
    curl_global_init(CURL_GLOBAL_DEFAULT);
}

/* libcurl's progress callback, called about once a second, also while nothing arrives. Non-zero
 * ends the transfer: this makes Ctrl-C work. */
static int on_progress(void *context, curl_off_t total, curl_off_t now, curl_off_t up_total,
                       curl_off_t up_now) {
    http_session *s = context;
    (void)total, (void)now, (void)up_total, (void)up_now;
    if (!mg_interrupt_pending() || !mg_interrupt_take()) return 0;
    s->refused = mg_fail(MG_INTERRUPTED, "interrupted");
    return 1;
}

/* libcurl 7.85 has new options for protocols. */
void http_allow(CURL *curl, const char *protocols) {
#if LIBCURL_VERSION_NUM >= 0x075500
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, protocols);
    curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR, "https");
#else
    const long files = strstr(protocols, "file") ? CURLPROTO_FILE : 0;
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS, CURLPROTO_HTTP | CURLPROTO_HTTPS | files);
    curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS, CURLPROTO_HTTPS);
#endif
}

mg_status http_open(http_session *s, const char *url) {
    pthread_once(&curl_once, init_curl);
    *s = (http_session){.curl = curl_easy_init()};
    if (!s->curl) return mg_fail(MG_INTERNAL, "cannot start libcurl");
    curl_easy_setopt(s->curl, CURLOPT_URL, url);
    http_allow(s->curl, "http,https,file");
    curl_easy_setopt(s->curl, CURLOPT_FAILONERROR, 1L);
    curl_easy_setopt(s->curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(s->curl, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_SECONDS);
    curl_easy_setopt(s->curl, CURLOPT_LOW_SPEED_TIME, (long)STALL_SECONDS);
    curl_easy_setopt(s->curl, CURLOPT_LOW_SPEED_LIMIT, (long)STALL_BYTES);
    curl_easy_setopt(s->curl, CURLOPT_USERAGENT, "mgpulua");
    curl_easy_setopt(s->curl, CURLOPT_ERRORBUFFER, s->reason);
    curl_easy_setopt(s->curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(s->curl, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(s->curl, CURLOPT_XFERINFODATA, s);
    return MG_OK;
}

/* Fails if the server does, if a callback does, or if the transfer stalls. */
mg_status http_run(http_session *s, const char *verb, const char *url) {
    const CURLcode code = curl_easy_perform(s->curl);
    if (code == CURLE_OK) return MG_OK;
    if (s->refused != MG_OK) return s->refused;
    return mg_fail(MG_IO, "%s %s: %s", verb, url,
                   s->reason[0] ? s->reason : curl_easy_strerror(code));
}

void http_close(http_session *s) {
    curl_easy_cleanup(s->curl);
}
