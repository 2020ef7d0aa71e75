/* Collectives of messages: see exchange.h. */
#include "world/exchange.h"
#include "comm/reduce.h"
#include "core/activity.h"
#include "core/alloc.h"
#include "core/threads.h"
#include "world/world.h"
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

enum {
    SMALL = 32 << 10,  /* bytes of all ranks' terms: below, each rank adds up all of them itself */
    PIECE = 256 << 10, /* bytes of a share that is sent at a time: two are on their way */
    ALIGNED = 64,      /* shares begin at multiples of so many elements */
    CHANNELS = 1 << 12,
    AT_ONCE = 64, /* looks at a message without a pause */
    FEW_RANKS = 8 /* up to so many, each sends to each; more gather in rounds */
};

/* Seconds after which a wait ends if some rank has left the script. */
static const double PARTING = 2;

static struct {
    const mg_transport_api *api;
    mg_transport *transport;
    int rank, size;
    uint32_t n_channels;
    bool crowded;
    pthread_mutex_t mutex; /* a transport is called by one thread at a time */
} ex = {.mutex = PTHREAD_MUTEX_INITIALIZER};

void mg_exchange_start(const mg_transport_api *api, mg_transport *transport, int rank, int size) {
    ex.api = api;
    ex.transport = transport;
    ex.rank = rank;
    ex.size = size;
}

void mg_exchange_stop(bool clean) {
    pthread_mutex_lock(&ex.mutex);
    if (ex.transport) ex.api->stop(ex.transport, clean);
    ex.transport = NULL;
    pthread_mutex_unlock(&ex.mutex);
}

mg_channel mg_channel_open(void) {
    const uint32_t n = ex.n_channels++;
    return (mg_channel){.id = n ? (n - 1) % (CHANNELS - 1) + 1 : 0};
}

/* Both numbers wrap around, when the messages of their last use are long gone; but the first
 * channel is always in use and keeps its number for itself. */
uint32_t mg_channel_tag(mg_channel *c) {
    return c->id << 20 | (c->calls++ & 0xfffff);
}

static _Thread_local bool is_patient;

void mg_exchange_set_crowded(bool crowded) {
    ex.crowded = crowded;
}

void mg_exchange_be_patient(void) {
    is_patient = true;
}

/* ---- messages ---- */

typedef struct batch { /* messages that are on their way together */
    uint32_t tag;
    int n;
    bool endless;       /* waits as long as the others live */
    int *peers;         /* of each message: the rank that it goes to or comes from */
    mg_message *list[]; /* room for two for each rank; NULL: done */
} batch;

static batch *new_batch(uint32_t tag) {
    const size_t room = 2 * (size_t)ex.size;
    batch *b = mg_alloc(sizeof *b + room * (sizeof *b->list + sizeof *b->peers));
    if (b) *b = (batch){.tag = tag, .n = 0, .peers = (int *)(void *)(b->list + room)};
    return b;
}

/* After mg_exchange_stop: a thread whose step was abandoned may still be in a call. */
static mg_status stopped(void) {
    return mg_fail(MG_COMM, "this process has left the world");
}

/* A message that fails was to or from a rank that has gone: why, the hub says. */
static mg_status explained(mg_status status) {
    return status == MG_COMM ? mg_world_explain() : status;
}

mg_status mg_exchange_send(uint32_t tag, int to, const void *data, size_t bytes, mg_message **m) {
    pthread_mutex_lock(&ex.mutex);
    const mg_status status =
        ex.transport ? ex.api->send(ex.transport, to, tag, data, bytes, m) : stopped();
    pthread_mutex_unlock(&ex.mutex);
    return explained(status);
}

mg_status mg_exchange_receive(uint32_t tag, int from, void *data, size_t bytes, mg_message **m) {
    pthread_mutex_lock(&ex.mutex);
    const mg_status status =
        ex.transport ? ex.api->receive(ex.transport, from, tag, data, bytes, m) : stopped();
    pthread_mutex_unlock(&ex.mutex);
    return explained(status);
}

static mg_status start_send(batch *b, int to, const void *data, size_t bytes) {
    b->peers[b->n] = to;
    if (bytes) MG_TRY(mg_exchange_send(b->tag, to, data, bytes, &b->list[b->n]));
    b->n += bytes > 0;
    return MG_OK;
}

static mg_status start_receive(batch *b, int from, void *data, size_t bytes) {
    b->peers[b->n] = from;
    if (bytes) MG_TRY(mg_exchange_receive(b->tag, from, data, bytes, &b->list[b->n]));
    b->n += bytes > 0;
    return MG_OK;
}

static int count_left(mg_message *const *list, int n) {
    int left = 0;
    for (int i = 0; i < n; i++) left += list[i] != NULL;
    return left;
}

/* Asks for each message that is not done. */
static mg_status test_all(mg_message **list, int n) {
    pthread_mutex_lock(&ex.mutex);
    mg_status status = ex.transport ? MG_OK : stopped();
    for (int i = 0; i < n && status == MG_OK; i++) {
        bool done = false;
        if (!list[i]) continue;
        status = ex.api->test(ex.transport, list[i], &done);
        if (done || status != MG_OK) list[i] = NULL;
    }
    pthread_mutex_unlock(&ex.mutex);
    return status;
}

/* The messages that a thread waits for: peers of the batch they belong to, or NULL. */
typedef struct waiting {
    mg_message **list;
    const int *peers;
    int n;
    bool endless;
} waiting;

/* The first rank whose message is not done, and in *more how many further messages are not; -1: it
 * is not known. */
static int find_late(const waiting *w, int *more) {
    int first = -1;
    *more = 0;
    for (int i = 0; i < w->n && w->peers; i++) {
        if (!w->list[i] || w->peers[i] == first) continue;
        if (first < 0)
            first = w->peers[i];
        else
            ++*more;
    }
    return first;
}

/* For mg_activity_about; the number is the rank, and above it how many more. */
static void describe_late(const void *unused, int64_t number, char *text, size_t room) {
    (void)unused;
    const int more = (int)(number >> 32);
    snprintf(text, room, more ? "for rank %d and %d more" : "for rank %d",
             (int)(number & INT32_MAX), more);
}

static void tell_late(const waiting *w) {
    int more;
    const int first = find_late(w, &more);
    if (first >= 0) mg_activity_about(describe_late, NULL, (int64_t)more << 32 | first);
}

static mg_status fail_late(const waiting *w) {
    char late[60] = "";
    int more;
    const int first = find_late(w, &more);
    if (first >= 0) describe_late(NULL, (int64_t)more << 32 | first, late, sizeof late);
    return mg_fail(MG_COMM,
                   "the other processes did not answer within %g seconds: do all of them run the "
                   "same steps? (MGPU_DEADLINE sets the limit)%s%s",
                   mg_deadline(), first >= 0 ? "; waited " : "", late);
}

/* What ends a wait early. A rank that has left may have sent all that is waited for, so this comes
 * some time after. */
static mg_status check_wait(const waiting *w, double since) {
    tell_late(w);
    MG_TRY(mg_world_check());
    if (mg_seconds() - since > PARTING) MG_TRY(mg_world_check_left());
    mg_signals_admit(); /* a device holds them while it computes in the caller's thread */
    if (mg_interrupt_pending()) return mg_fail(MG_INTERRUPTED, "interrupted");
    return w->endless || mg_seconds() - since < mg_deadline() ? MG_OK : fail_late(w);
}

/* Between two looks at the messages, `waited` seconds after one of them was done. Large messages
 * need many looks, one for each of their pieces, so at first the thread only lets others run. */
static void pause_for(double waited) {
    const double eager = is_patient || ex.crowded ? 0.3e-3 : 1e-3;
    if (waited < eager)
        sched_yield();
    else
        nanosleep(&(struct timespec){.tv_nsec = waited > 10 * eager ? 200000 : 20000}, NULL);
}

/* Waits until no more than `rest` of the messages are left. */
static mg_status await(const waiting *w, int rest) {
    int left = count_left(w->list, w->n), before;
    double since = 0, progress = 0;
    for (int rounds = 0; left > rest; rounds++) {
        before = left;
        mg_status status = explained(test_all(w->list, w->n));
        left = count_left(w->list, w->n);
        if (left <= rest && status == MG_OK) break;
        if (rounds == 0) since = mg_seconds();
        if (status == MG_OK && rounds % 256 == 255) status = check_wait(w, since);
        if (status != MG_OK) return status;
        if (rounds < AT_ONCE) continue;
        const double now = mg_seconds();
        if (left < before || rounds == AT_ONCE) progress = now;
        pause_for(now - progress);
    }
    return MG_OK;
}

static mg_status wait_for(const waiting *w, int rest) {
    const int depth = mg_activity_begin(MG_SPAN_WAIT, "waits");
    const mg_status status = await(w, rest);
    mg_activity_leave(depth);
    return status;
}

/* Waits for all messages of the batch, which is then empty. After a failure the others may be in
 * the middle of this call, and the world cannot go on. */
static mg_status wait_all(batch *b) {
    MG_TRY(wait_for(&(waiting){b->list, b->peers, b->n, b->endless}, 0));
    b->n = 0;
    return MG_OK;
}

mg_status mg_exchange_wait_any(mg_message **list, int n) {
    const int left = count_left(list, n);
    return left ? wait_for(&(waiting){list, NULL, n, true}, left - 1) : MG_OK;
}

void mg_exchange_cancel(mg_message **list, int n) {
    pthread_mutex_lock(&ex.mutex);
    for (int i = 0; i < n; i++) {
        if (list[i] && ex.transport) ex.api->cancel(ex.transport, list[i]);
        list[i] = NULL;
    }
    pthread_mutex_unlock(&ex.mutex);
}

/* Frees the batch. Messages that are not done are given up, which ends the world. */
static void free_batch(batch *b) {
    if (!b) return;
    mg_exchange_cancel(b->list, b->n);
    mg_free(b);
}

/* ---- all parts to all ranks ---- */

/* One message to and from each other rank. */
static mg_status gather_directly(batch *b, char *all, const size_t *bytes) {
    size_t own = 0, at = 0;
    for (int r = 0; r < ex.rank; r++) own += bytes[r];
    for (int r = 0; r < ex.size; at += bytes[r++]) {
        if (r == ex.rank) continue;
        MG_TRY(start_receive(b, r, all + at, bytes[r]));
        MG_TRY(start_send(b, r, all + own, bytes[ex.rank]));
    }
    return wait_all(b);
}

/* Starts to send (to a peer) or receive the parts of ranks first .. first + n - 1, counted around:
 * they lie in one piece, or in two if the last rank is among them. starts: where the part of each
 * rank begins, and the end. */
static mg_status start_parts(batch *b, bool sends, int peer, char *all, const size_t *starts,
                             int first, int n) {
    first %= ex.size;
    const int before_end = n < ex.size - first ? n : ex.size - first;
    const int from[2] = {first, 0}, to[2] = {first + before_end, n - before_end};
    for (int i = 0; i < 2; i++) {
        char *data = all + starts[from[i]];
        const size_t bytes = starts[to[i]] - starts[from[i]];
        MG_TRY(sends ? start_send(b, peer, data, bytes) : start_receive(b, peer, data, bytes));
    }
    return MG_OK;
}

/* Bruck's algorithm: in each round a rank sends all that it has to another one, so that after
 * log2(size) rounds all have all. */
static mg_status gather_in_rounds(batch *b, char *all, const size_t *starts) {
    for (int has = 1; has < ex.size; has *= 2) {
        const int n = has < ex.size - has ? has : ex.size - has;
        const int from = (ex.rank + has) % ex.size, to = (ex.rank - has + ex.size) % ex.size;
        MG_TRY(start_parts(b, false, from, all, starts, from, n));
        MG_TRY(start_parts(b, true, to, all, starts, ex.rank, n));
        MG_TRY(wait_all(b));
    }
    return MG_OK;
}

static mg_status gather(batch *b, char *all, const size_t *bytes) {
    if (ex.size <= FEW_RANKS) return gather_directly(b, all, bytes);
    size_t *starts = mg_alloc((size_t)(ex.size + 1) * sizeof *starts);
    if (!starts) return MG_OOM;
    starts[0] = 0;
    for (int r = 0; r < ex.size; r++) starts[r + 1] = starts[r] + bytes[r];
    const mg_status status = gather_in_rounds(b, all, starts);
    mg_free(starts);
    return status;
}

/* ---- reductions ---- */

typedef struct reduction {
    const char *in;
    char *out;
    char *terms; /* of the other ranks: two sets of `size` pieces, used in turn */
    int64_t count, piece;
    size_t width; /* of an element */
    mg_dtype dtype;
    enum mg_reduce_kind op;
    int root; /* or -1 */
    batch *terms_sent[2], *results_sent[2];
} reduction;

/* The elements [first, last) of block b that rank r adds up. */
typedef struct share {
    int64_t first, last;
} share;

static share share_of(const reduction *x, int64_t b, int r) {
    const int64_t base = b * x->piece * ex.size, left = x->count - base;
    int64_t each = x->piece;
    if (left < x->piece * ex.size) /* the last block: even shares of what is left */
        each = ((left + ex.size - 1) / ex.size + ALIGNED - 1) / ALIGNED * ALIGNED;
    share s = {base + each * r, base + each * (r + 1)};
    if (s.first > x->count) s.first = x->count;
    if (s.last > x->count) s.last = x->count;
    return s;
}

static size_t share_bytes(const reduction *x, share s) {
    return (size_t)(s.last - s.first) * x->width;
}

static char *term_of(const reduction *x, int64_t b, int r) {
    return x->terms + ((size_t)(b % 2) * (size_t)ex.size + (size_t)r) * (size_t)x->piece * x->width;
}

/* Sends to each rank its share of this rank's terms, and receives the others' of its own share. */
static mg_status start_terms(reduction *x, int64_t b) {
    batch *sent = x->terms_sent[b % 2];
    const size_t own = share_bytes(x, share_of(x, b, ex.rank));
    for (int r = 0; r < ex.size; r++) {
        if (r == ex.rank) continue;
        const share s = share_of(x, b, r);
        MG_TRY(start_receive(sent, r, term_of(x, b, r), own));
        MG_TRY(start_send(sent, r, x->in + (size_t)s.first * x->width, share_bytes(x, s)));
    }
    return MG_OK;
}

/* Where this rank's share of the results is made: in `out`, if it has one. */
static char *result_of(const reduction *x, int64_t b, share own) {
    const bool has_out = x->root < 0 || x->root == ex.rank;
    return has_out ? x->out + (size_t)own.first * x->width : term_of(x, b, ex.rank);
}

/* In the order of ranks, in the memory of the first term: that of rank 0 itself is in `in`, which
 * only a reduction in place may write to. */
static mg_status add_terms(reduction *x, int64_t b) {
    const share own = share_of(x, b, ex.rank);
    const char *in = x->in + (size_t)own.first * x->width;
    char *result = result_of(x, b, own);
    char *sum = ex.rank == 0 ? result : term_of(x, b, 0);
    MG_TRY(wait_all(x->terms_sent[b % 2]));
    if (ex.rank == 0 && sum != in) memcpy(sum, in, share_bytes(x, own));
    for (int r = 1; r < ex.size; r++)
        mg_reduce(sum, r == ex.rank ? in : term_of(x, b, r), own.last - own.first, x->dtype, x->op);
    if (sum != result) memcpy(result, sum, share_bytes(x, own));
    return MG_OK;
}

static mg_status start_results(reduction *x, int64_t b) {
    batch *sent = x->results_sent[b % 2];
    const share own = share_of(x, b, ex.rank);
    for (int r = 0; r < ex.size; r++) {
        if (r == ex.rank) continue;
        const share s = share_of(x, b, r);
        if (x->root < 0 || x->root == ex.rank)
            MG_TRY(start_receive(sent, r, x->out + (size_t)s.first * x->width, share_bytes(x, s)));
        if (x->root < 0 || x->root == r)
            MG_TRY(start_send(sent, r, result_of(x, b, own), share_bytes(x, own)));
    }
    return MG_OK;
}

/* Block after block: while the terms of one are added up, those of the next are on their way. */
static mg_status reduce_blocks(reduction *x) {
    const int64_t block = x->piece * ex.size, n = (x->count + block - 1) / block;
    MG_TRY(start_terms(x, 0));
    for (int64_t b = 0; b < n; b++) {
        if (b + 1 < n) {
            /* its terms take the place of those of block b - 1, whose results may still lie there
             */
            if (b > 0) MG_TRY(wait_all(x->results_sent[(b + 1) % 2]));
            MG_TRY(start_terms(x, b + 1));
        }
        MG_TRY(add_terms(x, b));
        MG_TRY(start_results(x, b));
    }
    MG_TRY(wait_all(x->results_sent[0]));
    return wait_all(x->results_sent[1]);
}

static mg_status reduce_large(reduction *x, uint32_t tag) {
    x->piece = PIECE / (int64_t)x->width;
    const int64_t even = (x->count + ex.size - 1) / ex.size;
    if (even < x->piece) x->piece = (even + ALIGNED - 1) / ALIGNED * ALIGNED;
    x->terms = mg_alloc(2 * (size_t)ex.size * (size_t)x->piece * x->width);
    bool ready = x->terms != NULL;
    for (int i = 0; i < 2; i++) {
        x->terms_sent[i] = new_batch(tag);
        x->results_sent[i] = new_batch(tag);
        ready = ready && x->terms_sent[i] && x->results_sent[i];
    }
    const mg_status status = ready ? reduce_blocks(x) : MG_OOM;
    for (int i = 0; i < 2; i++) {
        free_batch(x->terms_sent[i]);
        free_batch(x->results_sent[i]);
    }
    mg_free(x->terms);
    return status;
}

static mg_status gather_small_terms(const reduction *x, batch *b, size_t bytes) {
    size_t each[ex.size];
    for (int r = 0; r < ex.size; r++) each[r] = bytes;
    memcpy(x->terms + (size_t)ex.rank * bytes, x->in, bytes);
    return gather(b, x->terms, each);
}

/* Every rank, or only the root, gets all terms and adds them up, in the memory of rank 0's. */
static mg_status reduce_small(reduction *x, batch *b) {
    const size_t bytes = (size_t)x->count * x->width;
    const bool adds = x->root < 0 || x->root == ex.rank,
               rounds = x->root < 0 && ex.size > FEW_RANKS;
    if (rounds) MG_TRY(gather_small_terms(x, b, bytes));
    for (int r = 0; r < ex.size && !rounds; r++) {
        if (r == ex.rank) continue;
        if (adds) MG_TRY(start_receive(b, r, x->terms + (size_t)r * bytes, bytes));
        if (x->root < 0 || x->root == r) MG_TRY(start_send(b, r, x->in, bytes));
    }
    MG_TRY(wait_all(b));
    if (!adds) return MG_OK;
    if (ex.rank == 0) memcpy(x->terms, x->in, bytes);
    for (int r = 1; r < ex.size; r++)
        mg_reduce(x->terms, r == ex.rank ? x->in : x->terms + (size_t)r * bytes, x->count, x->dtype,
                  x->op);
    memcpy(x->out, x->terms, bytes);
    return MG_OK;
}

mg_status mg_exchange_reduce(uint32_t tag, const void *in, void *out, int64_t count, mg_dtype t,
                             enum mg_reduce_kind op, int root) {
    reduction x = {.in = in, .out = out, .count = count, .dtype = t, .op = op, .root = root};
    x.width = mg_dtype_size(t);
    if (!count) return MG_OK;
    const size_t all = (size_t)count * x.width * (size_t)ex.size;
    if (all > SMALL) return reduce_large(&x, tag);
    double terms[SMALL / sizeof(double)]; /* aligned for any dtype */
    batch *b = new_batch(tag);
    if (!b) return MG_OOM;
    x.terms = (char *)terms;
    const mg_status status = reduce_small(&x, b);
    free_batch(b);
    return status;
}

/* ---- moving data ---- */

static mg_status gather_in_new_batch(uint32_t tag, void *all, const size_t *bytes, bool endless) {
    batch *b = new_batch(tag);
    if (!b) return MG_OOM;
    b->endless = endless;
    const mg_status status = gather(b, all, bytes);
    free_batch(b);
    return status;
}

mg_status mg_exchange_gather(uint32_t tag, void *all, const size_t *bytes) {
    return gather_in_new_batch(tag, all, bytes, false);
}

mg_status mg_exchange_gather_when_ready(uint32_t tag, void *all, const size_t *bytes) {
    return gather_in_new_batch(tag, all, bytes, true);
}

/* A binomial tree: in each round the ranks that have the data send it to as many others. */
static mg_status broadcast(batch *b, int root, void *data, size_t bytes) {
    const int place = (ex.rank - root + ex.size) % ex.size; /* the root's is 0 */
    int bit = 1;
    while (bit < ex.size && !(place & bit)) bit <<= 1;
    if (place) {
        MG_TRY(start_receive(b, (place - bit + root) % ex.size, data, bytes));
        MG_TRY(wait_all(b));
    }
    for (bit >>= 1; bit > 0; bit >>= 1)
        if (place + bit < ex.size)
            MG_TRY(start_send(b, (place + bit + root) % ex.size, data, bytes));
    return wait_all(b);
}

mg_status mg_exchange_broadcast(uint32_t tag, int root, void *data, size_t bytes) {
    batch *b = new_batch(tag);
    const mg_status status = b ? broadcast(b, root, data, bytes) : MG_OOM;
    free_batch(b);
    return status;
}

static mg_status swap(batch *b, int peer, const void *out, void *in, size_t bytes) {
    MG_TRY(start_receive(b, peer, in, bytes));
    MG_TRY(start_send(b, peer, out, bytes));
    return wait_all(b);
}

mg_status mg_exchange_swap(uint32_t tag, int peer, const void *out, void *in, size_t bytes) {
    if (peer < 0) return MG_OK;
    batch *b = new_batch(tag);
    const mg_status status = b ? swap(b, peer, out, in, bytes) : MG_OOM;
    free_batch(b);
    return status;
}

/* ---- measuring ---- */

static mg_status bounce(batch *m, bool first, int other, char *data, size_t bytes, int rounds) {
    for (int i = 0; i < 2 * rounds; i++) {
        MG_TRY((i % 2 == 0) == first ? start_send(m, other, data, bytes)
                                     : start_receive(m, other, data, bytes));
        MG_TRY(wait_all(m));
    }
    return MG_OK;
}

mg_status mg_exchange_bounce(uint32_t tag, int a, int b, size_t bytes, int rounds,
                             double *seconds) {
    *seconds = 0;
    if (ex.rank != a && ex.rank != b) return MG_OK;
    char *data = mg_alloc_zero(bytes);
    batch *m = new_batch(tag);
    const double start = mg_seconds();
    const mg_status status =
        data && m ? bounce(m, ex.rank == a, ex.rank == a ? b : a, data, bytes, rounds) : MG_OOM;
    *seconds = (mg_seconds() - start) / (2 * rounds);
    free_batch(m);
    mg_free(data);
    return status;
}
