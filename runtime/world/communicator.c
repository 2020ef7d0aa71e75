/* The communicator of a joint step: the devices of all ranks of the world.
 *
 * The devices of one process meet, each with a thread, in a local communicator. Then the thread of
 * the first one takes part in the exchange with the other processes for all of them: it adds up
 * their terms, sends, receives, and writes all their results. The others wait until it is done. */
#include "comm/reduce.h"
#include "core/alloc.h"
#include "core/threads.h"
#include "world/exchange.h"
#include "world/overlap.h"
#include "world/world.h"
#include <string.h>

typedef struct buffer { /* grows to the largest call seen */
    char *data;
    size_t bytes;
} buffer;

typedef struct world_comm {
    mg_comm comm;
    mg_channel channel;
    mg_comm *local;         /* of the devices here */
    int first, here;        /* their ranks in comm */
    mg_comm_operand *table; /* per device here: MG_BUCKET_TENSORS operands */
    int *firsts;            /* per process and one more: its first device */
    size_t *bytes;          /* per process, for gathering */
    buffer values;
    mg_overlap *overlap; /* of a single device here: reductions beside the computation */
} world_comm;

static mg_status reserve(buffer *b, size_t bytes) {
    if (b->bytes >= bytes) return MG_OK;
    mg_free(b->data);
    b->bytes = 0;
    b->data = mg_alloc(bytes);
    if (!b->data) return MG_OOM;
    b->bytes = bytes;
    return MG_OK;
}

/* The process that device number `rank` belongs to. */
static int process_of(const world_comm *c, int rank) {
    int p = 0;
    while (rank >= c->firsts[p + 1]) p++;
    return p;
}

/* Operand i of the k-th device here. */
static mg_comm_operand *operand_of(const world_comm *c, int k, int i) {
    return &c->table[k * MG_BUCKET_TENSORS + i];
}

static bool is_here(const world_comm *c, int rank) {
    return rank >= c->first && rank < c->first + c->here;
}

/* ---- what the first device's thread does for all ---- */

/* Adds up the terms of the devices here, operand after operand. */
static void add_local_terms(const world_comm *c, const mg_collective_call *x, char *to) {
    for (int i = 0; i < x->n_operands; i++) {
        const int64_t n = x->operands[i].count;
        memcpy(to, operand_of(c, 0, i)->in, (size_t)n * mg_dtype_size(x->dtype));
        for (int k = 1; k < c->here; k++)
            mg_reduce(to, operand_of(c, k, i)->in, n, x->dtype, x->reduction);
        to += (size_t)n * mg_dtype_size(x->dtype);
    }
}

static void hand_out(const world_comm *c, const mg_collective_call *x, const char *from) {
    for (int i = 0; i < x->n_operands; i++) {
        const size_t bytes = (size_t)x->operands[i].count * mg_dtype_size(x->dtype);
        for (int k = 0; k < c->here; k++)
            if (x->kind == MG_ALL_REDUCE || c->first + k == x->root)
                memcpy(operand_of(c, k, i)->out, from, bytes);
        from += bytes;
    }
}

/* A single tensor of a single device needs no copies. */
static mg_status reduce(world_comm *c, const mg_collective_call *x) {
    const int root = x->kind == MG_REDUCE ? process_of(c, x->root) : -1;
    if (x->n_operands == 1 && c->here == 1)
        return mg_exchange_reduce(mg_channel_tag(&c->channel), x->operands->in, x->operands->out,
                                  x->operands->count, x->dtype, x->reduction, root);
    int64_t count = 0;
    for (int i = 0; i < x->n_operands; i++) count += x->operands[i].count;
    MG_TRY(reserve(&c->values, (size_t)count * mg_dtype_size(x->dtype)));
    add_local_terms(c, x, c->values.data);
    MG_TRY(mg_exchange_reduce(mg_channel_tag(&c->channel), c->values.data, c->values.data, count,
                              x->dtype, x->reduction, root));
    if (root < 0 || is_here(c, x->root)) hand_out(c, x, c->values.data);
    return MG_OK;
}

/* From the root to one device of each other process, which hands it to those beside it. */
static mg_status broadcast(world_comm *c, const mg_collective_call *x, int i) {
    const size_t bytes = (size_t)x->operands[i].count * mg_dtype_size(x->dtype);
    const bool has = is_here(c, x->root);
    void *data = has ? (void *)operand_of(c, x->root - c->first, i)->in : operand_of(c, 0, i)->out;
    MG_TRY(mg_exchange_broadcast(mg_channel_tag(&c->channel), process_of(c, x->root), data, bytes));
    for (int k = 0; k < c->here; k++)
        if (c->first + k != x->root && operand_of(c, k, i)->out != data)
            memcpy(operand_of(c, k, i)->out, data, bytes);
    return MG_OK;
}

/* Bytes of the part of device k. */
static size_t part_bytes(const mg_collective_call *x, int k) {
    return (size_t)(x->outer * x->counts[k]) * mg_dtype_size(x->dtype);
}

/* Puts the devices' blocks, which lie one after another, into their places in a result. */
static void interleave(const world_comm *c, const mg_collective_call *x, const char *from,
                       char *to) {
    size_t row = 0, at = 0;
    for (int k = 0; k < c->comm.n; k++) row += (size_t)x->counts[k] * mg_dtype_size(x->dtype);
    for (int k = 0; k < c->comm.n; k++) {
        const size_t bytes = (size_t)x->counts[k] * mg_dtype_size(x->dtype);
        for (int64_t o = 0; o < x->outer && bytes; o++, from += bytes)
            memcpy(to + (size_t)o * row + at, from, bytes);
        at += bytes;
    }
}

/* With a single block before the gathered axis, the result has the order in which parts arrive. */
static mg_status gather(world_comm *c, const mg_collective_call *x, int i) {
    size_t own = 0, all = 0;
    for (int p = 0; p < mg_world_size(); p++) {
        if (p == mg_world_rank()) own = all;
        c->bytes[p] = 0;
        for (int k = c->firsts[p]; k < c->firsts[p + 1]; k++) c->bytes[p] += part_bytes(x, k);
        all += c->bytes[p];
    }
    char *to = operand_of(c, 0, i)->out;
    if (x->outer > 1) {
        MG_TRY(reserve(&c->values, all));
        to = c->values.data;
    }
    for (int k = 0; k < c->here; k++) {
        const size_t bytes = part_bytes(x, c->first + k);
        if (bytes) memcpy(to + own, operand_of(c, k, i)->in, bytes);
        own += bytes;
    }
    MG_TRY(mg_exchange_gather(mg_channel_tag(&c->channel), to, c->bytes));
    for (int k = 0; k < c->here; k++) {
        if (x->outer > 1)
            interleave(c, x, to, operand_of(c, k, i)->out);
        else if (k > 0 && all)
            memcpy(operand_of(c, k, i)->out, to, all);
    }
    return MG_OK;
}

static mg_status run_for_all(world_comm *c, const mg_collective_call *x) {
    if (x->kind == MG_ALL_REDUCE || x->kind == MG_REDUCE) return reduce(c, x);
    for (int i = 0; i < x->n_operands; i++) {
        if (x->kind == MG_BROADCAST)
            MG_TRY(broadcast(c, x, i));
        else if (x->kind == MG_ALL_GATHER)
            MG_TRY(gather(c, x, i));
        else
            return mg_fail(MG_INTERNAL, "world: no collective %d", (int)x->kind);
    }
    return MG_OK;
}

/* ---- the interface ---- */

/* The whole time counts as busy, though part of it is waiting for other processes. */
static mg_status world_run(mg_comm *comm, int rank, const mg_collective_call *x) {
    world_comm *c = (world_comm *)comm;
    const int own = rank - c->first;
    /* Copied, because a thread that gives up may leave while others still read them. */
    for (int i = 0; i < x->n_operands; i++) *operand_of(c, own, i) = x->operands[i];
    if (c->here > 1) MG_TRY(c->local->api->barrier(c->local, own));
    if (own == 0) {
        const double start = mg_seconds();
        MG_TRY(run_for_all(c, x));
        comm->busy[rank] += mg_seconds() - start;
    }
    for (int i = 0; i < x->n_operands; i++)
        comm->bytes_moved[rank] += (int64_t)mg_collective_writes(x, i, rank, comm->n);
    return c->here > 1 ? c->local->api->barrier(c->local, own) : MG_OK;
}

/* Reductions that are worth handing to another thread. */
enum { LARGE = 64 << 10 }; /* bytes */

static mg_status world_begin(mg_comm *comm, int rank, const mg_collective_call *x) {
    world_comm *c = (world_comm *)comm;
    size_t bytes = 0;
    for (int i = 0; i < x->n_operands; i++) bytes += mg_collective_reads(x, i, rank, comm->n);
    if (x->kind != MG_ALL_REDUCE || bytes < LARGE || c->here > 1) return world_run(comm, rank, x);
    for (int i = 0; i < x->n_operands; i++)
        comm->bytes_moved[rank] += (int64_t)mg_collective_writes(x, i, rank, comm->n);
    return mg_overlap_begin(c->overlap, mg_channel_tag(&c->channel), x);
}

static mg_status world_settle(mg_comm *comm, int rank, const mg_memory *read, int n) {
    world_comm *c = (world_comm *)comm;
    if (!mg_overlap_concerns(c->overlap, read, n)) return MG_OK;
    const double start = mg_seconds();
    const mg_status status = mg_overlap_settle(c->overlap, read, n);
    comm->waited[rank] += mg_seconds() - start;
    comm->beside[rank] = mg_overlap_seconds(c->overlap);
    return status;
}

static mg_status world_barrier(mg_comm *comm, int rank) {
    world_comm *c = (world_comm *)comm;
    MG_TRY(c->local->api->barrier(c->local, rank - c->first));
    if (rank == c->first) MG_TRY(mg_world_agree(0));
    return c->local->api->barrier(c->local, rank - c->first);
}

/* Other processes cannot be told that this step alone has failed: they may be in any collective of
 * it. */
static void world_abort(mg_comm *comm) {
    world_comm *c = (world_comm *)comm;
    c->local->api->abort(c->local);
    mg_world_fail(mg_error_message());
}

static void world_reset(mg_comm *comm) {
    world_comm *c = (world_comm *)comm;
    c->local->api->reset(c->local);
    mg_overlap_drop(c->overlap);
}

static mg_status world_check(mg_comm *comm) {
    world_comm *c = (world_comm *)comm;
    MG_TRY(mg_world_check());
    return c->local->api->check(c->local);
}

static void world_free(mg_comm *comm) {
    world_comm *c = (world_comm *)comm;
    if (!c) return;
    mg_overlap_free(c->overlap);
    if (c->local) c->local->api->free(c->local);
    mg_free(c->table);
    mg_free(c->firsts);
    mg_free(c->bytes);
    mg_free(c->values.data);
    mg_comm_clear(comm);
    mg_free(c);
}

static const mg_comm_api api = {.kind = "world",
                                .run = world_run,
                                .begin = world_begin,
                                .settle = world_settle,
                                .barrier = world_barrier,
                                .abort = world_abort,
                                .reset = world_reset,
                                .check = world_check,
                                .free = world_free};

mg_comm *mg_world_connect(const int64_t *here) {
    const int size = mg_world_size(), rank = mg_world_rank();
    const mg_channel channel = mg_channel_open();
    world_comm *c = mg_alloc_zero(sizeof *c);
    if (!c) return NULL;
    c->channel = channel;
    c->firsts = mg_alloc_zero((size_t)(size + 1) * sizeof *c->firsts);
    c->bytes = mg_alloc_zero((size_t)size * sizeof *c->bytes);
    for (int p = 0; c->firsts && p < size; p++) c->firsts[p + 1] = c->firsts[p] + (int)here[p];
    if (c->firsts) c->first = c->firsts[rank];
    c->here = (int)here[rank];
    c->table = mg_alloc_zero((size_t)c->here * MG_BUCKET_TENSORS * sizeof *c->table);
    c->local = mg_comm_local(c->here);
    c->overlap = mg_overlap_new();
    if (c->firsts && c->bytes && c->table && c->local && c->overlap &&
        mg_comm_set_up(&c->comm, &api, c->firsts[size]) == MG_OK)
        return &c->comm;
    world_free(&c->comm);
    return NULL;
}
