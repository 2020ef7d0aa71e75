/* Logs: the last bytes of growing texts, and the clients that wait for more. */
#include "server/httpd/httpd.h"
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 4 << 20, ANSWER = 1 << 20, LEAST_ROOM = 4096 }; /* bytes */
static const double MOST_WAIT = 60;                           /* seconds */

growing_log *httpd_find_log(const mg_server *s, const char *path) {
    growing_log *l = s->logs;
    while (l && strcmp(l->path, path) != 0) l = l->next;
    return l;
}

static void free_log(growing_log *l) {
    if (!l) return;
    mg_free(l->path);
    mg_free(l->bytes);
    mg_free(l);
}

void httpd_free_logs(mg_server *s) {
    while (s->logs) {
        growing_log *l = s->logs;
        s->logs = l->next;
        free_log(l);
    }
}

/* ---- waiting ---- */

static void link_waiter(exchange *e, const growing_log *l) {
    mg_server *s = e->server;
    e->log = l;
    e->previous = NULL;
    e->next = s->waiters;
    if (e->next) e->next->previous = e;
    s->waiters = e;
}

static void unlink_waiter(exchange *e) {
    if (e->next) e->next->previous = e->previous;
    if (e->previous)
        e->previous->next = e->next;
    else
        e->server->waiters = e->next;
    e->log = NULL;
}

exchange *httpd_unlink_waiters(mg_server *s, const growing_log *l, double now, uint64_t end) {
    exchange *list = NULL;
    for (exchange *e = s->waiters, *next; e; e = next) {
        next = e->next;
        if ((l && e->log != l) || (e->deadline > now && e->from >= end)) continue;
        unlink_waiter(e);
        e->next = list;
        list = e;
    }
    return list;
}

/* An exchange may be freed as soon as it is resumed. */
void httpd_resume(exchange *list) {
    while (list) {
        exchange *e = list;
        list = e->next;
        MHD_resume_connection(e->connection);
    }
}

/* ---- appending ---- */

/* How many bytes at the beginning must go, so that n more make at most `most`: whole lines. `more`:
 * those that are appended; lines end there, too. */
static size_t excess(const growing_log *l, const char *more, size_t n) {
    const size_t there = (size_t)(l->end - l->first);
    if (there + n <= l->most) return 0;
    const size_t least = there + n - l->most;
    for (size_t i = least - 1; i < there + n; i++)
        if ((i < there ? l->bytes[l->begin + i] : more[i - there]) == '\n') return i + 1;
    return there + n;
}

/* Makes room for n bytes behind the kept ones. */
static mg_status make_room(growing_log *l, size_t n) {
    const size_t there = (size_t)(l->end - l->first);
    if (l->begin + there + n <= l->room) return MG_OK;
    if (l->begin >= there && there + n <= l->room) {
        memmove(l->bytes, l->bytes + l->begin, there);
        l->begin = 0;
        return MG_OK;
    }
    const size_t room = 2 * (there + n) > LEAST_ROOM ? 2 * (there + n) : LEAST_ROOM;
    char *bytes = mg_alloc(room);
    if (!bytes) return MG_OOM;
    if (there) memcpy(bytes, l->bytes + l->begin, there);
    mg_free(l->bytes);
    l->bytes = bytes;
    l->begin = 0;
    l->room = room;
    return MG_OK;
}

static mg_status append(growing_log *l, const char *bytes, size_t n) {
    const size_t there = (size_t)(l->end - l->first), gone = excess(l, bytes, n);
    const size_t old = gone < there ? gone : there, skipped = gone - old;
    if (n > skipped) {
        /* what goes makes room, but only after nothing can fail any more */
        growing_log shorter = *l;
        shorter.begin += old;
        shorter.first += old;
        MG_TRY(make_room(&shorter, n - skipped));
        *l = shorter;
        memcpy(l->bytes + l->begin + (there - old), bytes + skipped, n - skipped);
    } else {
        l->begin += old;
        l->first += old;
    }
    l->first += skipped;
    l->end += n;
    return MG_OK;
}

/* The log at the path, which is made if there is none. NULL: MG_USAGE, MG_OOM. Locked. */
static growing_log *get_log(mg_server *s, const char *path) {
    growing_log *l = httpd_find_log(s, path);
    if (l) return l;
    if (httpd_find_document(s, path)) {
        mg_fail(MG_USAGE, "server: there is a document at %s: remove it before", path);
        return NULL;
    }
    l = mg_alloc_zero(sizeof *l);
    if (l) l->path = mg_strdup(path);
    if (!l || !l->path) {
        free_log(l);
        return NULL;
    }
    l->most = MOST;
    l->next = s->logs;
    s->logs = l;
    return l;
}

mg_status httpd_append(mg_server *s, const char *path, const void *bytes, size_t n, size_t most) {
    MG_TRY(httpd_check_path(path));
    exchange *ready = NULL;
    pthread_mutex_lock(&s->lock);
    growing_log *l = get_log(s, path);
    mg_status status = l ? MG_OK : mg_error_code();
    if (l && most) l->most = most;
    if (l) status = append(l, bytes, n);
    if (status == MG_OK) ready = httpd_unlink_waiters(s, l, -INFINITY, l->end);
    pthread_mutex_unlock(&s->lock);
    httpd_resume(ready);
    return status;
}

void httpd_remove_log(mg_server *s, const char *path) {
    pthread_mutex_lock(&s->lock);
    growing_log **place = &s->logs;
    while (*place && strcmp((*place)->path, path) != 0) place = &(*place)->next;
    growing_log *l = *place;
    if (l) *place = l->next;
    exchange *ready = l ? httpd_unlink_waiters(s, l, INFINITY, 0) : NULL;
    pthread_mutex_unlock(&s->lock);
    httpd_resume(ready);
    free_log(l);
}

/* ---- answering ---- */

/* The number of a parameter; `otherwise` if it is missing. False: it is none, or negative. */
static bool read_offset(const exchange *e, uint64_t otherwise, uint64_t *value) {
    const char *text = MHD_lookup_connection_value(e->connection, MHD_GET_ARGUMENT_KIND, "from");
    char *rest;
    *value = otherwise;
    if (!text) return true;
    if (text[0] < '0' || text[0] > '9') return false;
    errno = 0;
    *value = strtoull(text, &rest, 10);
    return !*rest && !errno;
}

static bool read_wait(const exchange *e, double *value) {
    const char *text = MHD_lookup_connection_value(e->connection, MHD_GET_ARGUMENT_KIND, "wait");
    char *rest;
    *value = 0;
    if (!text) return true;
    if (text[0] < '0' || text[0] > '9') return false;
    *value = strtod(text, &rest);
    *value = *value > MOST_WAIT ? MOST_WAIT : *value;
    return !*rest && *value >= 0;
}

static void refuse(exchange *e, unsigned status, const char *reason) {
    e->status = status;
    e->reason = reason;
}

/* Adds an offset as a header. */
static bool add_offset(struct MHD_Response *answer, const char *name, uint64_t offset) {
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, offset);
    return MHD_add_response_header(answer, name, text) == MHD_YES;
}

/* Answers with what there is from the offset on. */
static void answer_from(exchange *e, const growing_log *l, uint64_t from) {
    const size_t left = (size_t)(l->end - from), n = left < ANSWER ? left : ANSWER;
    const char *bytes = n ? l->bytes + l->begin + (from - l->first) : "";
    struct MHD_Response *answer = httpd_new_answer("text/plain; charset=utf-8", bytes, n);
    const bool made = answer && add_offset(answer, "X-Next", from + n) &&
                      (!l->first || add_offset(answer, "X-First", l->first));
    if (made) {
        e->answer = answer;
        e->status = MHD_HTTP_OK;
        return;
    }
    if (answer) MHD_destroy_response(answer);
    refuse(e, MHD_HTTP_INTERNAL_SERVER_ERROR, "out of memory");
}

void httpd_answer_log(exchange *e, const growing_log *l) {
    uint64_t from;
    double wait;
    if (!read_offset(e, l->first, &from)) {
        refuse(e, MHD_HTTP_BAD_REQUEST, "from=OFFSET must be a whole number, 0 or more");
        return;
    }
    if (!read_wait(e, &wait)) {
        refuse(e, MHD_HTTP_BAD_REQUEST, "wait=SECONDS must be a number, 0 or more");
        return;
    }
    if (from > l->end) {
        refuse(e, MHD_HTTP_RANGE_NOT_SATISFIABLE,
               "the log is shorter than this offset: it is another one, begin with from=0");
        return;
    }
    if (from < l->first) from = l->first;
    const double now = mg_seconds();
    if (e->deadline == 0) e->deadline = now + wait;
    if (from < l->end || e->deadline <= now || e->server->closing) {
        answer_from(e, l, from);
        return;
    }
    e->from = from;
    link_waiter(e, l);
    MHD_suspend_connection(e->connection);
    pthread_cond_signal(&e->server->tick);
}
