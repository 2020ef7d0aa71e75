/* The fake NCCL: collectives and messages among ranks, which are threads of one process or of
 * several.
 *
 * A collective runs on a thread of its stream (fake_cuda_enqueue_apart), at once or when a graph
 * with it is launched. There it waits for the other ranks, as NCCL's kernels do on their GPUs,
 * until its own rank aborts. Ranks meet in a mapped file (nccl_team.h).
 *
 * These properties of the real library are modelled because our code depends on them:
 *   - a non-blocking communicator starts its first collective only while the thread that began it
 *     polls ncclCommGetAsyncError
 *   - a communicator ends only when all graphs with its collectives are destroyed; ending it waits
 *     for that
 *   - the messages of a group progress together, so that two ranks cannot wait for each other
 *   - unless NCCL_GRAPH_REGISTER is 0, the buffers of a captured group are registered (for NVLS):
 *     all ranks must then capture at the same time, and a rank that captures alone waits for ever.
 *     After MGPU_FAKE_CUDA_NCCL_LIMIT seconds (60) this is a fatal error
 *   - unless NCCL_P2P_DIRECT_DISABLE is 1, ranks of one process use each other's pointers: if
 *     copies between GPUs do not work, they cannot join
 *
 * Not modelled: speed, topology, and the order in which the real NCCL adds numbers. */
#include "nccl_team.h"
#include "fake_cuda.h"
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_PARTS = 4096, POLLS = 3 }; /* calls in a group; polls before a collective starts */

typedef enum kind { ALL_REDUCE, REDUCE, BROADCAST, ALL_GATHER, SEND, RECEIVE } kind;

typedef struct work { /* one call */
    team *team;
    int rank, peer; /* peer: the root of a collective, or the other side of a message */
    kind what;
    const char *in;
    char *out;
    size_t count;
    ncclDataType_t type;
    ncclRedOp_t op;
} work;

typedef struct group { /* calls that run together; graphs hold copies of it */
    ncclComm_t comm;
    int n;
    work parts[];
} group;

struct ncclComm {
    team *team;
    int rank;
    bool blocking, used, finalized;
    int graphs;       /* copies of its groups in graphs; guarded by `holding` */
    int polls;        /* polls that are left until `begun` starts */
    group *begun;     /* the first group, while it has not started; NULL: none */
    CUstream stream;  /* the stream of `begun` */
    pthread_t thread; /* the thread that began it */
};

/* The group that the thread has open. */
static _Thread_local int depth; /* of nested ncclGroupStart */
static _Thread_local work parts[MOST_PARTS];
static _Thread_local int n_parts;
static _Thread_local CUstream group_stream;
static _Thread_local struct ncclComm *group_comm;
static _Thread_local bool joins; /* the group makes non-blocking communicators */

/* ---- numbers ---- */

/* Bytes of an element; 0 for types that are not modelled. */
static size_t size_of(ncclDataType_t type) {
    static const size_t sizes[ncclNumTypes] = {
        [ncclInt8] = 1,    [ncclUint8] = 1,   [ncclInt32] = 4,   [ncclUint32] = 4,
        [ncclInt64] = 8,   [ncclUint64] = 8,  [ncclFloat16] = 2, [ncclFloat32] = 4,
        [ncclFloat64] = 8, [ncclBfloat16] = 2};
    return sizes[type];
}

/* to = to OP from, for n numbers; NaN is not treated specially. */
#define COMBINE(name, type)                                                                        \
    static void name(void *to, const void *from, size_t n, ncclRedOp_t op) {                       \
        type *a = to;                                                                              \
        const type *b = from;                                                                      \
        for (size_t i = 0; i < n; i++)                                                             \
            a[i] = op == ncclSum                      ? (type)(a[i] + b[i])                        \
                   : (op == ncclMax) == (b[i] > a[i]) ? b[i]                                       \
                                                      : a[i];                                      \
    }
COMBINE(combine_u8, uint8_t)
COMBINE(combine_i32, int32_t)
COMBINE(combine_i64, int64_t)
COMBINE(combine_f16, _Float16)
COMBINE(combine_f32, float)
COMBINE(combine_f64, double)

/* bfloat16 is the upper half of a float. */
static float widen(uint16_t v) {
    const uint32_t bits = (uint32_t)v << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* In float, rounded to nearest, ties to even. */
static void combine_bf16(void *to, const void *from, size_t n, ncclRedOp_t op) {
    uint16_t *a = to;
    const uint16_t *b = from;
    for (size_t i = 0; i < n; i++) {
        float x = widen(a[i]);
        const float y = widen(b[i]);
        uint32_t bits;
        combine_f32(&x, &y, 1, op);
        memcpy(&bits, &x, sizeof bits);
        a[i] = (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
    }
}

/* Types beyond these are not used by our code. */
static void combine(void *to, const void *from, size_t n, ncclDataType_t type, ncclRedOp_t op) {
    switch (type) {
    case ncclUint8: combine_u8(to, from, n, op); return;
    case ncclInt32: combine_i32(to, from, n, op); return;
    case ncclInt64: combine_i64(to, from, n, op); return;
    case ncclFloat16: combine_f16(to, from, n, op); return;
    case ncclBfloat16: combine_bf16(to, from, n, op); return;
    case ncclFloat32: combine_f32(to, from, n, op); return;
    default: combine_f64(to, from, n, op); return;
    }
}

/* ---- running: collectives and messages ---- */

/* A collective, in pieces of TEAM_ROOM bytes: each rank shows its piece, all meet, each combines
 * all pieces in the order of ranks, all meet again before the next piece is shown. */
static void run_collective(const work *w) {
    const size_t size = size_of(w->type), bytes = w->count * size;
    char result[TEAM_ROOM];
    for (size_t at = 0; at < bytes; at += TEAM_ROOM) {
        const size_t n = bytes - at < TEAM_ROOM ? bytes - at : TEAM_ROOM;
        const int first = w->what == BROADCAST ? w->peer : 0;
        if (w->what != BROADCAST || w->rank == w->peer)
            memcpy(team_shown(w->team, w->rank), w->in + at, n);
        if (!team_meet(w->team, w->rank)) return;
        memcpy(result, team_shown(w->team, first), n);
        for (int r = 1; r < team_size(w->team) && w->what != BROADCAST; r++)
            combine(result, team_shown(w->team, r), n / size, w->type, w->op);
        if (!team_meet(w->team, w->rank)) return;
        if (w->what != REDUCE || w->rank == w->peer) memcpy(w->out + at, result, n);
    }
}

/* Moves message i of a group on by up to TEAM_ROOM bytes; true if anything moved. Messages of the
 * same kind with the same peer keep their order. done[i]: bytes of message i that were moved. */
static bool go_on(const group *g, int i, size_t *done) {
    const work *w = &g->parts[i];
    const size_t bytes = w->count * size_of(w->type);
    /* Is an earlier message of this kind with this peer still under way? */
    for (int k = 0; k < i; k++) {
        const work *other = &g->parts[k];
        if (other->what == w->what && other->peer == w->peer &&
            done[k] < other->count * size_of(other->type))
            return false;
    }
    if (done[i] == bytes) return false;
    const size_t n = w->what == SEND
                         ? team_send(w->team, w->rank, w->peer, w->in + done[i], bytes - done[i])
                         : team_take(w->team, w->peer, w->rank, w->out + done[i], bytes - done[i]);
    done[i] += n;
    return n > 0;
}

/* Whether all messages were moved, and received by the other side. */
static bool all_done(const group *g, const size_t *done) {
    for (int i = 0; i < g->n; i++) {
        const work *w = &g->parts[i];
        if (done[i] < w->count * size_of(w->type)) return false;
        if (w->what == SEND && !team_taken(w->team, w->rank, w->peer)) return false;
    }
    return true;
}

/* Moves all messages of a group on in turn, so that no two ranks wait for each other. */
static void run_messages(const group *g) {
    size_t *done = calloc((size_t)g->n, sizeof *done);
    long seen = 0;
    bool waits = true;
    while (done && waits && !all_done(g, done)) {
        bool went_on = false;
        for (int i = 0; i < g->n; i++) went_on |= go_on(g, i, done);
        if (!went_on) waits = team_wait(g->parts[0].team, g->parts[0].rank, &seen);
    }
    free(done);
}

/* The same with the pieces of all ranks side by side. */
static void run_gather(const work *w) {
    const size_t bytes = w->count * size_of(w->type);
    for (size_t at = 0; at < bytes; at += TEAM_ROOM) {
        const size_t n = bytes - at < TEAM_ROOM ? bytes - at : TEAM_ROOM;
        memcpy(team_shown(w->team, w->rank), w->in + at, n);
        if (!team_meet(w->team, w->rank)) return;
        for (int r = 0; r < team_size(w->team); r++)
            memcpy(w->out + (size_t)r * bytes + at, team_shown(w->team, r), n);
        if (!team_meet(w->team, w->rank)) return;
    }
}

/* The work of a group; args: a struct group. It has collectives or messages, not both. */
static void run_group(void *args) {
    const group *g = args;
    if (g->parts[0].what == SEND || g->parts[0].what == RECEIVE) {
        run_messages(g);
        return;
    }
    for (int i = 0; i < g->n; i++)
        (g->parts[i].what == ALL_GATHER ? run_gather : run_collective)(&g->parts[i]);
}

/* ---- counting the graphs that hold a communicator's work ---- */

static pthread_mutex_t holding = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t let_go = PTHREAD_COND_INITIALIZER;

/* A graph has made (1) or freed (-1) a copy of a group. */
static void hold_for_graph(void *args, int by) {
    const group *g = args;
    pthread_mutex_lock(&holding);
    g->comm->graphs += by;
    pthread_cond_broadcast(&let_go);
    pthread_mutex_unlock(&holding);
}

/* Whether a graph still holds work of the communicator. */
static bool is_held(const struct ncclComm *comm) {
    pthread_mutex_lock(&holding);
    const bool held = comm->graphs > 0;
    pthread_mutex_unlock(&holding);
    return held;
}

/* Waits until the last graph with work of the communicator is destroyed. */
static void wait_for_graphs(const struct ncclComm *comm) {
    pthread_mutex_lock(&holding);
    while (comm->graphs > 0) pthread_cond_wait(&let_go, &holding);
    pthread_mutex_unlock(&holding);
}

/* ---- starting ---- */

/* Whether the environment variable has this value. */
static bool is_set(const char *name, const char *value) {
    const char *set = getenv(name);
    return set && strcmp(set, value) == 0;
}

/* MGPU_FAKE_CUDA_NCCL=registers is an NCCL that does not know the setting. */
static bool registers_buffers(void) {
    return !is_set("NCCL_GRAPH_REGISTER", "0") || is_set("MGPU_FAKE_CUDA_NCCL", "registers");
}

/* A group is captured: counts that, and registers its buffers together with all other ranks. */
static ncclResult_t capture_group(const group *g) {
    const char *limit = getenv("MGPU_FAKE_CUDA_NCCL_LIMIT");
    const double seconds = limit ? atof(limit) : 60;
    char name[40];
    snprintf(name, sizeof name, "nccl captures of rank %d", g->comm->rank);
    fake_cuda_note(name);
    if (!registers_buffers() || team_register(g->comm->team, g->comm->rank, seconds))
        return ncclSuccess;
    fake_cuda_fatal(fake_cuda_say(
        CUDA_ERROR_LAUNCH_TIMEOUT,
        "rank %d registers buffers in a capture, but not all ranks do: NCCL would wait for ever",
        g->comm->rank));
    return ncclInternalError;
}

/* Enqueues the group and frees it. */
static ncclResult_t enqueue_group(CUstream stream, group *g) {
    const size_t bytes = sizeof *g + (size_t)g->n * sizeof *g->parts;
    const ncclResult_t captured = fake_cuda_capturing(stream) ? capture_group(g) : ncclSuccess;
    if (captured != ncclSuccess) {
        free(g);
        return captured;
    }
    const CUresult r = fake_cuda_enqueue_apart(stream, "nccl", run_group, hold_for_graph, g, bytes);
    free(g);
    return r == CUDA_SUCCESS ? ncclSuccess : ncclUnhandledCudaError;
}

/* Closes the thread's group and starts it: now, or, if it is the first of a non-blocking
 * communicator, while that is polled. */
static ncclResult_t start_group(void) {
    struct ncclComm *c = group_comm;
    group *g = malloc(sizeof *g + (size_t)n_parts * sizeof *parts);
    if (!g) return ncclSystemError;
    if (c->begun) abort(); /* the caller did not poll until the last one was done */
    g->comm = c;
    g->n = n_parts;
    memcpy(g->parts, parts, (size_t)n_parts * sizeof *parts);
    n_parts = 0;
    if (c->blocking || c->used) return enqueue_group(group_stream, g);
    c->used = true;
    c->begun = g;
    c->polls = POLLS;
    c->stream = group_stream;
    c->thread = pthread_self();
    return ncclInProgress;
}

/* Checks a call and adds it to the thread's group, or runs it as a group with one call. */
static ncclResult_t add_call(const char *name, ncclComm_t comm, CUstream stream, work w) {
    const int failure = fake_cuda_enter(name);
    if (failure) return (ncclResult_t)failure;
    if (!comm || w.type < 0 || w.type >= ncclNumTypes || n_parts == MOST_PARTS)
        return ncclInvalidArgument;
    /* A communicator cannot be used before all ranks have joined. */
    if (team_state(comm->team, comm->rank) == ncclInProgress) return ncclInvalidUsage;
    const size_t bytes = w.count * size_of(w.type);
    const size_t out_bytes = w.what == ALL_GATHER ? bytes * (size_t)team_size(comm->team) : bytes;
    if ((w.in && bytes && !fake_cuda_owns(w.in, bytes)) ||
        (w.out && bytes && !fake_cuda_owns(w.out, out_bytes)))
        return ncclInvalidArgument;
    w.team = comm->team;
    w.rank = comm->rank;
    parts[n_parts++] = w;
    group_comm = comm;
    group_stream = stream;
    return depth ? ncclSuccess : start_group();
}

/* ---- exported: collectives, messages, groups ---- */

ncclResult_t ncclAllReduce(const void *in, void *out, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
    return add_call(
        "ncclAllReduce", comm, (CUstream)stream,
        (work){.what = ALL_REDUCE, .in = in, .out = out, .count = count, .type = type, .op = op});
}

/* Only the root has an output. */
ncclResult_t ncclReduce(const void *in, void *out, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
    return add_call("ncclReduce", comm, (CUstream)stream,
                    (work){.what = REDUCE,
                           .peer = root,
                           .in = in,
                           .out = comm && comm->rank == root ? out : NULL,
                           .count = count,
                           .type = type,
                           .op = op});
}

ncclResult_t ncclBroadcast(const void *in, void *out, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
    return add_call("ncclBroadcast", comm, (CUstream)stream,
                    (work){.what = BROADCAST,
                           .peer = root,
                           .in = comm && comm->rank == root ? in : NULL,
                           .out = out,
                           .count = count,
                           .type = type});
}

ncclResult_t ncclAllGather(const void *in, void *out, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
    return add_call("ncclAllGather", comm, (CUstream)stream,
                    (work){.what = ALL_GATHER, .in = in, .out = out, .count = count, .type = type});
}

ncclResult_t ncclSend(const void *in, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
    return add_call("ncclSend", comm, (CUstream)stream,
                    (work){.what = SEND, .peer = peer, .in = in, .count = count, .type = type});
}

ncclResult_t ncclRecv(void *out, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
    return add_call(
        "ncclRecv", comm, (CUstream)stream,
        (work){.what = RECEIVE, .peer = peer, .out = out, .count = count, .type = type});
}

ncclResult_t ncclGroupStart(void); /* nccl.h declares them without prototypes */
ncclResult_t ncclGroupEnd(void);

ncclResult_t ncclGroupStart(void) {
    depth++;
    return ncclSuccess;
}

/* The outermost end starts the collected calls. */
ncclResult_t ncclGroupEnd(void) {
    if (--depth) return ncclSuccess;
    /* A group that makes non-blocking communicators returns before they are joined. */
    const bool later = joins;
    joins = false;
    return n_parts ? start_group() : later ? ncclInProgress : ncclSuccess;
}

/* ---- exported: communicators ---- */

/* Makes the file that the ranks will share. */
ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
    const int failure = fake_cuda_enter("ncclGetUniqueId");
    if (failure) return (ncclResult_t)failure;
    return team_make(id) ? ncclSuccess : ncclSystemError;
}

/* Returns before the other ranks have joined, as the real one does for non-blocking communicators.
 */
ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int n, ncclUniqueId id, int rank,
                                    ncclConfig_t *config) {
    const int failure = fake_cuda_enter("ncclCommInitRankConfig");
    const int gpu = fake_cuda_gpu();
    if (failure) return (ncclResult_t)failure;
    if (n < 1 || n > TEAM_MOST || rank < 0 || rank >= n) return ncclInvalidArgument;
    if (gpu < 0) return ncclUnhandledCudaError;
    if (getenv("MGPU_FAKE_CUDA_DEAF") && n > 1 && !is_set("NCCL_P2P_DIRECT_DISABLE", "1"))
        return ncclUnhandledCudaError;
    *comm = calloc(1, sizeof **comm);
    if (!*comm) return ncclSystemError;
    (*comm)->rank = rank;
    (*comm)->blocking = !config || config->blocking != 0;
    (*comm)->team = team_join(&id, n, rank, gpu);
    if (!(*comm)->team) {
        free(*comm);
        *comm = NULL;
        return ncclRemoteError;
    }
    joins |= depth && !(*comm)->blocking;
    return depth ? ncclSuccess : ncclInProgress;
}

/* The state of the communicator; moves on a group that has not started. */
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state) {
    const int failure = fake_cuda_enter("ncclCommGetAsyncError");
    if (failure) {
        *state = (ncclResult_t)failure;
        return ncclSuccess;
    }
    *state = team_state(comm->team, comm->rank);
    if (*state == ncclSuccess && comm->finalized && is_held(comm)) *state = ncclInProgress;
    if (*state != ncclSuccess || !comm->begun) return ncclSuccess;
    *state = ncclInProgress;
    /* Only the thread that began the group moves it on, after a few polls. */
    if (!pthread_equal(comm->thread, pthread_self()) || --comm->polls > 0) return ncclSuccess;
    group *begun = comm->begun;
    comm->begun = NULL;
    *state = enqueue_group(comm->stream, begun);
    return ncclSuccess;
}

/* Blocking: waits for graphs here. Non-blocking: ncclCommGetAsyncError reports when it is done. */
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
    team_leave(comm->team, comm->rank);
    comm->finalized = true;
    if (!comm->blocking) return ncclInProgress;
    wait_for_graphs(comm);
    return ncclSuccess;
}

/* Waits until no graph holds its work, then frees it. With a lost GPU it does not wait, and leaves
 * what graphs still refer to. */
static ncclResult_t end_comm(ncclComm_t comm, const char *name) {
    const int failure = fake_cuda_enter(name);
    if (!failure) wait_for_graphs(comm);
    if (!is_held(comm)) {
        free(comm->begun);
        free(comm);
    }
    return (ncclResult_t)failure;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    return end_comm(comm, "ncclCommDestroy");
}

/* Wakes its own rank if that waits in a collective; the other ranks see that it has aborted. */
ncclResult_t ncclCommAbort(ncclComm_t comm) {
    team_abort(comm->team, comm->rank);
    return end_comm(comm, "ncclCommAbort");
}

const char *ncclGetErrorString(ncclResult_t result) {
    return result == ncclInvalidArgument ? "invalid argument"
           : result == ncclInvalidUsage  ? "invalid usage"
           : result == ncclRemoteError   ? "remote process exited or there was a network error"
                                         : "an error of the fake NCCL";
}

const char *ncclGetLastError(ncclComm_t comm) {
    (void)comm;
    return "none";
}
