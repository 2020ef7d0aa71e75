/* The fake CUDA for NCCL: ranks are threads of one process or of several.
 *
 * A collective runs where the stream runs it: at once, or when a graph with it is launched. It
 * waits for the other ranks there, as kernels of NCCL do on their GPUs, until its own rank aborts.
 * A communicator that does not block starts its first collective only when it is asked after. It
 * ends when the last graph with one of its collectives does: whoever ends it waits for that. */
#include "nccl_team.h"
#include "fake_cuda.h"
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_PARTS = 4096, POLLS = 3 };

typedef enum kind { ALL_REDUCE, REDUCE, BROADCAST, SEND, RECEIVE } kind;

typedef struct work {
    team *team;
    int rank, peer; /* root, or the other one */
    kind what;
    const char *in;
    char *out;
    size_t count;
    ncclDataType_t type;
    ncclRedOp_t op;
} work;

typedef struct group { /* a copy is part of a graph */
    ncclComm_t comm;
    int n;
    work parts[];
} group;

struct ncclComm {
    team *team;
    int rank;
    bool blocking, used, finalized;
    int graphs;       /* how often graphs hold its work; under `holding` */
    int polls;        /* until what was begun goes on */
    group *begun;     /* or NULL */
    CUstream stream;  /* of that, */
    pthread_t thread; /* and who began it */
};

static _Thread_local int depth; /* of groups */
static _Thread_local work parts[MOST_PARTS];
static _Thread_local int n_parts;
static _Thread_local CUstream group_stream;
static _Thread_local struct ncclComm *group_comm;
static _Thread_local bool joins; /* the group makes communicators that do not block */

/* ---- numbers ---- */

static size_t size_of(ncclDataType_t type) {
    static const size_t sizes[ncclNumTypes] = {
        [ncclInt8] = 1,    [ncclUint8] = 1,   [ncclInt32] = 4,   [ncclUint32] = 4,
        [ncclInt64] = 8,   [ncclUint64] = 8,  [ncclFloat16] = 2, [ncclFloat32] = 4,
        [ncclFloat64] = 8, [ncclBfloat16] = 2};
    return sizes[type];
}

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

static float widen(uint16_t v) {
    const uint32_t bits = (uint32_t)v << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

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

/* ---- the work ---- */

/* All show a piece, meet, and read the others'. */
static void run_together(const work *w) {
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

/* One step of a message: true if it went on. The earlier ones of the same kind with the same peer
 * come first. */
static bool go_on(const group *g, int i, size_t *done) {
    const work *w = &g->parts[i];
    const size_t bytes = w->count * size_of(w->type);
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

static bool all_done(const group *g, const size_t *done) {
    for (int i = 0; i < g->n; i++) {
        const work *w = &g->parts[i];
        if (done[i] < w->count * size_of(w->type)) return false;
        if (w->what == SEND && !team_taken(w->team, w->rank, w->peer)) return false;
    }
    return true;
}

/* All messages of a group go on at the same time, so that no two ranks wait for each other. */
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

static void run_group(void *args) {
    const group *g = args;
    if (g->parts[0].what == SEND || g->parts[0].what == RECEIVE) {
        run_messages(g);
        return;
    }
    for (int i = 0; i < g->n; i++) run_together(&g->parts[i]);
}

/* ---- graphs with work of a communicator ---- */

static pthread_mutex_t holding = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t let_go = PTHREAD_COND_INITIALIZER;

static void hold(void *args, int by) {
    const group *g = args;
    pthread_mutex_lock(&holding);
    g->comm->graphs += by;
    pthread_cond_broadcast(&let_go);
    pthread_mutex_unlock(&holding);
}

static bool is_held(const struct ncclComm *comm) {
    pthread_mutex_lock(&holding);
    const bool held = comm->graphs > 0;
    pthread_mutex_unlock(&holding);
    return held;
}

static void wait_for_graphs(const struct ncclComm *comm) {
    pthread_mutex_lock(&holding);
    while (comm->graphs > 0) pthread_cond_wait(&let_go, &holding);
    pthread_mutex_unlock(&holding);
}

/* ---- starting ---- */

static ncclResult_t enqueue(CUstream stream, group *g) {
    const size_t bytes = sizeof *g + (size_t)g->n * sizeof *g->parts;
    const CUresult r = fake_cuda_enqueue_apart(stream, "nccl", run_group, hold, g, bytes);
    free(g);
    return r == CUDA_SUCCESS ? ncclSuccess : ncclUnhandledCudaError;
}

/* The group, now; or later, if it is the first of a communicator that does not block. */
static ncclResult_t send_off(void) {
    struct ncclComm *c = group_comm;
    group *g = malloc(sizeof *g + (size_t)n_parts * sizeof *parts);
    if (!g) return ncclSystemError;
    if (c->begun) abort(); /* he did not ask whether the last one is done */
    g->comm = c;
    g->n = n_parts;
    memcpy(g->parts, parts, (size_t)n_parts * sizeof *parts);
    n_parts = 0;
    if (c->blocking || c->used) return enqueue(group_stream, g);
    c->used = true;
    c->begun = g;
    c->polls = POLLS;
    c->stream = group_stream;
    c->thread = pthread_self();
    return ncclInProgress;
}

static ncclResult_t add(const char *name, ncclComm_t comm, CUstream stream, work w) {
    const int failure = fake_cuda_enter(name);
    if (failure) return (ncclResult_t)failure;
    if (!comm || w.type < 0 || w.type >= ncclNumTypes || n_parts == MOST_PARTS)
        return ncclInvalidArgument;
    if (team_state(comm->team, comm->rank) == ncclInProgress) return ncclInvalidUsage;
    const size_t bytes = w.count * size_of(w.type);
    if ((w.in && bytes && !fake_cuda_owns(w.in, bytes)) ||
        (w.out && bytes && !fake_cuda_owns(w.out, bytes)))
        return ncclInvalidArgument;
    w.team = comm->team;
    w.rank = comm->rank;
    parts[n_parts++] = w;
    group_comm = comm;
    group_stream = stream;
    return depth ? ncclSuccess : send_off();
}

/* ---- what is exported ---- */

ncclResult_t ncclAllReduce(const void *in, void *out, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
    return add(
        "ncclAllReduce", comm, (CUstream)stream,
        (work){.what = ALL_REDUCE, .in = in, .out = out, .count = count, .type = type, .op = op});
}

ncclResult_t ncclReduce(const void *in, void *out, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
    return add("ncclReduce", comm, (CUstream)stream,
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
    return add("ncclBroadcast", comm, (CUstream)stream,
               (work){.what = BROADCAST,
                      .peer = root,
                      .in = comm && comm->rank == root ? in : NULL,
                      .out = out,
                      .count = count,
                      .type = type});
}

ncclResult_t ncclSend(const void *in, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
    return add("ncclSend", comm, (CUstream)stream,
               (work){.what = SEND, .peer = peer, .in = in, .count = count, .type = type});
}

ncclResult_t ncclRecv(void *out, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
    return add("ncclRecv", comm, (CUstream)stream,
               (work){.what = RECEIVE, .peer = peer, .out = out, .count = count, .type = type});
}

ncclResult_t ncclGroupStart(void); /* in the header they are no prototypes */
ncclResult_t ncclGroupEnd(void);

ncclResult_t ncclGroupStart(void) {
    depth++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void) {
    if (--depth) return ncclSuccess;
    const bool later = joins;
    joins = false;
    return n_parts ? send_off() : later ? ncclInProgress : ncclSuccess;
}

/* ---- life ---- */

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
    const int failure = fake_cuda_enter("ncclGetUniqueId");
    if (failure) return (ncclResult_t)failure;
    return team_make(id) ? ncclSuccess : ncclSystemError;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int n, ncclUniqueId id, int rank,
                                    ncclConfig_t *config) {
    const int failure = fake_cuda_enter("ncclCommInitRankConfig");
    const int gpu = fake_cuda_gpu();
    if (failure) return (ncclResult_t)failure;
    if (n < 1 || n > TEAM_MOST || rank < 0 || rank >= n) return ncclInvalidArgument;
    if (gpu < 0) return ncclUnhandledCudaError;
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

/* Goes on with what was begun. */
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
    if (!pthread_equal(comm->thread, pthread_self()) || --comm->polls > 0) return ncclSuccess;
    group *begun = comm->begun;
    comm->begun = NULL;
    *state = enqueue(comm->stream, begun);
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
    team_leave(comm->team, comm->rank);
    comm->finalized = true;
    if (!comm->blocking) return ncclInProgress;
    wait_for_graphs(comm);
    return ncclSuccess;
}

/* With a GPU that is lost it gives up early, and what graphs refer to stays. */
static ncclResult_t end(ncclComm_t comm, const char *name) {
    const int failure = fake_cuda_enter(name);
    if (!failure) wait_for_graphs(comm);
    if (!is_held(comm)) {
        free(comm->begun);
        free(comm);
    }
    return (ncclResult_t)failure;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    return end(comm, "ncclCommDestroy");
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
    team_abort(comm->team, comm->rank);
    return end(comm, "ncclCommAbort");
}

const char *ncclGetErrorString(ncclResult_t result) {
    return result == ncclInvalidArgument ? "invalid argument"
           : result == ncclInvalidUsage  ? "invalid usage"
           : result == ncclRemoteError   ? "remote process exited or there was a network error"
                                         : "a fake CUDA's error";
}

const char *ncclGetLastError(ncclComm_t comm) {
    (void)comm;
    return "none";
}
