/* Requests that the program answers: a queue, and those that were taken from it. */
#include "core/activity.h"
#include "server/httpd/httpd.h"
#include <ctype.h>
#include <string.h>

static const double SLICE = 0.05; /* seconds between two looks for an interrupt */

/* ---- copying what libmicrohttpd has of a request ---- */

/* Counts the pairs and the bytes of their texts, and then copies them. */
typedef struct pairs {
    mg_pair *to; /* NULL: count */
    int n;
    size_t bytes;
    char *text; /* where the next text goes */
    bool lower; /* names in lower case */
} pairs;

static const char *copy(pairs *p, const char *text, size_t n) {
    char *to = p->text;
    if (n) memcpy(to, text, n);
    to[n] = 0;
    p->text += n + 1;
    return to;
}

static void copy_pair(pairs *p, mg_pair pair) {
    mg_pair *to = &p->to[p->n];
    *to = pair;
    to->name = copy(p, pair.name, pair.name_bytes);
    to->value = copy(p, pair.value, pair.value_bytes);
    for (char *c = (char *)(uintptr_t)to->name; p->lower && *c; c++)
        *c = (char)tolower((unsigned char)*c);
}

/* Called by libmicrohttpd for each pair. A parameter without '=' has no value. */
static enum MHD_Result on_pair(void *context, enum MHD_ValueKind kind, const char *name,
                               size_t name_bytes, const char *value, size_t value_bytes) {
    (void)kind;
    pairs *p = context;
    if (!value) value_bytes = 0;
    if (p->to) copy_pair(p, (mg_pair){name, value, name_bytes, value_bytes});
    p->n++;
    p->bytes += name_bytes + value_bytes + 2;
    return MHD_YES;
}

static void visit(const exchange *e, enum MHD_ValueKind kind, pairs *p) {
    MHD_get_connection_values_n(e->connection, kind, on_pair, p);
}

/* A request in one block: the struct, the pairs, their texts. NULL: out of memory. */
static mg_request *new_request(const exchange *e, const char *method, const char *path) {
    pairs query = {0}, headers = {0};
    visit(e, MHD_GET_ARGUMENT_KIND, &query);
    visit(e, MHD_HEADER_KIND, &headers);
    const size_t n_pairs = (size_t)(query.n + headers.n);
    mg_request *r = mg_alloc(sizeof *r + n_pairs * sizeof(mg_pair) + query.bytes + headers.bytes +
                             strlen(method) + strlen(path) + 2);
    if (!r) return NULL;
    mg_pair *first = (mg_pair *)(r + 1);
    query = (pairs){.to = first, .text = (char *)(first + n_pairs)};
    visit(e, MHD_GET_ARGUMENT_KIND, &query);
    headers = (pairs){.to = first + query.n, .text = query.text, .lower = true};
    visit(e, MHD_HEADER_KIND, &headers);
    *r = (mg_request){.server = e->server};
    r->parts = (mg_request_parts){.query = first,
                                  .n_query = query.n,
                                  .headers = first + query.n,
                                  .n_headers = headers.n,
                                  .method = copy(&headers, method, strlen(method)),
                                  .path = copy(&headers, path, strlen(path))};
    return r;
}

/* ---- the lists ---- */

static void link_taken(mg_server *s, mg_request *r) {
    r->previous = NULL;
    r->next = s->taken;
    if (r->next) r->next->previous = r;
    s->taken = r;
}

static void unlink_taken(mg_server *s, mg_request *r) {
    if (r->next) r->next->previous = r->previous;
    if (r->previous)
        r->previous->next = r->next;
    else
        s->taken = r->next;
}

bool httpd_hand_over(exchange *e, const char *method, const char *path) {
    mg_server *s = e->server;
    mg_request *r = new_request(e, method, path);
    if (!r) return false;
    r->of = e;
    r->body = e->body;
    r->room = e->room;
    r->parts.body = e->body;
    r->parts.body_bytes = e->n;
    e->body = NULL;
    e->n = e->room = 0;
    if (s->waiting)
        s->newest->next = r;
    else
        s->waiting = r;
    s->newest = r;
    MHD_suspend_connection(e->connection);
    pthread_cond_signal(&s->arrived);
    return true;
}

/* The oldest waiting request, which is then a taken one; NULL: there is none. Locked. */
static mg_request *take_oldest(mg_server *s) {
    mg_request *r = s->waiting;
    if (!r) return NULL;
    s->waiting = r->next;
    link_taken(s, r);
    return r;
}

static void free_request(mg_request *r) {
    mg_free(r->body);
    mg_free(r);
}

/* ---- taking ---- */

/* Waits. Locked. */
static mg_status await_request(mg_server *s, double until, mg_request **r) {
    while (!(*r = take_oldest(s))) {
        const double left = until - mg_seconds();
        if (mg_interrupt_take()) return mg_fail(MG_INTERRUPTED, "interrupted");
        if (left <= 0 || mg_stop_requested()) return MG_OK;
        const struct timespec slice = mg_time_after(left < SLICE ? left : SLICE);
        pthread_cond_timedwait(&s->arrived, &s->lock, &slice);
    }
    return MG_OK;
}

mg_status httpd_take(mg_server *s, double seconds, mg_request **r) {
    const int depth = mg_activity_begin(MG_SPAN_WAIT, "waits for a request");
    pthread_mutex_lock(&s->lock);
    const mg_status status = await_request(s, mg_seconds() + seconds, r);
    pthread_mutex_unlock(&s->lock);
    mg_activity_leave(depth);
    return status;
}

const mg_request_parts *httpd_parts(const mg_request *r) {
    return &r->parts;
}

/* ---- replying ---- */

static mg_status add_headers(struct MHD_Response *answer, const mg_answer *a) {
    for (int i = 0; i < a->n_headers; i++)
        if (MHD_add_response_header(answer, a->headers[i].name, a->headers[i].value) != MHD_YES)
            return mg_fail(MG_USAGE, "reply: \"%s: %s\" is no header of HTTP", a->headers[i].name,
                           a->headers[i].value);
    return MG_OK;
}

/* The answer in libmicrohttpd's form. Owned. */
static mg_status make_answer(const mg_answer *a, struct MHD_Response **answer) {
    if (a->status < 200 || a->status > 599)
        return mg_fail(MG_USAGE, "reply: the status %d is not from 200 to 599", a->status);
    *answer = httpd_new_answer(a->type, a->bytes, a->n);
    if (!*answer) return MG_OOM;
    const mg_status status = add_headers(*answer, a);
    if (status != MG_OK) MHD_destroy_response(*answer);
    return status;
}

/* Gives the exchange its answer (NULL: a refusal, whose status and reason it has), and frees the
 * request. */
static void finish(mg_request *r, struct MHD_Response *answer) {
    exchange *e = r->of;
    mg_server *s = r->server;
    pthread_mutex_lock(&s->lock);
    unlink_taken(s, r);
    s->held -= r->room;
    if (s->stopping && answer) MHD_add_response_header(answer, "Connection", "close");
    e->answer = answer;
    pthread_mutex_unlock(&s->lock);
    free_request(r);
    MHD_resume_connection(e->connection);
}

mg_status httpd_reply(mg_request *r, const mg_answer *a) {
    struct MHD_Response *answer = NULL;
    if (!r->server) {
        free_request(r);
        return MG_OK;
    }
    const mg_status status = make_answer(a, &answer);
    r->of->status = status == MG_OK ? (unsigned)a->status : MHD_HTTP_INTERNAL_SERVER_ERROR;
    r->of->reason = "the server could not answer";
    finish(r, status == MG_OK ? answer : NULL);
    return status;
}

/* Gives all requests of the list the answer 503. Taken ones stay with who took them. */
static void refuse_all(mg_server *s, mg_request *list, bool taken) {
    while (list) {
        mg_request *r = list;
        exchange *e = r->of;
        list = r->next;
        e->status = MHD_HTTP_SERVICE_UNAVAILABLE;
        e->reason = "the server is stopping";
        pthread_mutex_lock(&s->lock);
        s->held -= r->room;
        pthread_mutex_unlock(&s->lock);
        if (taken)
            r->server = NULL;
        else
            free_request(r);
        MHD_resume_connection(e->connection);
    }
}

void httpd_refuse_requests(mg_server *s) {
    pthread_mutex_lock(&s->lock);
    mg_request *waiting = s->waiting, *taken = s->taken;
    s->waiting = s->taken = NULL;
    pthread_mutex_unlock(&s->lock);
    refuse_all(s, waiting, false);
    refuse_all(s, taken, true);
}
