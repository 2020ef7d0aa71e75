/* Collectives among cuda devices that read each other's memory: several devices on one GPU, or GPUs
 * with peer access.
 *
 * The devices' threads meet at a barrier on the host, which moves no data. Before it, each rank
 * writes down the addresses of its operands and records an event on its stream. After it, each
 * stream waits for the other ranks' events, and the host waits for nothing. A second barrier with
 * events makes every stream wait until all ranks have read its operand, so that later work cannot
 * overwrite the operand too early. */
#include "device/cuda/comm/comm.h"
#include "core/alloc.h"
#include "core/placement.h"
#include "device/cuda/kernels/params.h"
#include "device/cuda/context/context.h"

enum { THREADS = 256 };

typedef struct rank {
    mg_device *device;
    CUevent ready; /* on its stream: its operand is computed */
    CUevent done;  /* on its stream: it has read the other ranks' operands */
    CUfunction reduce[MG_N_DTYPES];
    const void *in; /* the operands of the current collective, for the other ranks to read */
    void *out;
} rank;

typedef struct cuda_comm {
    mg_comm_over over;
    rank ranks[];
} cuda_comm;

static cuda_comm *comm_of(mg_comm *comm) {
    return (cuda_comm *)comm;
}

/* The stream on which a rank's work is enqueued. */
static CUstream stream_of(const rank *r) {
    return mg_cuda_of(r->device)->stream;
}

static CUdeviceptr address(const void *data) {
    return (CUdeviceptr)(uintptr_t)data;
}

/* ---- enqueueing on a rank's stream ----
 *
 * The device's turn is held, because otherwise the work could become part of a graph that another
 * thread is capturing on that stream. */

/* Locks and unlocks the turn of a rank's device. */
static void take_turn(const rank *r) {
    pthread_mutex_lock(&mg_cuda_of(r->device)->turn);
}

static void end_turn(const rank *r) {
    pthread_mutex_unlock(&mg_cuda_of(r->device)->turn);
}

/* Marks the present end of the rank's stream. */
static mg_status record_event(const rank *r, CUevent event) {
    take_turn(r);
    const CUresult result = mg_cu.cuEventRecord(event, stream_of(r));
    end_turn(r);
    return mg_cuda_check(r->device, result, "record an event");
}

/* Makes the rank's stream wait for an event, perhaps of another rank. */
static mg_status wait_for_event(const rank *r, CUevent event) {
    take_turn(r);
    const CUresult result = mg_cu.cuStreamWaitEvent(stream_of(r), event, 0);
    end_turn(r);
    return mg_cuda_check(r->device, result, "wait for an event");
}

static mg_status copy_bytes(const rank *r, void *dst, const void *src, int64_t bytes) {
    take_turn(r);
    const mg_status status = mg_cuda_copy(r->device, dst, src, (size_t)bytes);
    end_turn(r);
    return status;
}

/* Enqueues a copy of rows with different pitches. */
static mg_status copy_rows(const rank *r, const CUDA_MEMCPY2D *rows) {
    take_turn(r);
    const CUresult result = mg_cu.cuMemcpy2DAsync(rows, stream_of(r));
    end_turn(r);
    return mg_cuda_check(r->device, result, "gather");
}

static mg_status launch_on_rank(const rank *r, CUfunction f, int64_t n, const void *params) {
    take_turn(r);
    const mg_status status =
        mg_cuda_launch(r->device, f, mg_cuda_blocks(r->device, n, THREADS), THREADS, 0, params);
    end_turn(r);
    return status;
}

/* ---- barriers ---- */

/* Publishes this rank's operands and waits for those of all ranks. Later work on this rank's stream
 * runs after all operands were computed. */
static mg_status begin_collective(cuda_comm *c, int i, const void *in, void *out) {
    rank *r = &c->ranks[i];
    r->in = in;
    r->out = out;
    MG_TRY(record_event(r, r->ready));
    MG_TRY(mg_comm_over_barrier(&c->over.comm, i));
    for (int k = 0; k < c->over.comm.n; k++)
        if (k != i) MG_TRY(wait_for_event(r, c->ranks[k].ready));
    return MG_OK;
}

/* Later work on this rank's stream runs after all ranks have read its operand. */
static mg_status end_collective(cuda_comm *c, int i) {
    const rank *r = &c->ranks[i];
    MG_TRY(record_event(r, r->done));
    MG_TRY(mg_comm_over_barrier(&c->over.comm, i));
    for (int k = 0; k < c->over.comm.n; k++)
        if (k != i) MG_TRY(wait_for_event(r, c->ranks[k].done));
    return MG_OK;
}

/* ---- collectives ---- */

/* Reduces this rank's share of the elements and writes it to the results of ranks [from, to). */
static mg_status reduce_share(cuda_comm *c, int i, const mg_collective_call *x, int64_t count,
                              int from, int to) {
    enum { PIECE = 1024 };
    const rank *r = &c->ranks[i];
    const int n = c->over.comm.n;
    reduce_ranks_params p = {.n = n, .op = (int)x->reduction, .from = from, .to = to};
    int64_t last;
    p.first = mg_comm_share(n, i, count, PIECE, &last);
    p.last = last;
    for (int k = 0; k < n; k++) {
        p.in[k] = c->ranks[k].in;
        p.out[k] = c->ranks[k].out;
    }
    c->over.comm.bytes_moved[i] += n * (p.last - p.first) * (int64_t)mg_dtype_size(x->dtype);
    return launch_on_rank(r, r->reduce[x->dtype], p.last - p.first, &p);
}

/* Copies a rank's block, `outer` times, to its position in the whole. Sizes are in bytes. */
static mg_status gather_block(const rank *r, const rank *from, int64_t bytes, char *to,
                              int64_t outer, int64_t whole) {
    if (bytes == 0 || outer == 0) return MG_OK;
    const CUDA_MEMCPY2D copied = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                  .srcDevice = address(from->in),
                                  .srcPitch = (size_t)bytes,
                                  .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                  .dstDevice = address(to),
                                  .dstPitch = (size_t)whole,
                                  .WidthInBytes = (size_t)bytes,
                                  .Height = (size_t)outer};
    if (outer == 1) return copy_bytes(r, to, from->in, bytes);
    return copy_rows(r, &copied);
}

static mg_status gather_blocks(cuda_comm *c, int i, const mg_collective_call *x, char *out) {
    const int64_t size = (int64_t)mg_dtype_size(x->dtype);
    int64_t whole = 0;
    for (int k = 0; k < c->over.comm.n; k++) whole += x->counts[k] * size;
    for (int k = 0; k < c->over.comm.n; out += x->counts[k++] * size)
        MG_TRY(gather_block(&c->ranks[i], &c->ranks[k], x->counts[k] * size, out, x->outer, whole));
    return MG_OK;
}

/* This rank's work on operand o, between begin_collective and end_collective. */
static mg_status run_operand(cuda_comm *c, int i, const mg_collective_call *x, int o) {
    const mg_comm_operand *operand = &x->operands[o];
    const int64_t bytes = (int64_t)mg_collective_writes(x, o, i, c->over.comm.n);
    switch (x->kind) {
    case MG_ALL_REDUCE: return reduce_share(c, i, x, operand->count, 0, c->over.comm.n);
    case MG_REDUCE: return reduce_share(c, i, x, operand->count, x->root, x->root + 1);
    case MG_BROADCAST:
        if (i == x->root) return MG_OK;
        return copy_bytes(&c->ranks[i], operand->out, c->ranks[x->root].in, bytes);
    case MG_ALL_GATHER: return gather_blocks(c, i, x, operand->out);
    default: return mg_fail(MG_INTERNAL, "cuda: no collective %d", (int)x->kind);
    }
}

/* Runs a transfer on the local communicator: `bytes` of host memory from one rank to another. */
static mg_status transfer_on_host(mg_comm *host, int i, int from, int to, const void *in, void *out,
                                  int64_t bytes) {
    const mg_comm_operand operand = {in, out, bytes};
    return host->api->run(host, i,
                          &(mg_collective_call){.kind = MG_TRANSFER,
                                                .dtype = MG_U8,
                                                .root = from,
                                                .to = to,
                                                .operands = &operand,
                                                .n_operands = 1});
}

/* The host's transfer carries the sender's address to the receiver, and an answer back when the
 * copy has been enqueued. */
static mg_status transfer(cuda_comm *c, int i, const mg_collective_call *x, int o) {
    mg_comm *host = c->over.host;
    rank *r = &c->ranks[i];
    const void *there = x->operands[o].in;
    char answer = 0;
    const int64_t size = (int64_t)sizeof there;
    if (i == x->root) {
        MG_TRY(record_event(r, r->ready));
        MG_TRY(transfer_on_host(host, i, x->root, x->to, &there, NULL, size));
        MG_TRY(transfer_on_host(host, i, x->to, x->root, NULL, &answer, 1));
        return wait_for_event(r, c->ranks[x->to].done);
    }
    MG_TRY(transfer_on_host(host, i, x->root, x->to, NULL, &there, size));
    MG_TRY(wait_for_event(r, c->ranks[x->root].ready));
    MG_TRY(copy_bytes(r, x->operands[o].out, there,
                      (int64_t)mg_collective_writes(x, o, i, c->over.comm.n)));
    MG_TRY(record_event(r, r->done));
    return transfer_on_host(host, i, x->to, x->root, &answer, NULL, 1);
}

/* The operands of a bucket are processed one after another: the ranks synchronize for each. */
static mg_status cuda_run(mg_comm *comm, int i, const mg_collective_call *x) {
    cuda_comm *c = comm_of(comm);
    for (int o = 0; o < x->n_operands; o++) {
        if (mg_collective_is_point_to_point(x->kind)) {
            MG_TRY(transfer(c, i, x, o));
            continue;
        }
        MG_TRY(begin_collective(c, i, x->operands[o].in, x->operands[o].out));
        MG_TRY(run_operand(c, i, x, o));
        MG_TRY(end_collective(c, i));
    }
    mg_comm_count_moved(comm, i, x);
    return MG_OK;
}

/* ---- making and freeing ---- */

/* The events belong to contexts; the events of a lost GPU do not exist any more. */
static void cuda_free(mg_comm *comm) {
    cuda_comm *c = comm_of(comm);
    for (int i = 0; i < comm->n; i++) {
        const rank *r = &c->ranks[i];
        if (!r->device || mg_cu.cuCtxSetCurrent(mg_cuda_of(r->device)->context) != CUDA_SUCCESS)
            continue;
        if (r->ready) mg_cu.cuEventDestroy(r->ready);
        if (r->done) mg_cu.cuEventDestroy(r->done);
    }
    mg_comm_over_clear(&c->over);
    mg_free(c);
}

static const mg_comm_api api = {.kind = "cuda",
                                .run = cuda_run,
                                .barrier = mg_comm_over_barrier,
                                .abort = mg_comm_over_abort,
                                .reset = mg_comm_over_reset,
                                .check = mg_comm_over_check,
                                .free = cuda_free};

/* Looks up the kernels and makes the events of a rank. */
static mg_status set_up_rank(rank *r, mg_device *d) {
    r->device = d;
    MG_TRY(mg_cuda_enter(d));
    for (int t = 0; t < MG_N_DTYPES; t++)
        MG_TRY(mg_cuda_find_typed(d, "reduce_ranks", (mg_dtype)t, &r->reduce[t]));
    CUresult result = mg_cu.cuEventCreate(&r->ready, CU_EVENT_DISABLE_TIMING);
    if (result == CUDA_SUCCESS) result = mg_cu.cuEventCreate(&r->done, CU_EVENT_DISABLE_TIMING);
    return mg_cuda_check(d, result, "make an event");
}

/* NCCL is preferred. With team->id the ranks are spread over several processes, which only NCCL
 * supports. */
mg_comm *mg_cuda_connect(const mg_device_team *team) {
    const int n = team->n;
    mg_comm *nccl = mg_nccl_connect(team);
    if (nccl || team->id || mg_error_code() != MG_OK) return nccl;
    if (n > MG_MOST_RANKS) return NULL;
    bool open = true;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++)
            if (mg_cuda_enable_peer(team->devices[i], team->devices[k], &open) != MG_OK || !open)
                return NULL;
    cuda_comm *c = mg_alloc_zero(sizeof *c + (size_t)n * sizeof *c->ranks);
    if (!c) return NULL;
    mg_status status = mg_comm_over_set_up(&c->over, &api, n);
    for (int i = 0; i < n && status == MG_OK; i++)
        status = set_up_rank(&c->ranks[i], team->devices[i]);
    if (status == MG_OK) return &c->over.comm;
    cuda_free(&c->over.comm);
    return NULL;
}
