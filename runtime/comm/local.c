/* The communicator between threads of one process: memory is shared, so a reduction is a sum.
 *
 * Each rank puts its addresses on the table and waits for all; then every rank adds up its part of
 * the elements, from rank 0 to the last, and writes the sum to everybody; then all wait again, so
 * that nobody goes on while his memory is read. A short vector each rank adds up for itself. */
#define _GNU_SOURCE
#include "comm/comm.h"
#include "core/alloc.h"
#include "core/placement.h"
#include "core/threads.h"
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

enum { SHORT = 2048, PIECE = 64 }; /* elements */

typedef struct entry {
    const void *in;
    void *out;
} entry;

typedef struct mail { /* from a rank to another: one message at a time */
    const void *in;   /* NULL: none, or taken */
    bool full;
} mail;

typedef struct local_comm {
    mg_comm comm;
    entry *table; /* per rank: a place for each tensor of a bucket */
    mail *mails;  /* n * n, from-major */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int arrived;
    uint64_t round; /* of the barrier */
    bool aborted;
} local_comm;

/* ---- waiting ---- */

static mg_status aborted(void) {
    return mg_fail(MG_COMM, "another device failed");
}

/* With the mutex held: until the round is over. */
static mg_status wait_round(local_comm *c, uint64_t round) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)c->comm.deadline;
    until.tv_nsec += (long)((c->comm.deadline - (double)(time_t)c->comm.deadline) * 1e9);
    if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
    while (c->round == round && !c->aborted) {
        if (pthread_cond_timedwait(&c->changed, &c->mutex, &until) != ETIMEDOUT) continue;
        if (c->round != round || c->aborted) break;
        c->aborted = true;
        pthread_cond_broadcast(&c->changed);
        return mg_fail(MG_COMM, "%d of %d devices did not answer within %g seconds",
                       c->comm.n - c->arrived, c->comm.n, c->comm.deadline);
    }
    return c->round == round ? aborted() : MG_OK;
}

static mg_status local_barrier(mg_comm *comm, int rank) {
    local_comm *c = (local_comm *)comm;
    mg_status status = MG_OK;
    const double start = mg_seconds();
    pthread_mutex_lock(&c->mutex);
    const uint64_t round = c->round;
    if (c->aborted) {
        status = aborted();
    } else if (++c->arrived == comm->n) {
        c->arrived = 0;
        c->round++;
        pthread_cond_broadcast(&c->changed);
    } else {
        status = wait_round(c, round);
    }
    pthread_mutex_unlock(&c->mutex);
    comm->waited[rank] += mg_seconds() - start;
    return status;
}

static void local_abort(mg_comm *comm) {
    local_comm *c = (local_comm *)comm;
    pthread_mutex_lock(&c->mutex);
    c->aborted = true;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->mutex);
}

static void local_reset(mg_comm *comm) {
    local_comm *c = (local_comm *)comm;
    pthread_mutex_lock(&c->mutex);
    c->aborted = false;
    c->arrived = 0;
    memset(c->mails, 0, (size_t)(comm->n * comm->n) * sizeof *c->mails);
    pthread_mutex_unlock(&c->mutex);
}

static mg_status local_check(mg_comm *comm) {
    local_comm *c = (local_comm *)comm;
    pthread_mutex_lock(&c->mutex);
    const bool was = c->aborted;
    pthread_mutex_unlock(&c->mutex);
    return was ? aborted() : MG_OK;
}

/* With the mutex held: until the mail is full (or empty). */
static mg_status wait_mail(local_comm *c, const mail *m, bool full) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)c->comm.deadline + 1;
    while (m->full != full && !c->aborted) {
        if (pthread_cond_timedwait(&c->changed, &c->mutex, &until) != ETIMEDOUT) continue;
        c->aborted = true;
        pthread_cond_broadcast(&c->changed);
        return mg_fail(MG_COMM, "another device did not answer within %g seconds",
                       c->comm.deadline);
    }
    return c->aborted ? aborted() : MG_OK;
}

static mg_status local_transfer(mg_comm *comm, int rank, int from, int to, const void *in,
                                void *out, int64_t bytes) {
    local_comm *c = (local_comm *)comm;
    const double start = mg_seconds();
    pthread_mutex_lock(&c->mutex);
    mail *m = &c->mails[from * comm->n + to];
    mg_status status;
    if (rank == from) {
        m->in = in;
        m->full = true;
        pthread_cond_broadcast(&c->changed);
        status = wait_mail(c, m, false); /* the memory is read until then */
    } else {
        status = wait_mail(c, m, true);
        if (status == MG_OK) {
            pthread_mutex_unlock(&c->mutex);
            memcpy(out, m->in, (size_t)bytes);
            pthread_mutex_lock(&c->mutex);
            m->full = false;
            comm->bytes_moved[rank] += bytes;
            pthread_cond_broadcast(&c->changed);
        }
    }
    pthread_mutex_unlock(&c->mutex);
    comm->waited[rank] += mg_seconds() - start;
    return status;
}

/* What rank r has put on the table. */
static entry *entry_of(const local_comm *c, int r, int i) {
    return &c->table[r * MG_BUCKET_TENSORS + i];
}

/* ---- reductions: pieces of elements, from the first rank to the last ---- */

#define REDUCER(name, type)                                                                        \
    static void name(type *restrict acc, const type *restrict in, int64_t n, int op) {             \
        if (op == MG_REDUCE_SUM)                                                                   \
            for (int64_t i = 0; i < n; i++) acc[i] = (type)(acc[i] + in[i]);                       \
        else if (op == MG_REDUCE_MAX)                                                              \
            for (int64_t i = 0; i < n; i++)                                                        \
                acc[i] = acc[i] >= in[i] || acc[i] != acc[i] ? acc[i] : in[i];                     \
        else                                                                                       \
            for (int64_t i = 0; i < n; i++)                                                        \
                acc[i] = acc[i] <= in[i] || acc[i] != acc[i] ? acc[i] : in[i];                     \
    }
REDUCER(reduce_f32, float)
REDUCER(reduce_f64, double)
REDUCER(reduce_i32, int32_t)
REDUCER(reduce_i64, int64_t)
REDUCER(reduce_u8, uint8_t)

/* The other dtypes, through double. */
static void reduce_any(void *acc, const void *in, int64_t n, mg_dtype t, int op) {
    double a[PIECE], b[PIECE];
    mg_to_double(a, acc, t, (size_t)n);
    mg_to_double(b, in, t, (size_t)n);
    reduce_f64(a, b, n, op);
    mg_from_double(acc, a, t, (size_t)n);
}

static void reduce_piece(void *acc, const void *in, int64_t n, mg_dtype t, int op) {
    switch (t) {
    case MG_F32: reduce_f32(acc, in, n, op); return;
    case MG_F64: reduce_f64(acc, in, n, op); return;
    case MG_I32: reduce_i32(acc, in, n, op); return;
    case MG_I64: reduce_i64(acc, in, n, op); return;
    case MG_U8: reduce_u8(acc, in, n, op); return;
    default: reduce_any(acc, in, n, t, op); return;
    }
}

/* Elements [first, last) of all ranks' `in` of entry e, to the `out` of ranks [from, to). */
static void reduce_range(const local_comm *c, int e, int64_t first, int64_t last, mg_dtype t,
                         int op, int from, int to) {
    const size_t size = mg_dtype_size(t);
    double room[PIECE];
    for (int64_t i = first; i < last; i += PIECE) {
        const int64_t n = last - i < PIECE ? last - i : PIECE;
        const size_t at = (size_t)i * size, bytes = (size_t)n * size;
        memcpy(room, (const char *)entry_of(c, 0, e)->in + at, bytes);
        for (int r = 1; r < c->comm.n; r++)
            reduce_piece(room, (const char *)entry_of(c, r, e)->in + at, n, t, op);
        for (int r = from; r < to; r++) memcpy((char *)entry_of(c, r, e)->out + at, room, bytes);
    }
}

/* The part of `count` elements that a rank adds up: whole pieces, so that no two ranks write to one
 * cache line. */
static int64_t part_of(const mg_comm *comm, int rank, int64_t count, int64_t *last) {
    const int64_t part = (count / comm->n + PIECE) / PIECE * PIECE;
    const int64_t first = rank * part < count ? rank * part : count;
    *last = first + part < count ? first + part : count;
    return first;
}

static mg_status local_reduce(mg_comm *comm, int rank, int root, const void *in, void *out,
                              int64_t count, mg_dtype t, int op) {
    local_comm *c = (local_comm *)comm;
    int64_t last;
    *entry_of(c, rank, 0) = (entry){in, out};
    MG_TRY(local_barrier(comm, rank));
    const double start = mg_seconds();
    const int64_t first = part_of(comm, rank, count, &last);
    reduce_range(c, 0, first, last, t, op, root, root + 1);
    comm->bytes_moved[rank] += comm->n * (last - first) * (int64_t)mg_dtype_size(t);
    comm->busy[rank] += mg_seconds() - start;
    return local_barrier(comm, rank);
}

static mg_status local_broadcast(mg_comm *comm, int rank, int root, const void *in, void *out,
                                 int64_t bytes) {
    local_comm *c = (local_comm *)comm;
    *entry_of(c, rank, 0) = (entry){in, out};
    MG_TRY(local_barrier(comm, rank));
    const double start = mg_seconds();
    if (rank != root) {
        memcpy(out, entry_of(c, root, 0)->in, (size_t)bytes);
        comm->bytes_moved[rank] += bytes;
    }
    comm->busy[rank] += mg_seconds() - start;
    return local_barrier(comm, rank);
}

/* This rank's share of entry e. */
static void all_reduce_entry(local_comm *c, int rank, int e, int64_t count, mg_dtype t, int op) {
    const int64_t n = c->comm.n, size = (int64_t)mg_dtype_size(t);
    if (count <= SHORT) {
        reduce_range(c, e, 0, count, t, op, rank, rank + 1);
        c->comm.bytes_moved[rank] += (n - 1) * count * size;
        return;
    }
    int64_t last;
    const int64_t first = part_of(&c->comm, rank, count, &last);
    reduce_range(c, e, first, last, t, op, 0, c->comm.n);
    c->comm.bytes_moved[rank] += 2 * (n - 1) * (last - first) * size;
}

/* One wait before and one after, however many there are. The list goes to the table: whoever gives
 * up leaves, and others may still read it. */
static mg_status local_all_reduce_many(mg_comm *comm, int rank, const mg_reduction *list, int n,
                                       mg_dtype t, int op) {
    local_comm *c = (local_comm *)comm;
    for (int i = 0; i < n; i++) *entry_of(c, rank, i) = (entry){list[i].in, list[i].out};
    MG_TRY(local_barrier(comm, rank));
    const double start = mg_seconds();
    for (int i = 0; i < n; i++) all_reduce_entry(c, rank, i, list[i].count, t, op);
    comm->busy[rank] += mg_seconds() - start;
    return local_barrier(comm, rank);
}

static mg_status local_all_reduce(mg_comm *comm, int rank, const void *in, void *out, int64_t count,
                                  mg_dtype t, int op) {
    return local_all_reduce_many(comm, rank, &(mg_reduction){in, out, count}, 1, t, op);
}

static mg_status local_all_gather(mg_comm *comm, int rank, const void *in, void *out, int64_t outer,
                                  const int64_t *bytes) {
    local_comm *c = (local_comm *)comm;
    *entry_of(c, rank, 0) = (entry){in, out};
    MG_TRY(local_barrier(comm, rank));
    const double start = mg_seconds();
    char *to = out;
    for (int64_t o = 0; o < outer; o++)
        for (int r = 0; r < comm->n; to += bytes[r++]) {
            const char *from = entry_of(c, r, 0)->in;
            if (bytes[r]) memcpy(to, from + o * bytes[r], (size_t)bytes[r]);
            if (r != rank) comm->bytes_moved[rank] += bytes[r];
        }
    comm->busy[rank] += mg_seconds() - start;
    return local_barrier(comm, rank);
}

/* ---- life ---- */

static void local_free(mg_comm *comm) {
    local_comm *c = (local_comm *)comm;
    if (!c) return;
    pthread_mutex_destroy(&c->mutex);
    pthread_cond_destroy(&c->changed);
    mg_free(c->table);
    mg_free(c->mails);
    mg_comm_clear(comm);
    mg_free(c);
}

static const mg_comm_api api = {.size = sizeof(mg_comm_api),
                                .kind = "local",
                                .all_reduce = local_all_reduce,
                                .all_reduce_many = local_all_reduce_many,
                                .reduce = local_reduce,
                                .broadcast = local_broadcast,
                                .all_gather = local_all_gather,
                                .barrier = local_barrier,
                                .transfer = local_transfer,
                                .abort = local_abort,
                                .reset = local_reset,
                                .check = local_check,
                                .free = local_free};

mg_comm *mg_comm_local(int n) {
    local_comm *c = mg_alloc_zero(sizeof *c);
    pthread_condattr_t clock;
    if (!c) return NULL;
    const mg_status status = mg_comm_set_up(&c->comm, &api, n);
    c->table = mg_alloc_zero((size_t)n * MG_BUCKET_TENSORS * sizeof *c->table);
    c->mails = mg_alloc_zero((size_t)(n * n) * sizeof *c->mails);
    pthread_mutex_init(&c->mutex, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&c->changed, &clock);
    pthread_condattr_destroy(&clock);
    if (status == MG_OK && c->table && c->mails) return &c->comm;
    local_free(&c->comm);
    return NULL;
}
