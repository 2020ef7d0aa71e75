/* The hub's interface: joining, the store, the end of the world, and leaving. The calls of other
 * threads than the hub's own are here; they only change the state and wait. */
#define _GNU_SOURCE
#include "core/alloc.h"
#include "core/printable.h"
#include "core/threads.h"
#include "world/hub_state.h"
#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

/* Seconds: between looks for Ctrl-C; until rank 0 has told all that another process ends the
 * world. */
static const double LOOK = 0.1, TELLING = 2;

enum { LEAST_SILENCE = 2, MOST_SILENCE = 1000000, NAMED_RANKS = 8 };

/* ---- the end of the world ---- */

void mg_hub_set_over(mg_hub *h, const char *sentence) {
    if (atomic_load(&h->over)) return;
    snprintf(h->sentence, sizeof h->sentence, "%s", sentence);
    atomic_store_explicit(&h->over, h->sentence, memory_order_release);
    const mg_record end = {
        .kind = MG_RECORD_END, .data = h->sentence, .bytes = strlen(h->sentence)};
    for (int i = 0; i < h->n_links; i++)
        if (h->links[i]->state == MG_LINK_JOINED) mg_link_send(h->links[i], &end, true);
    pthread_cond_broadcast(&h->changed);
    mg_hub_wake(h);
}

void mg_hub_take_end(mg_hub *h, const mg_record *r) {
    char sentence[MG_RECORD_SENTENCE];
    mg_printable(r->data, r->bytes, false, sentence, sizeof sentence);
    mg_hub_set_over(h, sentence);
}

void mg_hub_set_over_by(mg_hub *h, int rank, const char *format, ...) {
    char what[1024], sentence[MG_RECORD_SENTENCE];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    snprintf(sentence, sizeof sentence, "rank %d (host %s, pid %d) %s", rank, h->members[rank].host,
             h->members[rank].pid, what);
    mg_hub_set_over(h, sentence);
}

/* Waits until something has changed, but only for a moment, so that callers can look for Ctrl-C. */
static void wait_a_moment(mg_hub *h, double until) {
    const double left = fmin(LOOK, until - mg_seconds());
    const struct timespec time = mg_time_after(left > 0 ? left : 0);
    pthread_cond_timedwait(&h->changed, &h->mutex, &time);
}

mg_status mg_hub_wait(mg_hub *h, double until) {
    if (atomic_load(&h->over)) return mg_fail(MG_COMM, "%s", h->sentence);
    wait_a_moment(h, until);
    if (mg_interrupt_pending() && mg_interrupt_take())
        return mg_fail(MG_INTERRUPTED, "interrupted");
    return MG_OK;
}

/* ---- making and freeing ---- */

static mg_status check_size(int size) {
    static_assert((int)MG_HUB_MOST == MG_RECORD_RANKS, "the lists in records have room for all");
    if (size <= MG_HUB_MOST) return MG_OK;
    return mg_fail(MG_USAGE, "%d processes: at most %d can run a script together", size,
                   MG_HUB_MOST);
}

static mg_status read_silence(double *seconds) {
    char *rest;
    const char *given = getenv("MGPU_SILENCE");
    *seconds = MG_SILENCE;
    if (!given || !*given) return MG_OK;
    *seconds = strtod(given, &rest);
    if (*rest == '\0' && *seconds >= LEAST_SILENCE && *seconds <= MOST_SILENCE) return MG_OK;
    return mg_fail(MG_USAGE,
                   "MGPU_SILENCE=%s: the seconds after which a silent process counts as dead must "
                   "be a number from %d to %d",
                   given, LEAST_SILENCE, MOST_SILENCE);
}

static void set_self(mg_hub *h) {
    mg_hub_member *self = &h->members[h->rank];
    if (gethostname(self->host, sizeof self->host) != 0) strcpy(self->host, "?");
    self->host[sizeof self->host - 1] = '\0';
    self->pid = (int)getpid();
    if (getrandom(&h->process, sizeof h->process, GRND_NONBLOCK) != sizeof h->process)
        h->process = (uint64_t)self->pid;
}

static void free_hub(mg_hub *h) {
    const int fds[] = {h->wake, h->listener};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        if (fds[i] >= 0) close(fds[i]);
    mg_hub_store_free(h);
    for (int i = 0; i < h->n_links; i++) mg_link_free(h->links[i]);
    mg_free(h->links);
    mg_free(h->polled);
    mg_free(h->members);
    mg_free(h->processes);
    mg_free(h->left);
    mg_free(h->roster);
    mg_free(h->departed);
    pthread_cond_destroy(&h->changed);
    pthread_mutex_destroy(&h->mutex);
    mg_free(h);
}

/* NULL after MG_OOM or MG_USAGE. The listener is taken over in any case. */
static mg_hub *new_hub(const mg_hub_how *how) {
    mg_hub *h = mg_alloc_zero(sizeof *h);
    if (!h) {
        if (how->listener >= 0) close(how->listener);
        return NULL;
    }
    h->rank = how->rank, h->size = how->size, h->port = how->port;
    h->address = how->address;
    h->patience = how->patience;
    h->version = how->version;
    h->listener = how->listener;
    h->wake = -1;
    h->n_here = 1;
    snprintf(h->token, sizeof h->token, "%s", how->token ? how->token : "");
    pthread_mutex_init(&h->mutex, NULL);
    mg_cond_init(&h->changed);
    h->members = mg_alloc_zero((size_t)h->size * sizeof *h->members);
    h->processes = mg_alloc_zero((size_t)h->size * sizeof *h->processes);
    h->left = mg_alloc_zero((size_t)h->size * sizeof *h->left);
    h->departed = mg_alloc((size_t)h->size * MG_RECORD_LEFT_BYTES);
    if (!h->members || !h->processes || !h->left || !h->departed || check_size(h->size) != MG_OK ||
        read_silence(&h->silence) != MG_OK) {
        free_hub(h);
        return NULL;
    }
    set_self(h);
    return h;
}

/* Sends what waits, and closes all links. */
static void shut_down(mg_hub *h) {
    const double now = mg_seconds();
    pthread_mutex_lock(&h->mutex);
    h->ending = true;
    for (int i = 0; i < h->n_links; i++)
        if (h->links[i]->state == MG_LINK_JOINED || h->links[i]->state == MG_LINK_NEW)
            mg_link_set_state(h->links[i], MG_LINK_CLOSING, now);
    mg_hub_wake(h);
    pthread_mutex_unlock(&h->mutex);
    if (h->running) pthread_join(h->thread, NULL);
    free_hub(h);
}

/* ---- joining ---- */

/* "ranks 2, 5 of 8 have", of those that are missing. */
static void name_missing(const mg_hub *h, char *text, size_t room) {
    const int n = h->size - h->n_here;
    int named = 0;
    size_t used = (size_t)snprintf(text, room, n == 1 ? "rank" : "ranks");
    for (int rank = 1; rank < h->size && named < NAMED_RANKS; rank++)
        if (!h->members[rank].pid)
            used += (size_t)snprintf(text + used, room - used, "%s %d", named++ ? "," : "", rank);
    if (n > named) used += (size_t)snprintf(text + used, room - used, " and %d more", n - named);
    snprintf(text + used, room - used, " of %d %s", h->size, n == 1 ? "has" : "have");
}

static void give_up(mg_hub *h) {
    char missing[256], sentence[2048];
    name_missing(h, missing, sizeof missing);
    snprintf(sentence, sizeof sentence,
             "%s not come within %g seconds: look at what they printed; they must reach port %d of "
             "host %s%s%s%s",
             missing, h->patience, h->port, h->members[0].host, h->rejected[0] ? " (" : "",
             h->rejected, h->rejected[0] ? ")" : "");
    mg_hub_set_over(h, sentence);
}

/* Rank 0 decides how long all wait: the others see that it lives. */
static mg_status await_start(mg_hub *h) {
    const double until = h->rank == 0 ? mg_seconds() + h->patience : INFINITY;
    mg_status status = MG_OK;
    pthread_mutex_lock(&h->mutex);
    while (!h->started && status == MG_OK) {
        if (mg_seconds() >= until) give_up(h);
        status = mg_hub_wait(h, until);
    }
    if (status == MG_INTERRUPTED && h->rank == 0)
        mg_hub_set_over_by(h, 0, "was interrupted while it waited for the others");
    pthread_mutex_unlock(&h->mutex);
    return status;
}

/* Rank 0 needs a descriptor for each process, and the soft limit is often 1024. */
static void raise_descriptor_limit(const mg_hub *h) {
    enum { OTHERS = 256 };
    struct rlimit limit;
    const rlim_t wanted = (rlim_t)(h->size + MG_HUB_SPARE_LINKS + OTHERS);
    if (h->rank > 0 || getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
    limit.rlim_cur = wanted < limit.rlim_max ? wanted : limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit); /* without it, accept_links says what is missing */
}

static bool start(mg_hub *h) {
    raise_descriptor_limit(h);
    if (h->rank > 0) {
        mg_link *link = mg_hub_connect(h);
        if (!link || mg_hub_add_link(h, link) != MG_OK) return false;
    }
    return mg_hub_thread_start(h) && await_start(h) == MG_OK;
}

mg_hub *mg_hub_join(const mg_hub_how *how) {
    assert(how->size > 0 && how->rank >= 0 && how->rank < how->size);
    mg_threads_watch_forks();
    mg_hub *h = new_hub(how);
    if (!h) return NULL;
    h->started = h->size == 1;
    if (h->started || start(h)) return h;
    shut_down(h);
    return NULL;
}

const mg_hub_member *mg_hub_member_of(const mg_hub *h, int rank) {
    return &h->members[rank];
}

/* ---- the store ---- */

static mg_status check_call(const mg_hub *h, const char *key, size_t bytes) {
    const char *over = mg_hub_over(h);
    if (mg_threads_forked())
        return mg_fail(MG_UNSUPPORTED,
                       "%s: this process was forked after its parent had joined the others, and is "
                       "none of them",
                       key);
    if (over) return mg_fail(MG_COMM, "%s", over);
    if (strlen(key) > MG_RECORD_TEXT_BYTES)
        return mg_fail(MG_USAGE, "a key of %zu bytes: at most %d are possible", strlen(key),
                       MG_RECORD_TEXT_BYTES);
    if (bytes > MG_RECORD_VALUE_BYTES)
        return mg_fail(MG_USAGE, "%s: a value of %s; at most %s are possible", key,
                       MG_SIZE_TEXT(bytes), MG_SIZE_TEXT(MG_RECORD_VALUE_BYTES));
    return MG_OK;
}

static mg_status put_here(mg_hub *h, const char *key, const void *data, size_t bytes) {
    void *copy = mg_alloc(bytes);
    if (!copy) return MG_OOM;
    if (bytes) memcpy(copy, data, bytes);
    pthread_mutex_lock(&h->mutex);
    const mg_status status = mg_hub_store_put(h, key, copy, bytes);
    mg_hub_wake(h);
    pthread_mutex_unlock(&h->mutex);
    if (status != MG_OK) mg_free(copy);
    return status;
}

/* Of a request that was answered. */
static mg_status outcome_of(const mg_hub_request *request, const char *key) {
    switch (request->status) {
    case MG_OK: return MG_OK;
    case MG_USAGE: return mg_fail(MG_USAGE, "%s was put before: a key is put once", key);
    default: return mg_fail(MG_OOM, "no memory for the value of %s", key);
    }
}

mg_status mg_hub_put(mg_hub *h, const char *key, const void *data, size_t bytes) {
    mg_hub_request request = {0};
    const mg_record r = {.kind = MG_RECORD_PUT, .text = key, .data = data, .bytes = bytes};
    mg_status status = check_call(h, key, bytes);
    if (status != MG_OK) return status;
    if (h->rank == 0)
        request.status = put_here(h, key, data, bytes);
    else
        MG_TRY(mg_hub_request_wait(h, &r, INFINITY, &request));
    return outcome_of(&request, key);
}

/* A copy of the value in rank 0's own store. */
static mg_status get_here(mg_hub *h, const char *key, double patience, mg_hub_request *request) {
    const double until = mg_seconds() + patience;
    const void *data;
    mg_status status = MG_OK;
    pthread_mutex_lock(&h->mutex);
    while (!(request->done = mg_hub_store_find(h, key, &data, &request->bytes)) &&
           status == MG_OK && mg_seconds() < until)
        status = mg_hub_wait(h, until);
    pthread_mutex_unlock(&h->mutex);
    if (status != MG_OK || !request->done) return status;
    request->data = mg_alloc(request->bytes);
    if (!request->data) return MG_OOM;
    if (request->bytes) memcpy(request->data, data, request->bytes);
    return MG_OK;
}

mg_status mg_hub_get(mg_hub *h, const char *key, double patience, void **data, size_t *bytes) {
    mg_hub_request request = {0};
    const double ms = fmin(fmax(patience, 0) * 1000, 1e15);
    const mg_record r = {.kind = MG_RECORD_GET, .text = key, .value = (uint64_t)ms};
    MG_TRY(check_call(h, key, 0));
    MG_TRY(h->rank == 0 ? get_here(h, key, patience, &request)
                        : mg_hub_request_wait(h, &r, patience, &request));
    if (!request.done)
        return mg_fail(MG_COMM, "no process has put %s within %g seconds", key, patience);
    *data = request.data;
    *bytes = request.bytes;
    return outcome_of(&request, key);
}

/* ---- watching ---- */

void mg_hub_at(mg_hub *h, uint64_t step, const char *op) {
    atomic_store_explicit(&h->step, step, memory_order_relaxed);
    atomic_store_explicit(&h->op, op, memory_order_relaxed);
}

const char *mg_hub_over(const mg_hub *h) {
    return atomic_load_explicit(&h->over, memory_order_acquire);
}

double mg_hub_silence(const mg_hub *h) {
    return h->silence;
}

bool mg_hub_has_left(const mg_hub *h, int rank, uint64_t *step) {
    const uint64_t left = atomic_load_explicit(&h->left[rank], memory_order_relaxed);
    *step = left - 1;
    return left != 0;
}

/* Rank 0 decides which sentence is the first, so that all have the same. */
void mg_hub_end(mg_hub *h, const char *sentence) {
    const double until = mg_seconds() + TELLING;
    if (mg_threads_forked()) return;
    pthread_mutex_lock(&h->mutex);
    if (h->rank > 0 && h->n_links && !mg_hub_over(h)) {
        const mg_record end = {.kind = MG_RECORD_END,
                               .data = sentence,
                               .bytes = strnlen(sentence, MG_RECORD_SENTENCE - 1)};
        mg_link_send(h->links[0], &end, false);
        mg_hub_wake(h);
        while (!mg_hub_over(h) && mg_seconds() < until) wait_a_moment(h, until);
    }
    mg_hub_set_over(h, sentence);
    pthread_mutex_unlock(&h->mutex);
}

/* ---- leaving ---- */

/* Rank 0 stays until the others have left, but not longer than it waits for them at the start. */
static void await_goodbyes(mg_hub *h, int exit_status) {
    const double until = mg_seconds() + h->patience;
    if (!exit_status) mg_hub_note_left(h, 0, atomic_load(&h->step));
    while (!exit_status && h->n_here > 1 && !mg_hub_over(h) && mg_seconds() < until &&
           !mg_interrupt_pending())
        wait_a_moment(h, until);
    if (h->n_here > 1)
        mg_hub_set_over_by(h, 0, MG_HUB_LEFT_EARLY, atomic_load(&h->step), exit_status);
}

void mg_hub_leave(mg_hub *h, int exit_status) {
    if (!h || mg_threads_forked()) return; /* a forked process has no thread to end */
    pthread_mutex_lock(&h->mutex);
    if (h->rank == 0) {
        await_goodbyes(h, exit_status);
    } else if (h->n_links) {
        const mg_record goodbye = {.kind = MG_RECORD_LEAVE,
                                   .number = (uint32_t)exit_status,
                                   .value = atomic_load(&h->step)};
        mg_link_send(h->links[0], &goodbye, false);
    }
    pthread_mutex_unlock(&h->mutex);
    shut_down(h);
}
