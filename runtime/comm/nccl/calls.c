/* Calls of NCCL: waiting for them, and the collectives. See nccl.h. */
#include "comm/nccl/nccl.h"
#include "core/threads.h"
#include <time.h>

enum { POLL_NS = 50 * 1000 }; /* between two polls of a call in progress */

/* Rank i, which must be a rank of this process. */
static mg_nccl_rank *rank_of(mg_comm *comm, int i) {
    return &mg_nccl_of(comm)->ranks[i - mg_nccl_of(comm)->first];
}

static cudaStream_t stream_of(const mg_nccl_rank *r) {
    return r->end.stream;
}

/* ---- calls in non-blocking mode ----
 *
 * Each call takes the rank's lock, calls NCCL, polls until it has finished, and releases the lock.
 * "Finished" means enqueued on the stream, not executed. */

mg_status mg_nccl_fail(mg_nccl_comm *c, ncclResult_t result, const char *what) {
    MG_TRY(mg_nccl_check(&c->comm));
    return mg_fail(result == ncclRemoteError ? MG_COMM : MG_DEVICE, "NCCL: %s: %s (%s)", what,
                   mg_nccl.ncclGetErrorString(result), mg_nccl.ncclGetLastError(NULL));
}

mg_status mg_nccl_wait(mg_nccl_comm *c, mg_nccl_rank *r, ncclResult_t result, bool stops,
                       const char *what) {
    const double until = mg_seconds() + c->comm.deadline;
    /* r->comm may become NULL whenever the lock is released: then abort has taken it. */
    while (result == ncclInProgress && r->comm) {
        if (stops && mg_interrupt_take()) return mg_fail(MG_INTERRUPTED, "interrupted");
        if (mg_seconds() > until)
            return mg_fail(MG_COMM, "NCCL: %s: other ranks did not answer within %g seconds", what,
                           c->comm.deadline);
        const ncclResult_t asked = mg_nccl.ncclCommGetAsyncError(r->comm, &result);
        if (asked != ncclSuccess) result = asked;
        if (result != ncclInProgress) break;
        pthread_mutex_unlock(&r->lock);
        nanosleep(&(struct timespec){.tv_nsec = POLL_NS}, NULL);
        pthread_mutex_lock(&r->lock);
    }
    if (!r->comm) MG_TRY(mg_nccl_check(&c->comm));
    return mg_nccl_failed(result) ? mg_nccl_fail(c, result, what) : MG_OK;
}

/* Takes the rank's lock for a call with r->comm. Fails, without the lock, if the communicator was
 * aborted. */
static mg_status begin_call(mg_nccl_comm *c, mg_nccl_rank *r) {
    pthread_mutex_lock(&r->lock);
    if (r->comm) return MG_OK;
    pthread_mutex_unlock(&r->lock);
    const mg_status status = mg_nccl_check(&c->comm);
    return status != MG_OK ? status : mg_fail(MG_COMM, "NCCL: there is no communicator");
}

/* Waits for the call and releases the lock. */
static mg_status end_call(mg_nccl_comm *c, mg_nccl_rank *r, ncclResult_t result, const char *what) {
    const mg_status status = mg_nccl_wait(c, r, result, false, what);
    pthread_mutex_unlock(&r->lock);
    return status;
}

/* ---- collectives ---- */

/* A sum of bools is true if one is: the maximum of their bytes, see reduction_of. */
static ncclDataType_t type_of(mg_dtype t) {
    static const ncclDataType_t types[MG_N_DTYPES] = {
        [MG_BOOL] = ncclUint8,  [MG_U8] = ncclUint8,      [MG_I32] = ncclInt32,
        [MG_I64] = ncclInt64,   [MG_BF16] = ncclBfloat16, [MG_F16] = ncclFloat16,
        [MG_F32] = ncclFloat32, [MG_F64] = ncclFloat64};
    return types[t];
}

static ncclRedOp_t reduction_of(const mg_collective_call *x) {
    if (x->reduction == MG_REDUCE_MIN) return ncclMin;
    return x->reduction == MG_REDUCE_MAX || x->dtype == MG_BOOL ? ncclMax : ncclSum;
}

/* Whether NCCL's own all-gather can do it: each rank has one block of the same size. */
static bool has_equal_blocks(const mg_comm *comm, const mg_collective_call *x) {
    for (int k = 1; k < comm->n; k++)
        if (x->counts[k] != x->counts[0]) return false;
    return x->outer == 1;
}

/* Else every rank sends its block to every rank, itself included, `outer` times. */
static ncclResult_t enqueue_gather(mg_comm *comm, int i, const mg_collective_call *x,
                                   const mg_comm_operand *operand) {
    const mg_nccl_rank *r = rank_of(comm, i);
    const size_t size = mg_dtype_size(x->dtype), own = (size_t)x->counts[i] * size;
    const char *in = operand->in;
    char *out = operand->out;
    ncclResult_t result = ncclSuccess;
    if (has_equal_blocks(comm, x))
        return mg_nccl.ncclAllGather(in, out, own, ncclUint8, r->comm, stream_of(r));
    for (int64_t o = 0; o < x->outer; o++, in += own)
        for (int k = 0; k < comm->n && !mg_nccl_failed(result); k++) {
            const size_t theirs = (size_t)x->counts[k] * size;
            if (own) result = mg_nccl.ncclSend(in, own, ncclUint8, k, r->comm, stream_of(r));
            if (theirs && !mg_nccl_failed(result))
                result = mg_nccl.ncclRecv(out, theirs, ncclUint8, k, r->comm, stream_of(r));
            out += theirs;
        }
    return result;
}

/* Enqueues the collective for one operand. Those that only move data send bytes of any dtype. */
static ncclResult_t enqueue(mg_comm *comm, int i, const mg_collective_call *x,
                            const mg_comm_operand *operand) {
    const mg_nccl_rank *r = rank_of(comm, i);
    const void *in = operand->in;
    void *out = operand->out;
    const size_t count = (size_t)operand->count, bytes = count * mg_dtype_size(x->dtype);
    const ncclDataType_t type = type_of(x->dtype);
    const ncclRedOp_t op = reduction_of(x);
    cudaStream_t stream = stream_of(r);
    switch (x->kind) {
    case MG_ALL_REDUCE: return mg_nccl.ncclAllReduce(in, out, count, type, op, r->comm, stream);
    case MG_REDUCE: return mg_nccl.ncclReduce(in, out, count, type, op, x->root, r->comm, stream);
    case MG_BROADCAST:
        /* NCCL writes the root's out too: there it is the operand itself, so nothing changes. */
        if (i == x->root) out = (void *)(uintptr_t)in;
        return mg_nccl.ncclBroadcast(in, out, bytes, ncclUint8, x->root, r->comm, stream);
    case MG_ALL_GATHER: return enqueue_gather(comm, i, x, operand);
    case MG_TRANSFER:
        return i == x->root ? mg_nccl.ncclSend(in, bytes, ncclUint8, x->to, r->comm, stream)
                            : mg_nccl.ncclRecv(out, bytes, ncclUint8, x->root, r->comm, stream);
    default: return ncclInvalidUsage;
    }
}

/* Adds what a rank sends in a reduction by NCCL's ring algorithm: an all-reduce sends every byte
 * around almost twice, a reduce once. Nothing for collectives that do not reduce. */
static void count_reduction(mg_comm *comm, int i, const mg_collective_call *x) {
    const int64_t size = (int64_t)mg_dtype_size(x->dtype), n = comm->n;
    for (int k = 0; k < x->n_operands; k++) {
        const int64_t bytes = x->operands[k].count * size;
        if (x->kind == MG_ALL_REDUCE) comm->bytes_moved[i] += 2 * (n - 1) * bytes / n;
        if (x->kind == MG_REDUCE && i != x->root) comm->bytes_moved[i] += bytes;
    }
}

/* A group lets NCCL start several calls together: the tensors of a bucket, or the sends and
 * receives of a gather, which would wait for each other if they were started one by one. */
mg_status mg_nccl_run(mg_comm *comm, int i, const mg_collective_call *x) {
    mg_nccl_rank *r = rank_of(comm, i);
    const bool grouped = x->n_operands > 1 || x->kind == MG_ALL_REDUCE || x->kind == MG_ALL_GATHER;
    MG_TRY(begin_call(mg_nccl_of(comm), r));
    count_reduction(comm, i, x);
    mg_comm_count_moved(comm, i, x);
    ncclResult_t result = grouped ? mg_nccl.ncclGroupStart() : ncclSuccess;
    for (int k = 0; k < x->n_operands && !mg_nccl_failed(result); k++)
        result = enqueue(comm, i, x, &x->operands[k]);
    if (grouped) {
        const ncclResult_t ended = mg_nccl.ncclGroupEnd();
        if (!mg_nccl_failed(result)) result = ended;
    }
    return end_call(mg_nccl_of(comm), r, result, mg_collective_name(x->kind));
}

/* A barrier of the host's threads: an all-reduce of one byte, followed by a wait for the stream. */
mg_status mg_nccl_barrier(mg_comm *comm, int i) {
    mg_nccl_rank *r = rank_of(comm, i);
    const double start = mg_seconds();
    MG_TRY(begin_call(mg_nccl_of(comm), r));
    MG_TRY(end_call(mg_nccl_of(comm), r,
                    mg_nccl.ncclAllReduce(r->end.mark, r->end.mark, 1, ncclUint8, ncclMax, r->comm,
                                          stream_of(r)),
                    "barrier"));
    MG_TRY(r->end.finish(r->end.device));
    comm->waited[i] += mg_seconds() - start;
    return mg_nccl_check(comm);
}
