/* The staged communicator: collectives among any devices, through host memory.
 *
 * A rank whose memory the host does not see copies its operand into a buffer on the host, takes
 * part in a local communicator there, and copies the result back. The table of collectives gives
 * the bytes in each direction, so this file has no code for single collectives. */
#include "comm/comm.h"
#include "core/alloc.h"

typedef struct buffer { /* on the host; grows to the largest operand seen */
    void *data;
    size_t bytes;
} buffer;

typedef struct staged_rank {
    mg_staged_rank end;
    buffer in, out; /* unused where the host sees the device's memory */
} staged_rank;

typedef struct staged_comm {
    mg_comm_over over;
    int first, here; /* the ranks that are given */
    staged_rank ranks[];
} staged_comm;

/* Contents are lost when the buffer grows. */
static mg_status buffer_reserve(buffer *b, size_t bytes) {
    if (b->data && b->bytes >= bytes) return MG_OK;
    mg_free(b->data);
    b->bytes = 0;
    b->data = mg_alloc(bytes ? bytes : 1);
    if (!b->data) return MG_OOM;
    b->bytes = bytes;
    return MG_OK;
}

/* One operand: `x` with its addresses replaced by those of the buffers, and the copies around it.
 */
static mg_status run_operand(staged_comm *c, int rank, const mg_collective_call *x, int i) {
    mg_comm *host = c->over.host;
    staged_rank *r = &c->ranks[rank - c->first];
    const size_t in_bytes = mg_collective_reads(x, i, rank, host->n);
    const size_t out_bytes = mg_collective_writes(x, i, rank, host->n);
    const mg_comm_operand *given = &x->operands[i];
    mg_comm_operand on_host = *given; /* with addresses that the host sees */
    mg_collective_call call = *x;
    call.operands = &on_host;
    call.n_operands = 1;
    if (r->end.copy_out && mg_collective_has_input(x, rank)) {
        MG_TRY(buffer_reserve(&r->in, in_bytes));
        MG_TRY(r->end.copy_out(r->end.device, r->in.data, given->in, in_bytes));
        on_host.in = r->in.data;
    }
    /* A rank without a result leaves its out alone: it may be a placeholder of another size. */
    const bool copies_back = r->end.copy_in && mg_collective_has_output(x, rank);
    if (copies_back) {
        MG_TRY(buffer_reserve(&r->out, out_bytes));
        on_host.out = r->out.data;
    }
    MG_TRY(host->api->run(host, rank, &call));
    return copies_back ? r->end.copy_in(r->end.device, given->out, r->out.data, out_bytes) : MG_OK;
}

/* The operands of a bucket are sent one after another, through the same buffers. */
static mg_status staged_run(mg_comm *comm, int rank, const mg_collective_call *x) {
    for (int i = 0; i < x->n_operands; i++) MG_TRY(run_operand((staged_comm *)comm, rank, x, i));
    return MG_OK;
}

/* No rank is in a call. */
static void staged_free(mg_comm *comm) {
    staged_comm *c = (staged_comm *)comm;
    for (int i = 0; i < c->here; i++) {
        mg_free(c->ranks[i].in.data);
        mg_free(c->ranks[i].out.data);
    }
    mg_comm_over_clear(&c->over);
    mg_free(c);
}

static const mg_comm_api api = {.kind = "staged",
                                .run = staged_run,
                                .barrier = mg_comm_over_barrier,
                                .abort = mg_comm_over_abort,
                                .reset = mg_comm_over_reset,
                                .check = mg_comm_over_check,
                                .free = staged_free};

mg_comm *mg_comm_staged_on(mg_comm *host, const mg_staged_rank *ranks, int first, int n) {
    if (!host) return NULL;
    staged_comm *c = mg_alloc_zero(sizeof *c + (size_t)n * sizeof *c->ranks);
    if (!c) {
        host->api->free(host);
        return NULL;
    }
    mg_comm_over_put(&c->over, &api, host);
    c->first = first;
    c->here = n;
    for (int i = 0; i < n; i++) c->ranks[i].end = ranks[i];
    return &c->over.comm;
}

mg_comm *mg_comm_staged(const mg_staged_rank *ranks, int n) {
    return mg_comm_staged_on(mg_comm_local(n), ranks, 0, n);
}
