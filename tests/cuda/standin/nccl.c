/* The stand-in for NCCL: ranks are threads of this process that meet in memory.
 *
 * A collective runs where the stream runs it: at once, or when a graph with it is launched. It
 * waits for the other ranks there, as kernels of NCCL do on their GPUs, until somebody aborts. */
#include "standin.h"
#include <nccl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 16, MOST_PARTS = 4096 };

typedef struct operand {
    const void *in;
    void *out;
} operand;

typedef struct team {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int n, arrived;
    long round;
    bool aborted;
    operand table[MOST_RANKS];
    const void *mail[MOST_RANKS][MOST_RANKS]; /* from, to: what is sent; NULL: nothing, or taken */
    struct team *next;
} team;

static team *teams; /* all that were made: kept */

struct ncclComm {
    team *team;
    int rank;
};

typedef enum kind { ALL_REDUCE, REDUCE, BROADCAST, SEND, RECEIVE } kind;

typedef struct work {
    team *team;
    int rank, peer; /* root, or the other one */
    kind what;
    const void *in;
    void *out;
    size_t count;
    ncclDataType_t type;
    ncclRedOp_t op;
} work;

static _Thread_local int depth; /* of groups */
static _Thread_local work parts[MOST_PARTS];
static _Thread_local int n_parts;
static _Thread_local CUstream group_stream;

/* ---- meeting ---- */

static void change(team *t) {
    pthread_cond_broadcast(&t->changed);
}

/* False: aborted. */
static bool meet(team *t) {
    pthread_mutex_lock(&t->mutex);
    const long round = t->round;
    if (++t->arrived == t->n) {
        t->arrived = 0;
        t->round++;
        change(t);
    }
    while (t->round == round && !t->aborted) pthread_cond_wait(&t->changed, &t->mutex);
    const bool met = t->round != round;
    pthread_mutex_unlock(&t->mutex);
    return met;
}

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

static void run_together(const work *w) {
    team *t = w->team;
    const size_t bytes = w->count * size_of(w->type);
    void *result = malloc(bytes + 1); /* in and out may be the same */
    t->table[w->rank] = (operand){w->in, w->out};
    if (result && meet(t)) {
        memcpy(result, t->table[w->what == BROADCAST ? w->peer : 0].in, bytes);
        for (int r = 1; r < t->n && w->what != BROADCAST; r++)
            combine(result, t->table[r].in, w->count, w->type, w->op);
        if (meet(t) && (w->what != REDUCE || w->rank == w->peer)) memcpy(w->out, result, bytes);
    }
    free(result);
}

static void post(const work *w) {
    team *t = w->team;
    pthread_mutex_lock(&t->mutex);
    while (t->mail[w->rank][w->peer] && !t->aborted) pthread_cond_wait(&t->changed, &t->mutex);
    t->mail[w->rank][w->peer] = w->in;
    change(t);
    pthread_mutex_unlock(&t->mutex);
}

static void take(const work *w) {
    team *t = w->team;
    pthread_mutex_lock(&t->mutex);
    while (!t->mail[w->peer][w->rank] && !t->aborted) pthread_cond_wait(&t->changed, &t->mutex);
    if (!t->aborted) memcpy(w->out, t->mail[w->peer][w->rank], w->count * size_of(w->type));
    t->mail[w->peer][w->rank] = NULL;
    change(t);
    pthread_mutex_unlock(&t->mutex);
}

/* Until what was sent has been read. */
static void wait_taken(const work *w) {
    team *t = w->team;
    pthread_mutex_lock(&t->mutex);
    while (t->mail[w->rank][w->peer] == w->in && !t->aborted)
        pthread_cond_wait(&t->changed, &t->mutex);
    pthread_mutex_unlock(&t->mutex);
}

typedef struct group {
    int n;
    work parts[];
} group;

/* The k-th sends to all, then the k-th receives, so that no two ranks wait for each other. */
static void run_group(void *args) {
    const group *g = args;
    int sent = 0;
    for (int i = 0; i < g->n; i++) {
        const work *w = &g->parts[i];
        if (w->what == RECEIVE) continue;
        if (w->what != SEND) {
            run_together(w);
            continue;
        }
        bool again = false; /* a second mail to the same rank waits until the first was read */
        for (int k = sent; k < i; k++)
            again |= g->parts[k].what == SEND && g->parts[k].peer == w->peer;
        if (again) {
            for (int k = sent; k < i; k++)
                if (g->parts[k].what == RECEIVE) take(&g->parts[k]);
            sent = i;
        }
        post(w);
    }
    for (int k = sent; k < g->n; k++)
        if (g->parts[k].what == RECEIVE) take(&g->parts[k]);
    for (int i = 0; i < g->n; i++)
        if (g->parts[i].what == SEND) wait_taken(&g->parts[i]);
}

static ncclResult_t send_off(void) {
    const size_t bytes = sizeof(group) + (size_t)n_parts * sizeof(work);
    group *g = malloc(bytes);
    if (!g) return ncclSystemError;
    g->n = n_parts;
    memcpy(g->parts, parts, (size_t)n_parts * sizeof *parts);
    n_parts = 0;
    const CUresult r = standin_enqueue(group_stream, "nccl", run_group, g, bytes);
    free(g);
    return r == CUDA_SUCCESS ? ncclSuccess : ncclUnhandledCudaError;
}

static ncclResult_t add(const char *name, ncclComm_t comm, CUstream stream, work w) {
    const int failure = standin_enter(name);
    if (failure) return (ncclResult_t)failure;
    if (!comm || w.type < 0 || w.type >= ncclNumTypes || n_parts == MOST_PARTS)
        return ncclInvalidArgument;
    const size_t bytes = w.count * size_of(w.type);
    if ((w.in && bytes && !standin_owns(w.in, bytes)) ||
        (w.out && bytes && !standin_owns(w.out, bytes)))
        return ncclInvalidArgument;
    w.team = comm->team;
    w.rank = comm->rank;
    parts[n_parts++] = w;
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
    return --depth || !n_parts ? ncclSuccess : send_off();
}

ncclResult_t ncclCommInitAll(ncclComm_t *comms, int n, const int *gpus) {
    const int failure = standin_enter("ncclCommInitAll");
    if (failure) return (ncclResult_t)failure;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < i; k++)
            if (gpus[i] == gpus[k]) return ncclInvalidUsage; /* as the real one */
    team *t = calloc(1, sizeof *t);
    if (!t || n > MOST_RANKS) return ncclSystemError;
    pthread_mutex_init(&t->mutex, NULL);
    pthread_cond_init(&t->changed, NULL);
    t->n = n;
    t->next = teams;
    while (!__atomic_compare_exchange_n(&teams, &t->next, t, false, __ATOMIC_SEQ_CST,
                                        __ATOMIC_SEQ_CST))
        continue;
    for (int i = 0; i < n; i++) {
        comms[i] = malloc(sizeof *comms[i]);
        *comms[i] = (struct ncclComm){.team = t, .rank = i};
    }
    return ncclSuccess;
}

/* What graphs still refer to stays: a team is never freed. */
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    free(comm);
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
    team *t = comm->team;
    pthread_mutex_lock(&t->mutex);
    t->aborted = true;
    change(t);
    pthread_mutex_unlock(&t->mutex);
    free(comm);
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result) {
    return result == ncclInvalidArgument ? "invalid argument" : "a stand-in's error";
}

const char *ncclGetLastError(ncclComm_t comm) {
    (void)comm;
    return "none";
}
