/* What libmicrohttpd calls for a request: once when its headers have come, for each piece of its
 * body, and again until there is an answer. */
#include "server/httpd/httpd.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LEAST_BODY = 4096,
    BODIES = 8,          /* of the largest size may be in memory at a time */
    DRAINED = 256 << 10, /* bytes of a refused body that are read, so that the client gets to
                            reading the answer */
    SLOWEST = 64 << 10   /* bytes of a body in a second */
};

static void refuse(exchange *e, unsigned status, const char *reason) {
    e->status = status;
    e->reason = reason;
}

/* ---- answers ---- */

struct MHD_Response *httpd_new_answer(const char *type, const void *bytes, size_t n) {
    static const char *const headers[][2] = {{"Cache-Control", "no-store"},
                                             {"X-Content-Type-Options", "nosniff"},
                                             {"Referrer-Policy", "no-referrer"}};
    struct MHD_Response *answer =
        MHD_create_response_from_buffer(n, (void *)(uintptr_t)bytes, MHD_RESPMEM_MUST_COPY);
    bool made = answer != NULL;
    for (size_t i = 0; made && i < sizeof headers / sizeof *headers; i++)
        made = MHD_add_response_header(answer, headers[i][0], headers[i][1]) == MHD_YES;
    if (made && type)
        made = MHD_add_response_header(answer, MHD_HTTP_HEADER_CONTENT_TYPE, type) == MHD_YES;
    if (made) return answer;
    if (answer) MHD_destroy_response(answer);
    mg_fail(MG_OOM, "server: out of memory for an answer of %zu bytes", n);
    return NULL;
}

/* Makes the answer of a refusal: its reason as JSON, in the form of KServe. Reasons are literals
 * without quotes. NULL: out of memory. */
static struct MHD_Response *new_refusal(const exchange *e) {
    char text[256];
    snprintf(text, sizeof text, "{\"error\":\"%s\"}\n", e->reason);
    struct MHD_Response *answer = httpd_new_answer("application/json", text, strlen(text));
    if (answer && e->status == MHD_HTTP_METHOD_NOT_ALLOWED)
        MHD_add_response_header(answer, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    if (answer && e->status == MHD_HTTP_UNAUTHORIZED)
        MHD_add_response_header(answer, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
    if (answer && e->status == MHD_HTTP_SERVICE_UNAVAILABLE)
        MHD_add_response_header(answer, MHD_HTTP_HEADER_RETRY_AFTER, "1");
    return answer;
}

/* Sends the answer, or the refusal. */
static enum MHD_Result send_answer(exchange *e) {
    if (!e->answer) e->answer = new_refusal(e);
    if (!e->answer) return MHD_NO;
    return MHD_queue_response(e->connection, e->status, e->answer);
}

/* ---- the body ---- */

/* The length that the headers give; -1: they give none. */
static double given_length(const exchange *e) {
    const char *text =
        MHD_lookup_connection_value(e->connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);
    return text ? strtod(text, NULL) : -1;
}

static void drop_body(exchange *e) {
    if (!e->body) return;
    pthread_mutex_lock(&e->server->lock);
    e->server->held -= e->room;
    pthread_mutex_unlock(&e->server->lock);
    mg_free(e->body);
    e->body = NULL;
    e->n = e->room = 0;
}

/* Makes room for `least` bytes; what the server holds of all bodies is limited. */
static bool grow_body(exchange *e, size_t least) {
    mg_server *s = e->server;
    const size_t doubled = 2 * e->room > LEAST_BODY ? 2 * e->room : LEAST_BODY;
    const size_t wanted = doubled > least ? doubled : least;
    const size_t room = wanted < s->body_bytes ? wanted : s->body_bytes;
    pthread_mutex_lock(&s->lock);
    const bool fits = s->held + (room - e->room) <= BODIES * s->body_bytes;
    if (fits) s->held += room - e->room;
    pthread_mutex_unlock(&s->lock);
    char *body = fits ? mg_realloc(e->body, room) : NULL;
    if (!body) {
        refuse(e, MHD_HTTP_SERVICE_UNAVAILABLE, "the server has too many requests in memory");
        if (fits) {
            pthread_mutex_lock(&s->lock);
            s->held -= room - e->room;
            pthread_mutex_unlock(&s->lock);
        }
        return false;
    }
    e->body = body;
    e->room = room;
    return true;
}

/* A piece of the body. libmicrohttpd takes no answer before the body has ended; a client that goes
 * on sending what is refused is dropped. */
static enum MHD_Result take_piece(exchange *e, const char *data, size_t n) {
    const mg_server *s = e->server;
    if (e->keeps_body && !e->status && n > s->body_bytes - e->n)
        refuse(e, MHD_HTTP_CONTENT_TOO_LARGE, "the body is too large");
    if (e->keeps_body && !e->status && (e->n + n <= e->room || grow_body(e, e->n + n))) {
        memcpy(e->body + e->n, data, n);
        e->n += n;
        return MHD_YES;
    }
    drop_body(e);
    e->dropped += n;
    return e->dropped > s->body_bytes + DRAINED ? MHD_NO : MHD_YES;
}

/* ---- a request ---- */

/* Called with the first line, "GET" left out: the path as it was sent. */
void *httpd_on_line(void *server, const char *line, struct MHD_Connection *connection) {
    (void)connection;
    exchange *e = mg_alloc_zero(sizeof *e);
    if (!e) return NULL;
    e->server = server;
    e->has_zero = strstr(line, "%00") != NULL;
    return e;
}

/* Whether the program answers at the path; otherwise the server does, and needs no body. */
static void choose_who_answers(exchange *e, const char *path) {
    mg_server *s = e->server;
    pthread_mutex_lock(&s->lock);
    e->for_program = s->has_requests && !httpd_find_document(s, path) && !httpd_find_log(s, path);
    e->keeps_body = e->for_program && !e->status;
    s->busy++;
    e->is_counted = true;
    if (e->for_program && s->stopping && !e->status)
        refuse(e, MHD_HTTP_SERVICE_UNAVAILABLE, "the server is stopping");
    pthread_mutex_unlock(&s->lock);
}

/* The headers have come. A large body that will not be used is not read. */
static enum MHD_Result begin(exchange *e, struct MHD_Connection *connection, const char *path,
                             const char *method, const char *version) {
    const mg_server *s = e->server;
    e->connection = connection;
    e->client = httpd_client_of(connection);
    httpd_guard(e, version, method);
    choose_who_answers(e, path);
    const double length = given_length(e), most = (double)s->body_bytes;
    if (!e->status && length > most) refuse(e, MHD_HTTP_CONTENT_TOO_LARGE, "the body is too large");
    if (e->status && length > DRAINED) return send_answer(e);
    if (!e->status && e->keeps_body && length > 0) grow_body(e, (size_t)length);
    const double bytes = length < 0 ? most : length;
    pthread_mutex_lock(&e->server->lock);
    if (e->client) e->client->deadline = mg_seconds() + 2 * s->idle_seconds + bytes / SLOWEST;
    pthread_mutex_unlock(&e->server->lock);
    return MHD_YES;
}

/* Finds the answer, or suspends the request. Locked. */
static void find_answer(exchange *e, const char *method, const char *path) {
    const mg_server *s = e->server;
    const document *d = httpd_find_document(s, path);
    const growing_log *l = d ? NULL : httpd_find_log(s, path);
    if ((d || l) && strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
        refuse(e, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET and HEAD");
    else if (l)
        httpd_answer_log(e, l);
    else if (!d && !e->for_program)
        refuse(e, MHD_HTTP_NOT_FOUND, "there is nothing at this path");
    else if (!d && s->closing)
        refuse(e, MHD_HTTP_SERVICE_UNAVAILABLE, "the server is stopping");
    else if (!d && !httpd_hand_over(e, method, path))
        refuse(e, MHD_HTTP_SERVICE_UNAVAILABLE, "out of memory");
}

/* The request is complete, or was resumed. The lock is held while a document is queued, because it
 * may be replaced. */
static enum MHD_Result answer(exchange *e, const char *method, const char *path) {
    mg_server *s = e->server;
    enum MHD_Result result = MHD_YES;
    pthread_mutex_lock(&s->lock);
    if (e->client) e->client->deadline = INFINITY;
    if (!e->status) find_answer(e, method, path);
    const bool is_known = e->status != 0;
    const document *d = is_known ? NULL : httpd_find_document(s, path);
    if (d) result = MHD_queue_response(e->connection, MHD_HTTP_OK, d->bytes);
    pthread_mutex_unlock(&s->lock);
    return is_known ? send_answer(e) : result;
}

enum MHD_Result httpd_on_request(void *server, struct MHD_Connection *connection, const char *path,
                                 const char *method, const char *version, const char *data,
                                 size_t *n, void **context) {
    exchange *e = *context;
    (void)server;
    if (!e) return MHD_NO; /* out of memory */
    if (!e->connection) return begin(e, connection, path, method, version);
    if (!*n) return answer(e, method, path);
    const enum MHD_Result result = take_piece(e, data, *n);
    *n = 0;
    return result;
}

/* The answer was sent, or the client has gone. */
void httpd_on_end(void *server, struct MHD_Connection *connection, void **context,
                  enum MHD_RequestTerminationCode how) {
    mg_server *s = server;
    exchange *e = *context;
    (void)connection, (void)how;
    if (!e) return;
    drop_body(e);
    pthread_mutex_lock(&s->lock);
    if (e->client) e->client->deadline = mg_seconds() + 2 * s->idle_seconds;
    if (e->is_counted && --s->busy == 0) pthread_cond_signal(&s->drained);
    pthread_mutex_unlock(&s->lock);
    if (e->answer) MHD_destroy_response(e->answer);
    mg_free(e);
    *context = NULL;
}
