/* The communicator between threads of one process, which see each other's memory.
 *
 * A collective has three parts. Each rank writes the addresses of its operands into a table and
 * waits for all others. Then it computes or copies its part, reading the others' memory. Then all
 * wait again, so that no rank changes or frees memory that is still read.
 *
 * Reductions always add from rank 0 to the last, on whichever rank, so that the bits do not depend
 * on timing. Long vectors are divided into parts, one per rank, and each rank writes its part of
 * the result to all ranks. For short vectors each rank computes the whole result for itself. */
#define _GNU_SOURCE
#include "comm/comm.h"
#include "comm/reduce.h"
#include "core/activity.h"
#include "core/alloc.h"
#include "core/placement.h"
#include "core/threads.h"
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum {
    SHORT = 2048, /* up to this many elements each rank computes the whole all-reduce for itself */
    PIECE = 64 /* elements that are reduced at a time, in a buffer on the stack; ranks reduce whole
                  pieces, so that no two write to one cache line */
};

/* The message from one rank to another: transfers between two ranks happen one at a time. */
typedef struct mailbox {
    const void *in; /* the sender's memory, while full */
    bool full;      /* sent, and not yet copied by the receiver */
} mailbox;

typedef struct local_comm {
    mg_comm comm;
    mg_comm_operand *table; /* per rank: MG_BUCKET_TENSORS operands */
    mailbox *mailboxes;     /* n * n: sender * n + receiver */
    pthread_mutex_t mutex;  /* protects the mailboxes and the members below */
    pthread_cond_t changed; /* signalled when any of them changes */
    int arrived;            /* ranks that wait in the barrier ... */
    bool *has_arrived;      /* ... and which ones */
    uint64_t round;         /* barriers that are over */
    bool aborted;
} local_comm;

/* ---- waiting ---- */

/* The error of a rank that has not failed itself. */
static mg_status aborted(void) {
    return mg_fail(MG_COMM, "another device failed");
}

/* With the mutex held: the devices that have not come to the barrier, " cpu:1 cpu:3". */
static void name_missing(const local_comm *c, char *text, size_t room) {
    size_t n = 0;
    text[0] = 0;
    for (int r = 0; r < c->comm.n && n + 1 < room; r++) {
        if (c->has_arrived[r]) continue;
        if (c->comm.names[r])
            snprintf(text + n, room - n, " %s", c->comm.names[r]);
        else
            snprintf(text + n, room - n, " device %d of %d", r + 1, c->comm.n);
        n += strlen(text + n);
    }
}

/* For mg_activity_about. */
static void describe_missing(const void *comm, int64_t round, char *text, size_t room) {
    local_comm *c = (local_comm *)(uintptr_t)comm;
    char missing[200] = "";
    pthread_mutex_lock(&c->mutex);
    if (c->round == (uint64_t)round) name_missing(c, missing, sizeof missing);
    pthread_mutex_unlock(&c->mutex);
    snprintf(text, room, "for%s", missing);
}

/* With the mutex held: waits until the round of the barrier is over. The rank that reaches the
 * deadline aborts the communicator. */
static mg_status wait_for_round(local_comm *c, uint64_t round) {
    const struct timespec until = mg_time_after(c->comm.deadline);
    while (c->round == round && !c->aborted) {
        if (pthread_cond_timedwait(&c->changed, &c->mutex, &until) != ETIMEDOUT) continue;
        if (c->round != round || c->aborted) break;
        c->aborted = true;
        pthread_cond_broadcast(&c->changed);
        char missing[200];
        name_missing(c, missing, sizeof missing);
        return mg_fail(MG_COMM, "%d of %d devices did not answer within %g seconds:%s",
                       c->comm.n - c->arrived, c->comm.n, c->comm.deadline, missing);
    }
    return c->round == round ? aborted() : MG_OK;
}

static void clear_arrivals(local_comm *c) {
    c->arrived = 0;
    memset(c->has_arrived, 0, (size_t)c->comm.n * sizeof *c->has_arrived);
}

/* The last rank to arrive ends the round. A rank may be in the next round already while others
 * still leave this one, so rounds are numbered. */
static mg_status local_barrier(mg_comm *comm, int rank) {
    local_comm *c = (local_comm *)comm;
    mg_status status = MG_OK;
    const double start = mg_seconds();
    const int depth = mg_activity_begin(MG_SPAN_WAIT, "waits");
    pthread_mutex_lock(&c->mutex);
    const uint64_t round = c->round;
    c->has_arrived[rank] = true;
    if (c->aborted) {
        status = aborted();
    } else if (++c->arrived == comm->n) {
        clear_arrivals(c);
        c->round++;
        pthread_cond_broadcast(&c->changed);
    } else {
        pthread_mutex_unlock(&c->mutex); /* the lock of the record comes first */
        mg_activity_about(describe_missing, c, (int64_t)round);
        pthread_mutex_lock(&c->mutex);
        status = wait_for_round(c, round);
    }
    pthread_mutex_unlock(&c->mutex);
    mg_activity_leave(depth);
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

/* Removes the remains of an aborted call. No rank is in a call. */
static void local_reset(mg_comm *comm) {
    local_comm *c = (local_comm *)comm;
    pthread_mutex_lock(&c->mutex);
    c->aborted = false;
    clear_arrivals(c);
    memset(c->mailboxes, 0, (size_t)(comm->n * comm->n) * sizeof *c->mailboxes);
    pthread_mutex_unlock(&c->mutex);
}

static mg_status local_check(mg_comm *comm) {
    local_comm *c = (local_comm *)comm;
    pthread_mutex_lock(&c->mutex);
    const bool was = c->aborted;
    pthread_mutex_unlock(&c->mutex);
    return was ? aborted() : MG_OK;
}

/* ---- transfers ---- */

/* With the mutex held: waits until the mailbox is full, or empty. Its deadline is one second later
 * than that of a barrier, so that a rank waiting in a barrier reports first. */
static mg_status wait_for_mailbox(local_comm *c, const mailbox *m, bool full) {
    const struct timespec until = mg_time_after(c->comm.deadline + 1);
    while (m->full != full && !c->aborted) {
        if (pthread_cond_timedwait(&c->changed, &c->mutex, &until) != ETIMEDOUT) continue;
        if (m->full == full || c->aborted) break; /* it changed just before the deadline */
        c->aborted = true;
        pthread_cond_broadcast(&c->changed);
        return mg_fail(MG_COMM, "another device did not answer within %g seconds",
                       c->comm.deadline);
    }
    return c->aborted ? aborted() : MG_OK;
}

/* With the mutex held. Returns when the receiver has read the memory. */
static mg_status send_operand(local_comm *c, mailbox *m, const void *in) {
    m->in = in;
    m->full = true;
    pthread_cond_broadcast(&c->changed);
    return wait_for_mailbox(c, m, false);
}

/* With the mutex held, but not while copying. */
static mg_status receive_operand(local_comm *c, mailbox *m, void *out, size_t bytes) {
    MG_TRY(wait_for_mailbox(c, m, true));
    pthread_mutex_unlock(&c->mutex);
    memcpy(out, m->in, bytes);
    pthread_mutex_lock(&c->mutex);
    m->full = false;
    pthread_cond_broadcast(&c->changed);
    return MG_OK;
}

/* For mg_activity_about. */
static void describe_peer(const void *comm, int64_t peer, char *text, size_t room) {
    const local_comm *c = comm;
    const char *name = c->comm.names[peer];
    snprintf(text, room, "for %s", name ? name : "another device");
}

static mg_status local_transfer(local_comm *c, int rank, const mg_collective_call *x) {
    mailbox *m = &c->mailboxes[x->root * c->comm.n + x->to];
    const double start = mg_seconds();
    mg_status status = MG_OK;
    const int depth = mg_activity_begin(MG_SPAN_WAIT, "waits");
    mg_activity_about(describe_peer, c, rank == x->root ? x->to : x->root);
    pthread_mutex_lock(&c->mutex);
    for (int i = 0; i < x->n_operands && status == MG_OK; i++)
        status = rank == x->root ? send_operand(c, m, x->operands[i].in)
                                 : receive_operand(c, m, x->operands[i].out,
                                                   mg_collective_writes(x, i, rank, c->comm.n));
    pthread_mutex_unlock(&c->mutex);
    mg_activity_leave(depth);
    if (status == MG_OK) mg_comm_count_moved(&c->comm, rank, x);
    c->comm.waited[rank] += mg_seconds() - start;
    return status;
}

/* ---- reductions: pieces of elements, from the first rank to the last ---- */

/* Operand i of rank r, from the table. */
static mg_comm_operand *operand_of(const local_comm *c, int r, int i) {
    return &c->table[r * MG_BUCKET_TENSORS + i];
}

/* Reduces elements [first, last) of operand i over all ranks, and writes them to the outs of ranks
 * [from, to). */
static void reduce_range(const local_comm *c, int i, int64_t first, int64_t last,
                         const mg_collective_call *x, int from, int to) {
    const size_t size = mg_dtype_size(x->dtype);
    double sums[PIECE]; /* large enough for any dtype */
    for (int64_t e = first; e < last; e += PIECE) {
        const int64_t n = last - e < PIECE ? last - e : PIECE;
        const size_t at = (size_t)e * size, bytes = (size_t)n * size;
        memcpy(sums, (const char *)operand_of(c, 0, i)->in + at, bytes);
        for (int r = 1; r < c->comm.n; r++)
            mg_reduce(sums, (const char *)operand_of(c, r, i)->in + at, n, x->dtype, x->reduction);
        for (int r = from; r < to; r++) memcpy((char *)operand_of(c, r, i)->out + at, sums, bytes);
    }
}

/* Every rank reduces a part, and writes it to the root. */
static void reduce_to_root(local_comm *c, int rank, const mg_collective_call *x, int i) {
    const int64_t count = x->operands[i].count, n = c->comm.n;
    int64_t last;
    const int64_t first = mg_comm_share(c->comm.n, rank, count, PIECE, &last);
    reduce_range(c, i, first, last, x, x->root, x->root + 1);
    c->comm.bytes_moved[rank] += n * (last - first) * (int64_t)mg_dtype_size(x->dtype);
}

/* Above SHORT elements every rank reduces a part and writes it to all ranks. Up to SHORT each rank
 * reduces all elements for itself: so few are not worth dividing. */
static void reduce_to_all(local_comm *c, int rank, const mg_collective_call *x, int i) {
    const int64_t n = c->comm.n, size = (int64_t)mg_dtype_size(x->dtype);
    const int64_t count = x->operands[i].count;
    if (count <= SHORT) {
        reduce_range(c, i, 0, count, x, rank, rank + 1);
        c->comm.bytes_moved[rank] += (n - 1) * count * size;
        return;
    }
    int64_t last;
    const int64_t first = mg_comm_share(c->comm.n, rank, count, PIECE, &last);
    reduce_range(c, i, first, last, x, 0, c->comm.n);
    c->comm.bytes_moved[rank] += 2 * (n - 1) * (last - first) * size;
}

/* ---- the other collectives ---- */

/* Broadcast: every rank but the root copies from the root's memory. */
static void fetch_from_root(const local_comm *c, int rank, const mg_collective_call *x, int i) {
    const size_t bytes = mg_collective_writes(x, i, rank, c->comm.n);
    if (rank != x->root) memcpy(x->operands[i].out, operand_of(c, x->root, i)->in, bytes);
}

/* All-gather: every rank copies all blocks, its own included. */
static void gather_blocks(const local_comm *c, const mg_collective_call *x, int i) {
    char *to = x->operands[i].out;
    for (int64_t o = 0; o < x->outer; o++)
        for (int r = 0; r < c->comm.n; r++) {
            const size_t bytes = (size_t)x->counts[r] * mg_dtype_size(x->dtype);
            const char *from = operand_of(c, r, i)->in;
            if (bytes) memcpy(to, from + (size_t)o * bytes, bytes);
            to += bytes;
        }
}

/* This rank's part of operand i, while all ranks' operands are in the table. */
static mg_status run_operand(local_comm *c, int rank, const mg_collective_call *x, int i) {
    switch (x->kind) {
    case MG_ALL_REDUCE: reduce_to_all(c, rank, x, i); return MG_OK;
    case MG_REDUCE: reduce_to_root(c, rank, x, i); return MG_OK;
    case MG_BROADCAST: fetch_from_root(c, rank, x, i); return MG_OK;
    case MG_ALL_GATHER: gather_blocks(c, x, i); return MG_OK;
    default: return mg_fail(MG_INTERNAL, "local: no collective %d", (int)x->kind);
    }
}

/* One barrier before and one after all operands. The operands are copied into the table, because a
 * rank that gives up may return from this function while others still read them. */
static mg_status local_run(mg_comm *comm, int rank, const mg_collective_call *x) {
    local_comm *c = (local_comm *)comm;
    if (mg_collective_is_point_to_point(x->kind)) return local_transfer(c, rank, x);
    for (int i = 0; i < x->n_operands; i++) *operand_of(c, rank, i) = x->operands[i];
    MG_TRY(local_barrier(comm, rank));
    const double start = mg_seconds();
    for (int i = 0; i < x->n_operands; i++) MG_TRY(run_operand(c, rank, x, i));
    mg_comm_count_moved(comm, rank, x);
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
    mg_free(c->mailboxes);
    mg_free(c->has_arrived);
    mg_comm_clear(comm);
    mg_free(c);
}

static const mg_comm_api api = {.kind = "local",
                                .run = local_run,
                                .barrier = local_barrier,
                                .abort = local_abort,
                                .reset = local_reset,
                                .check = local_check,
                                .free = local_free};

mg_comm *mg_comm_local(int n) {
    local_comm *c = mg_alloc_zero(sizeof *c);
    if (!c) return NULL;
    const mg_status status = mg_comm_set_up(&c->comm, &api, n);
    c->table = mg_alloc_zero((size_t)n * MG_BUCKET_TENSORS * sizeof *c->table);
    c->mailboxes = mg_alloc_zero((size_t)(n * n) * sizeof *c->mailboxes);
    c->has_arrived = mg_alloc_zero((size_t)n * sizeof *c->has_arrived);
    pthread_mutex_init(&c->mutex, NULL);
    mg_cond_init(&c->changed);
    if (status == MG_OK && c->table && c->mailboxes && c->has_arrived) return &c->comm;
    local_free(&c->comm);
    return NULL;
}
