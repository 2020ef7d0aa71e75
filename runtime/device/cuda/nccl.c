/* Collectives by NCCL, each enqueued on its rank's stream: they are recorded with the step.
 *
 * A rank that fails leaves the others' GPUs waiting for it, so abort ends NCCL's communicators;
 * they are made again at the next reset, and recordings with the old ones are void
 * (mg_comm.generation). Only all_gather meets on the host first, where the ranks tell each other
 * how much they bring. */
#include "device/cuda/nccl.h"
#include "core/alloc.h"
#include "core/placement.h"
#include "device/cuda/memory.h"
#include "device/cuda/state.h"
#include <nccl.h>
#include <pthread.h>

#define NCCL(X)                                                                                    \
    X(ncclGetErrorString)                                                                          \
    X(ncclGetLastError)                                                                            \
    X(ncclCommInitAll)                                                                             \
    X(ncclCommDestroy)                                                                             \
    X(ncclCommAbort)                                                                               \
    X(ncclAllReduce)                                                                               \
    X(ncclReduce) X(ncclBroadcast) X(ncclSend) X(ncclRecv) X(ncclGroupStart) X(ncclGroupEnd)

MG_CUDA_TABLE(nccl_api, NCCL);
static nccl_api nccl;
MG_CUDA_LIBRARY(library, nccl, NCCL, .file = "libnccl.so.2", .what = "NCCL 2",
                .install = "install libnccl2");

typedef struct rank {
    mg_device *device;
    ncclComm_t comm;
    int64_t bytes; /* of an all_gather */
} rank;

typedef struct nccl_comm {
    mg_comm comm;
    mg_comm *host;
    pthread_mutex_t mutex;
    bool broken; /* ended by abort */
    rank ranks[];
} nccl_comm;

static nccl_comm *of(mg_comm *comm) {
    return (nccl_comm *)comm;
}

static mg_status check(const nccl_comm *c, ncclResult_t result, const char *what) {
    if (result == ncclSuccess || result == ncclInProgress) return MG_OK;
    if (c->broken) return mg_fail(MG_COMM, "another device failed");
    return mg_fail(result == ncclRemoteError ? MG_COMM : MG_DEVICE, "NCCL: %s: %s (%s)", what,
                   nccl.ncclGetErrorString(result), nccl.ncclGetLastError(NULL));
}

/* A bool is the byte that is largest, whether added or not. */
static ncclDataType_t type_of(mg_dtype t) {
    static const ncclDataType_t types[MG_N_DTYPES] = {
        [MG_BOOL] = ncclUint8,  [MG_U8] = ncclUint8,      [MG_I32] = ncclInt32,
        [MG_I64] = ncclInt64,   [MG_BF16] = ncclBfloat16, [MG_F16] = ncclFloat16,
        [MG_F32] = ncclFloat32, [MG_F64] = ncclFloat64};
    return types[t];
}

static ncclRedOp_t kind_of(mg_dtype t, int op) {
    if (op == MG_REDUCE_MIN) return ncclMin;
    return op == MG_REDUCE_MAX || t == MG_BOOL ? ncclMax : ncclSum;
}

static CUstream stream_of(const rank *r) {
    return mg_cuda_of(r->device)->stream;
}

/* ---- collectives ---- */

static mg_status nccl_all_reduce(mg_comm *comm, int i, const void *in, void *out, int64_t count,
                                 mg_dtype dtype, int op) {
    const rank *r = &of(comm)->ranks[i];
    comm->bytes_moved[i] += 2 * (comm->n - 1) * count * (int64_t)mg_dtype_size(dtype) / comm->n;
    return check(of(comm),
                 nccl.ncclAllReduce(in, out, (size_t)count, type_of(dtype), kind_of(dtype, op),
                                    r->comm, stream_of(r)),
                 "all_reduce");
}

static mg_status nccl_all_reduce_many(mg_comm *comm, int i, const mg_reduction *list, int n,
                                      mg_dtype dtype, int op) {
    MG_TRY(check(of(comm), nccl.ncclGroupStart(), "all_reduce"));
    mg_status status = MG_OK;
    for (int k = 0; k < n && status == MG_OK; k++)
        status = nccl_all_reduce(comm, i, list[k].in, list[k].out, list[k].count, dtype, op);
    const mg_status ended = check(of(comm), nccl.ncclGroupEnd(), "all_reduce");
    return status == MG_OK ? ended : status;
}

static mg_status nccl_reduce(mg_comm *comm, int i, int root, const void *in, void *out,
                             int64_t count, mg_dtype dtype, int op) {
    const rank *r = &of(comm)->ranks[i];
    if (i != root) comm->bytes_moved[i] += count * (int64_t)mg_dtype_size(dtype);
    return check(of(comm),
                 nccl.ncclReduce(in, out, (size_t)count, type_of(dtype), kind_of(dtype, op), root,
                                 r->comm, stream_of(r)),
                 "reduce");
}

/* The root's out is not touched: there the operand is sent from where it lies, to itself. */
static mg_status nccl_broadcast(mg_comm *comm, int i, int root, const void *in, void *out,
                                int64_t bytes) {
    const rank *r = &of(comm)->ranks[i];
    void *to = i == root ? (void *)(uintptr_t)in : out;
    if (i != root) comm->bytes_moved[i] += bytes;
    return check(of(comm),
                 nccl.ncclBroadcast(in, to, (size_t)bytes, ncclUint8, root, r->comm, stream_of(r)),
                 "broadcast");
}

/* Blocks one after another: each rank sends its own to all and receives the others'. */
static ncclResult_t exchange(const nccl_comm *c, const rank *r, const char *in, char *out,
                             int64_t outer, int64_t whole) {
    ncclResult_t result = nccl.ncclGroupStart();
    for (int64_t o = 0; o < outer; o++) {
        char *to = out + o * whole;
        for (int k = 0; k < c->comm.n && result == ncclSuccess; to += c->ranks[k++].bytes) {
            if (r->bytes)
                result = nccl.ncclSend(in + o * r->bytes, (size_t)r->bytes, ncclUint8, k, r->comm,
                                       stream_of(r));
            if (c->ranks[k].bytes && result == ncclSuccess)
                result = nccl.ncclRecv(to, (size_t)c->ranks[k].bytes, ncclUint8, k, r->comm,
                                       stream_of(r));
        }
    }
    const ncclResult_t ended = nccl.ncclGroupEnd();
    return result == ncclSuccess ? ended : result;
}

static mg_status nccl_all_gather(mg_comm *comm, int i, const void *in, void *out, int64_t outer,
                                 int64_t bytes) {
    nccl_comm *c = of(comm);
    int64_t whole = 0;
    c->ranks[i].bytes = bytes;
    MG_TRY(c->host->api->barrier(c->host, i));
    for (int k = 0; k < comm->n; k++) whole += c->ranks[k].bytes;
    comm->bytes_moved[i] += outer * (whole - bytes);
    const mg_status status =
        check(c, exchange(c, &c->ranks[i], in, out, outer, whole), "all_gather");
    const mg_status met = c->host->api->barrier(c->host, i); /* until all have read the lengths */
    return status == MG_OK ? met : status;
}

static mg_status nccl_barrier(mg_comm *comm, int i) {
    mg_comm *host = of(comm)->host;
    return host->api->barrier(host, i);
}

static mg_status nccl_transfer(mg_comm *comm, int i, int from, int to, const void *in, void *out,
                               int64_t bytes) {
    const rank *r = &of(comm)->ranks[i];
    if (i == to) comm->bytes_moved[i] += bytes;
    return check(of(comm),
                 i == from
                     ? nccl.ncclSend(in, (size_t)bytes, ncclUint8, to, r->comm, stream_of(r))
                     : nccl.ncclRecv(out, (size_t)bytes, ncclUint8, from, r->comm, stream_of(r)),
                 "transfer");
}

/* ---- life ---- */

static mg_status make_comms(nccl_comm *c) {
    int gpus[64];
    ncclComm_t comms[64];
    for (int i = 0; i < c->comm.n; i++) gpus[i] = mg_cuda_of(c->ranks[i].device)->gpu;
    MG_TRY(check(c, nccl.ncclCommInitAll(comms, c->comm.n, gpus), "start"));
    for (int i = 0; i < c->comm.n; i++) c->ranks[i].comm = comms[i];
    return MG_OK;
}

static void nccl_abort(mg_comm *comm) {
    nccl_comm *c = of(comm);
    c->host->api->abort(c->host);
    pthread_mutex_lock(&c->mutex);
    const bool was = c->broken;
    c->broken = true;
    for (int i = 0; i < comm->n && !was; i++) {
        if (c->ranks[i].comm) nccl.ncclCommAbort(c->ranks[i].comm);
        c->ranks[i].comm = NULL;
    }
    pthread_mutex_unlock(&c->mutex);
}

/* Without new communicators it stays broken: the next call fails. */
static void nccl_reset(mg_comm *comm) {
    nccl_comm *c = of(comm);
    c->host->api->reset(c->host);
    if (!c->broken) return;
    c->broken = false;
    if (make_comms(c) == MG_OK)
        comm->generation++;
    else
        nccl_abort(comm);
}

static bool nccl_aborted(mg_comm *comm) {
    nccl_comm *c = of(comm);
    pthread_mutex_lock(&c->mutex);
    const bool broken = c->broken;
    pthread_mutex_unlock(&c->mutex);
    return broken;
}

static void nccl_free(mg_comm *comm) {
    nccl_comm *c = of(comm);
    for (int i = 0; i < comm->n; i++)
        if (c->ranks[i].comm) nccl.ncclCommDestroy(c->ranks[i].comm);
    if (c->host) c->host->api->free(c->host);
    pthread_mutex_destroy(&c->mutex);
    mg_free(c);
}

static const mg_comm_api api = {.size = sizeof(mg_comm_api),
                                .kind = "nccl",
                                .all_reduce = nccl_all_reduce,
                                .all_reduce_many = nccl_all_reduce_many,
                                .reduce = nccl_reduce,
                                .broadcast = nccl_broadcast,
                                .all_gather = nccl_all_gather,
                                .barrier = nccl_barrier,
                                .transfer = nccl_transfer,
                                .abort = nccl_abort,
                                .reset = nccl_reset,
                                .aborted = nccl_aborted,
                                .free = nccl_free,
                                .recorded = true};

static bool share_a_gpu(mg_device *const *devices, int n) {
    for (int i = 0; i < n; i++)
        for (int k = 0; k < i; k++)
            if (mg_cuda_of(devices[i])->gpu == mg_cuda_of(devices[k])->gpu) return true;
    return false;
}

mg_comm *mg_nccl_connect(mg_device *const *devices, int n) {
    if (n < 2 || n > 64 || share_a_gpu(devices, n)) return NULL;
    if (mg_library_open(&library) != MG_OK) {
        mg_error_clear();
        return NULL;
    }
    nccl_comm *c = mg_alloc_zero(sizeof *c + (size_t)n * sizeof *c->ranks);
    if (!c) return NULL;
    pthread_mutex_init(&c->mutex, NULL);
    c->host = mg_comm_local(n);
    if (c->host) c->comm = *c->host; /* its counters are ours too */
    c->comm.api = &api;
    c->comm.n = n;
    for (int i = 0; i < n; i++) c->ranks[i].device = devices[i];
    if (c->host && make_comms(c) == MG_OK) return &c->comm;
    nccl_free(&c->comm);
    return NULL;
}
