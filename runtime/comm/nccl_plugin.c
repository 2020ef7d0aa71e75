/* mgpu-nccl.so: collectives by NCCL, each enqueued on its rank's stream: they are recorded with the
 * step.
 *
 * NCCL's communicators do not block: a call returns at once, and what it has begun is asked after
 * until it is done. So a rank's lock is held for moments only, and abort, from any thread, takes it
 * to take the communicator away between two calls. NCCL's own abort ends kernels that wait for
 * other ranks, and then waits until the last recording with the communicator is given up: a thread
 * that nobody waits for calls it. Another one looks after errors that arise later, as when another
 * process dies, and aborts. What was aborted is made again at the next reset, and recordings with
 * it are void (mg_comm.generation). */
#include "comm/comm.h"
#include "core/alloc.h"
#include "core/library.h"
#include "core/placement.h"
#include "core/threads.h"
#include <nccl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define NCCL(X)                                                                                    \
    X(ncclGetErrorString)                                                                          \
    X(ncclGetLastError)                                                                            \
    X(ncclGetUniqueId)                                                                             \
    X(ncclCommInitRankConfig)                                                                      \
    X(ncclCommGetAsyncError)                                                                       \
    X(ncclCommFinalize)                                                                            \
    X(ncclCommDestroy)                                                                             \
    X(ncclCommAbort)                                                                               \
    X(ncclAllReduce)                                                                               \
    X(ncclReduce) X(ncclBroadcast) X(ncclSend) X(ncclRecv) X(ncclGroupStart) X(ncclGroupEnd)

MG_LIBRARY_TABLE(nccl_api, NCCL);
static nccl_api nccl;
MG_LIBRARY(library, nccl, NCCL, .file = "libnccl.so.2", .what = "NCCL 2",
           .install = "install libnccl2");

_Static_assert(sizeof(ncclUniqueId) == sizeof(mg_comm_id), "an id is NCCL's");

enum { NAP_NS = 50 * 1000, LOOK_NS = 100 * 1000 * 1000 };
static const double FAREWELL = 5; /* seconds that the end of a communicator may take */

struct nccl_comm;

typedef struct farewell { /* for a thread that aborts a rank's communicator: its own */
    struct nccl_comm *of;
    ncclComm_t comm;
} farewell;

typedef struct rank {
    mg_comm_end end;
    pthread_mutex_t busy; /* for calls with comm */
    ncclComm_t comm;      /* NULL: aborted */
    farewell *farewell;   /* room for it: an abort wants no memory */
} rank;

typedef struct nccl_comm {
    mg_comm comm;
    int first, here; /* the ranks of this process */
    bool named;      /* by an id from outside */
    mg_comm_id id;
    pthread_t watcher;
    bool watched;          /* there is one */
    pthread_mutex_t turn;  /* to take communicators away or make them; before a rank's lock */
    pthread_mutex_t mutex; /* for what follows */
    pthread_cond_t ending;
    bool ended, broken;
    char problem[300]; /* of the first that failed; "": another device did */
    int leaving;       /* threads that abort a communicator; each tells `left` */
    pthread_cond_t left;
    bool given_up; /* the last of them frees it */
    rank ranks[];  /* those here */
} nccl_comm;

static nccl_comm *of(mg_comm *comm) {
    return (nccl_comm *)comm;
}

static rank *rank_of(mg_comm *comm, int i) {
    return &of(comm)->ranks[i - of(comm)->first];
}

/* ---- errors ---- */

static mg_status nccl_check(mg_comm *comm) {
    nccl_comm *c = of(comm);
    pthread_mutex_lock(&c->mutex);
    const mg_status status =
        !c->broken ? MG_OK
                   : mg_fail(MG_COMM, "%s", c->problem[0] ? c->problem : "another device failed");
    pthread_mutex_unlock(&c->mutex);
    return status;
}

static bool is_broken(nccl_comm *c) {
    pthread_mutex_lock(&c->mutex);
    const bool broken = c->broken;
    pthread_mutex_unlock(&c->mutex);
    return broken;
}

static bool failed(ncclResult_t result) {
    return result != ncclSuccess && result != ncclInProgress;
}

static mg_status fail(nccl_comm *c, ncclResult_t result, const char *what) {
    MG_TRY(nccl_check(&c->comm)); /* what came first */
    return mg_fail(result == ncclRemoteError ? MG_COMM : MG_DEVICE, "NCCL: %s: %s (%s)", what,
                   nccl.ncclGetErrorString(result), nccl.ncclGetLastError(NULL));
}

/* ---- calls that do not block ---- */

static void sleep_for(long ns) {
    nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
}

/* With r's lock, which is let go in between: until what r has begun is done. */
static mg_status settle(nccl_comm *c, rank *r, ncclResult_t result, const char *what) {
    const double until = mg_seconds() + c->comm.deadline;
    while (result == ncclInProgress && r->comm) {
        if (mg_seconds() > until)
            return mg_fail(MG_COMM, "NCCL: %s: other ranks did not answer within %g seconds", what,
                           c->comm.deadline);
        const ncclResult_t asked = nccl.ncclCommGetAsyncError(r->comm, &result);
        if (asked != ncclSuccess) result = asked;
        if (result != ncclInProgress) break;
        pthread_mutex_unlock(&r->busy);
        sleep_for(NAP_NS);
        pthread_mutex_lock(&r->busy);
    }
    if (!r->comm) MG_TRY(nccl_check(&c->comm));
    return failed(result) ? fail(c, result, what) : MG_OK;
}

/* Between the two r->comm may be used. */
static mg_status begin(nccl_comm *c, rank *r) {
    pthread_mutex_lock(&r->busy);
    if (r->comm) return MG_OK;
    pthread_mutex_unlock(&r->busy);
    const mg_status status = nccl_check(&c->comm);
    return status != MG_OK ? status : mg_fail(MG_COMM, "NCCL: there is no communicator");
}

static mg_status end(nccl_comm *c, rank *r, ncclResult_t result, const char *what) {
    const mg_status status = settle(c, r, result, what);
    pthread_mutex_unlock(&r->busy);
    return status;
}

/* ---- collectives ---- */

/* A bool is the byte that is largest, whether added or not. */
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

static cudaStream_t stream_of(const rank *r) {
    return r->end.stream;
}

/* Blocks one after another: each rank sends its own to all and receives the others'. */
static ncclResult_t enqueue_gather(mg_comm *comm, int i, const mg_collective_call *x,
                                   const mg_comm_operand *operand) {
    const rank *r = rank_of(comm, i);
    const size_t size = mg_dtype_size(x->dtype), own = (size_t)x->counts[i] * size;
    const char *in = operand->in;
    char *out = operand->out;
    ncclResult_t result = ncclSuccess;
    for (int64_t o = 0; o < x->outer; o++, in += own)
        for (int k = 0; k < comm->n && !failed(result); k++) {
            const size_t theirs = (size_t)x->counts[k] * size;
            if (own) result = nccl.ncclSend(in, own, ncclUint8, k, r->comm, stream_of(r));
            if (theirs && !failed(result))
                result = nccl.ncclRecv(out, theirs, ncclUint8, k, r->comm, stream_of(r));
            out += theirs;
        }
    return result;
}

/* Enqueues one operand. Kinds that only move data send bytes, whatever the dtype. */
static ncclResult_t enqueue(mg_comm *comm, int i, const mg_collective_call *x,
                            const mg_comm_operand *operand) {
    const rank *r = rank_of(comm, i);
    const void *in = operand->in;
    void *out = operand->out;
    const size_t count = (size_t)operand->count, bytes = count * mg_dtype_size(x->dtype);
    const ncclDataType_t type = type_of(x->dtype);
    const ncclRedOp_t op = reduction_of(x);
    cudaStream_t stream = stream_of(r);
    switch (x->kind) {
    case MG_ALL_REDUCE: return nccl.ncclAllReduce(in, out, count, type, op, r->comm, stream);
    case MG_REDUCE: return nccl.ncclReduce(in, out, count, type, op, x->root, r->comm, stream);
    case MG_BROADCAST:
        /* NCCL writes the root's out too: there it is the operand itself, so nothing changes. */
        if (i == x->root) out = (void *)(uintptr_t)in;
        return nccl.ncclBroadcast(in, out, bytes, ncclUint8, x->root, r->comm, stream);
    case MG_ALL_GATHER: return enqueue_gather(comm, i, x, operand);
    case MG_TRANSFER:
        return i == x->root ? nccl.ncclSend(in, bytes, ncclUint8, x->to, r->comm, stream)
                            : nccl.ncclRecv(out, bytes, ncclUint8, x->root, r->comm, stream);
    default: return ncclInvalidUsage;
    }
}

/* What NCCL's ring moves per rank in a reduction. */
static void count_reduction(mg_comm *comm, int i, const mg_collective_call *x) {
    const int64_t size = (int64_t)mg_dtype_size(x->dtype), n = comm->n;
    for (int k = 0; k < x->n_operands; k++) {
        const int64_t bytes = x->operands[k].count * size;
        if (x->kind == MG_ALL_REDUCE) comm->bytes_moved[i] += 2 * (n - 1) * bytes / n;
        if (x->kind == MG_REDUCE && i != x->root) comm->bytes_moved[i] += bytes;
    }
}

/* A group lets NCCL start several calls together. It is needed where a rank both sends and
 * receives, or the ranks would wait for each other. */
static mg_status nccl_run(mg_comm *comm, int i, const mg_collective_call *x) {
    rank *r = rank_of(comm, i);
    const bool reduces = x->kind == MG_ALL_REDUCE || x->kind == MG_REDUCE;
    const bool grouped = x->n_operands > 1 || x->kind == MG_ALL_REDUCE || x->kind == MG_ALL_GATHER;
    MG_TRY(begin(of(comm), r));
    if (reduces)
        count_reduction(comm, i, x);
    else
        mg_comm_count_moved(comm, i, x);
    ncclResult_t result = grouped ? nccl.ncclGroupStart() : ncclSuccess;
    for (int k = 0; k < x->n_operands && !failed(result); k++)
        result = enqueue(comm, i, x, &x->operands[k]);
    if (grouped) {
        const ncclResult_t ended = nccl.ncclGroupEnd();
        if (!failed(result)) result = ended;
    }
    return end(of(comm), r, result, mg_collective_name(x->kind));
}

static mg_status nccl_barrier(mg_comm *comm, int i) {
    rank *r = rank_of(comm, i);
    const double start = mg_seconds();
    MG_TRY(begin(of(comm), r));
    MG_TRY(end(
        of(comm), r,
        nccl.ncclAllReduce(r->end.mark, r->end.mark, 1, ncclUint8, ncclMax, r->comm, stream_of(r)),
        "barrier"));
    MG_TRY(r->end.finish(r->end.device));
    comm->waited[i] += mg_seconds() - start;
    return nccl_check(comm);
}

/* ---- the end of a communicator ---- */

/* For one that fails without being asked: the first says why. */
static void blame(nccl_comm *c, int i, const char *why) {
    pthread_mutex_lock(&c->mutex);
    if (!c->broken && i >= 0)
        snprintf(c->problem, sizeof c->problem, "NCCL: rank %d: %s", i, why);
    else if (!c->broken)
        snprintf(c->problem, sizeof c->problem, "%s", why);
    pthread_mutex_unlock(&c->mutex);
}

static void free_all(nccl_comm *c) {
    pthread_mutex_destroy(&c->turn);
    pthread_mutex_destroy(&c->mutex);
    pthread_cond_destroy(&c->ending);
    pthread_cond_destroy(&c->left);
    mg_free(c);
}

static void *say_farewell(void *argument) {
    const farewell f = *(farewell *)argument;
    mg_free(argument);
    nccl.ncclCommAbort(f.comm);
    pthread_mutex_lock(&f.of->mutex);
    const bool last = --f.of->leaving == 0 && f.of->given_up;
    pthread_cond_signal(&f.of->left);
    pthread_mutex_unlock(&f.of->mutex);
    if (last) free_all(f.of);
    return NULL;
}

/* With r's lock, which is let go: takes its communicator away. Each rank's has a thread, because
 * all must have been told before the last one ends. Without a thread the caller does it, and may
 * wait. */
static void dismiss(nccl_comm *c, rank *r) {
    farewell *f = r->farewell;
    ncclComm_t comm = r->comm;
    pthread_t thread;
    r->comm = NULL;
    if (comm) r->farewell = NULL;
    pthread_mutex_unlock(&r->busy);
    if (!comm) return;
    *f = (farewell){c, comm};
    pthread_mutex_lock(&c->mutex);
    c->leaving++;
    pthread_mutex_unlock(&c->mutex);
    if (pthread_create(&thread, NULL, say_farewell, f) == 0)
        pthread_detach(thread);
    else
        say_farewell(f);
}

/* With the turn. */
static void dismiss_all(nccl_comm *c) {
    pthread_mutex_lock(&c->mutex);
    c->broken = true;
    pthread_mutex_unlock(&c->mutex);
    for (int i = 0; i < c->here; i++) {
        pthread_mutex_lock(&c->ranks[i].busy);
        dismiss(c, &c->ranks[i]);
    }
}

static void nccl_abort(mg_comm *comm) {
    nccl_comm *c = of(comm);
    pthread_mutex_lock(&c->turn);
    if (!is_broken(c)) dismiss_all(c);
    pthread_mutex_unlock(&c->turn);
}

/* What went wrong with r since: whoever is in a call sees it himself. */
static ncclResult_t ask(rank *r) {
    ncclResult_t result = ncclSuccess;
    if (pthread_mutex_trylock(&r->busy) != 0) return result;
    if (r->comm) {
        const ncclResult_t asked = nccl.ncclCommGetAsyncError(r->comm, &result);
        if (asked != ncclSuccess) result = asked;
    }
    pthread_mutex_unlock(&r->busy);
    return result;
}

static void look(nccl_comm *c) {
    for (int i = 0; i < c->here; i++) {
        const ncclResult_t result = ask(&c->ranks[i]);
        if (!failed(result)) continue;
        blame(c, c->first + i, nccl.ncclGetErrorString(result));
        nccl_abort(&c->comm);
        return;
    }
}

static void *watch(void *comm) {
    nccl_comm *c = comm;
    pthread_mutex_lock(&c->mutex);
    while (!c->ended) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += LOOK_NS;
        if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
        pthread_cond_timedwait(&c->ending, &c->mutex, &until);
        if (c->ended || c->broken) continue;
        pthread_mutex_unlock(&c->mutex);
        look(c);
        pthread_mutex_lock(&c->mutex);
    }
    pthread_mutex_unlock(&c->mutex);
    return NULL;
}

/* ---- life ---- */

static ncclResult_t start_joining(nccl_comm *c) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    ncclResult_t result = c->named ? ncclSuccess : nccl.ncclGetUniqueId((ncclUniqueId *)&c->id);
    config.blocking = 0;
    memcpy(&id, &c->id, sizeof id);
    if (failed(result)) return result;
    result = nccl.ncclGroupStart();
    for (int i = 0; i < c->here && !failed(result); i++) {
        rank *r = &c->ranks[i];
        if (r->end.enter(r->end.device) != MG_OK) result = ncclSystemError;
        pthread_mutex_lock(&r->busy);
        if (!failed(result))
            result = nccl.ncclCommInitRankConfig(&r->comm, c->comm.n, id, c->first + i, &config);
        pthread_mutex_unlock(&r->busy);
    }
    const ncclResult_t ended = nccl.ncclGroupEnd();
    return failed(result) ? result : ended;
}

static mg_status join_all(nccl_comm *c) {
    for (int i = 0; i < c->here; i++) {
        farewell **f = &c->ranks[i].farewell;
        if (!*f && !(*f = mg_alloc(sizeof **f))) return MG_OOM;
    }
    const ncclResult_t result = start_joining(c);
    if (failed(result)) return fail(c, result, "start");
    for (int i = 0; i < c->here; i++) {
        rank *r = &c->ranks[i];
        pthread_mutex_lock(&r->busy);
        MG_TRY(end(c, r, ncclInProgress, "start"));
    }
    return MG_OK;
}

/* With the turn. Without new communicators it stays broken. */
static void mend(nccl_comm *c) {
    pthread_mutex_lock(&c->mutex);
    c->broken = false;
    c->problem[0] = 0;
    pthread_mutex_unlock(&c->mutex);
    if (join_all(c) == MG_OK) {
        c->comm.generation++;
        return;
    }
    blame(c, -1, mg_error_message());
    dismiss_all(c);
}

/* After a failure, whose message is still to be read. */
static void nccl_reset(mg_comm *comm) {
    nccl_comm *c = of(comm);
    char message[2048];
    const mg_status code = mg_error_code();
    if (c->named || !is_broken(c)) return;
    snprintf(message, sizeof message, "%s", mg_error_message());
    pthread_mutex_lock(&c->turn);
    mend(c);
    pthread_mutex_unlock(&c->turn);
    mg_error_clear();
    if (code != MG_OK) mg_fail(code, "%s", message);
}

/* All ranks are told before the first is waited for: they say farewell to each other. */
static void end_all(nccl_comm *c) {
    c->comm.deadline = FAREWELL;
    for (int i = 0; i < c->here; i++)
        if (c->ranks[i].comm) nccl.ncclCommFinalize(c->ranks[i].comm);
    for (int i = 0; i < c->here; i++) {
        rank *r = &c->ranks[i];
        pthread_mutex_lock(&r->busy);
        if (r->comm && settle(c, r, ncclInProgress, "end") == MG_OK) {
            nccl.ncclCommDestroy(r->comm);
            r->comm = NULL;
        } else if (r->comm) {
            mg_error_clear();
        }
        dismiss(c, r);
        mg_free(r->farewell);
        pthread_mutex_destroy(&r->busy);
    }
}

/* With c's lock: true if all threads that abort something have ended in time. */
static bool wait_for_farewells(nccl_comm *c) {
    struct timespec until;
    int r = 0;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (time_t)FAREWELL;
    while (c->leaving && r == 0) r = pthread_cond_timedwait(&c->left, &c->mutex, &until);
    return c->leaving == 0;
}

/* Recordings have been given up by now, so threads that wait for them end; but NCCL may never
 * answer. */
static void nccl_free(mg_comm *comm) {
    nccl_comm *c = of(comm);
    pthread_mutex_lock(&c->mutex);
    c->ended = true;
    pthread_cond_signal(&c->ending);
    pthread_mutex_unlock(&c->mutex);
    if (c->watched) pthread_join(c->watcher, NULL);
    end_all(c);
    mg_comm_clear(comm);
    pthread_mutex_lock(&c->mutex);
    const bool left = wait_for_farewells(c);
    c->given_up = !left;
    pthread_mutex_unlock(&c->mutex);
    if (left) free_all(c);
}

static const mg_comm_api api = {.size = sizeof(mg_comm_api),
                                .kind = "nccl",
                                .run = nccl_run,
                                .barrier = nccl_barrier,
                                .abort = nccl_abort,
                                .reset = nccl_reset,
                                .check = nccl_check,
                                .free = nccl_free,
                                .recorded = true};

static mg_status set_up(nccl_comm *c, const mg_comm_team *team) {
    c->first = team->first;
    c->here = team->here;
    c->named = team->id != NULL;
    if (c->named) c->id = *team->id;
    pthread_mutex_init(&c->turn, NULL);
    pthread_mutex_init(&c->mutex, NULL);
    pthread_cond_init(&c->ending, NULL);
    pthread_cond_init(&c->left, NULL);
    for (int i = 0; i < c->here; i++) {
        c->ranks[i].end = team->ends[i];
        pthread_mutex_init(&c->ranks[i].busy, NULL);
    }
    MG_TRY(mg_comm_set_up(&c->comm, &api, team->n));
    MG_TRY(join_all(c));
    c->watched = pthread_create(&c->watcher, NULL, watch, c) == 0;
    return c->watched ? MG_OK : mg_fail(MG_OOM, "NCCL: no thread to look after errors");
}

static mg_comm *join(const mg_comm_team *team) {
    if (mg_library_open(&library) != MG_OK) return NULL;
    nccl_comm *c = mg_alloc_zero(sizeof *c + (size_t)team->here * sizeof *c->ranks);
    if (!c) return NULL;
    if (set_up(c, team) == MG_OK) return &c->comm;
    nccl_abort(&c->comm);
    nccl_free(&c->comm);
    return NULL;
}

static mg_status make_id(mg_comm_id *id) {
    MG_TRY(mg_library_open(&library));
    const ncclResult_t result = nccl.ncclGetUniqueId((ncclUniqueId *)id);
    return result == ncclSuccess
               ? MG_OK
               : mg_fail(MG_COMM, "NCCL: no id: %s (%s)", nccl.ncclGetErrorString(result),
                         nccl.ncclGetLastError(NULL));
}

const mg_comm_kind *mg_comm_plugin(void);
const mg_comm_kind *mg_comm_plugin(void) {
    static const mg_comm_kind kind = {sizeof(mg_comm_kind), make_id, join};
    return &kind;
}
