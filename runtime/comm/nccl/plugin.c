/* The plug-in's entry: joining a team, and the end of a communicator. See nccl.h. */
#include "comm/nccl/nccl.h"
#include "core/alloc.h"
#include "core/threads.h"
#include <stdlib.h>
#include <string.h>

mg_nccl_api mg_nccl;
MG_LIBRARY(library, mg_nccl, MG_NCCL_FUNCTIONS, .file = "libnccl.so.2", .what = "NCCL 2",
           .install = "install libnccl2");

_Static_assert(sizeof(ncclUniqueId) == sizeof(mg_comm_id), "mg_comm_id holds NCCL's id");

static const double END_SECONDS = 5; /* time limit for ending a communicator */

/* ---- the end ---- */

/* Ends NCCL's communicators. All ranks are told to finish before the first is waited for, because
 * they finish together. Those that do not finish in time are aborted. */
static void end_ranks(mg_nccl_comm *c) {
    c->comm.deadline = END_SECONDS; /* for mg_nccl_wait */
    for (int i = 0; i < c->here; i++)
        if (c->ranks[i].comm) mg_nccl.ncclCommFinalize(c->ranks[i].comm);
    for (int i = 0; i < c->here; i++) {
        mg_nccl_rank *r = &c->ranks[i];
        pthread_mutex_lock(&r->lock);
        if (r->comm && mg_nccl_wait(c, r, ncclInProgress, false, "end") == MG_OK) {
            mg_nccl.ncclCommDestroy(r->comm);
            r->comm = NULL;
        } else if (r->comm) {
            mg_error_clear();
        }
        mg_nccl_abort_rank(c, r);
        mg_free(r->abort_job);
        pthread_mutex_destroy(&r->lock);
    }
}

/* With c->mutex: waits END_SECONDS at most. True if all threads that abort a communicator have
 * ended in time. */
static bool wait_for_aborts(mg_nccl_comm *c) {
    const struct timespec until = mg_time_after(END_SECONDS);
    int r = 0;
    while (c->aborts && r == 0) r = pthread_cond_timedwait(&c->abort_over, &c->mutex, &until);
    return c->aborts == 0;
}

/* All recordings have been destroyed by now, so threads in ncclCommAbort end soon. But NCCL may
 * hang: then the last of them frees the struct later. */
static void nccl_free(mg_comm *comm) {
    mg_nccl_comm *c = mg_nccl_of(comm);
    mg_nccl_stop_watcher(c);
    end_ranks(c);
    mg_comm_clear(comm);
    pthread_mutex_lock(&c->mutex);
    const bool over = wait_for_aborts(c);
    c->orphaned = !over;
    pthread_mutex_unlock(&c->mutex);
    if (over) mg_nccl_free_struct(c);
}

/* ---- the beginning ---- */

static const mg_comm_api api = {.kind = "nccl",
                                .run = mg_nccl_run,
                                .barrier = mg_nccl_barrier,
                                .abort = mg_nccl_abort,
                                .reset = mg_nccl_reset,
                                .check = mg_nccl_check,
                                .free = nccl_free,
                                .recorded = true};

/* Fills in a zeroed struct. On failure nccl_free still has to be called. */
static mg_status nccl_set_up(mg_nccl_comm *c, const mg_comm_team *team) {
    c->first = team->first;
    c->here = team->here;
    c->spans_processes = team->id != NULL;
    if (c->spans_processes) c->id = *team->id;
    pthread_mutex_init(&c->lifetime, NULL);
    pthread_mutex_init(&c->mutex, NULL);
    mg_cond_init(&c->ending);
    mg_cond_init(&c->abort_over);
    for (int i = 0; i < c->here; i++) {
        c->ranks[i].end = team->ends[i];
        pthread_mutex_init(&c->ranks[i].lock, NULL);
    }
    MG_TRY(mg_comm_set_up(&c->comm, &api, team->n));
    MG_TRY(mg_nccl_join_ranks(c, true));
    return mg_nccl_start_watcher(c);
}

/* Opens NCCL, with the registration of captured buffers switched off. When NCCL registers buffers
 * (for NVLS, at new addresses), all ranks of the machine wait for each other during the capture.
 * But captured graphs depend on addresses, so one rank may have to capture again while the others
 * replay, which would be a deadlock. */
static mg_status open_library(void) {
    setenv("NCCL_GRAPH_REGISTER", "0", 1);
    return mg_library_open(&library);
}

/* mg_comm_kind.join. */
static mg_comm *nccl_join(const mg_comm_team *team) {
    if (open_library() != MG_OK) return NULL;
    mg_nccl_comm *c = mg_alloc_zero(sizeof *c + (size_t)team->here * sizeof *c->ranks);
    if (!c) return NULL;
    if (nccl_set_up(c, team) == MG_OK) return &c->comm;
    /* The message of the failure is kept: abort and free set no message. */
    mg_nccl_abort(&c->comm);
    nccl_free(&c->comm);
    return NULL;
}

/* mg_comm_kind.make_id: an id names a team; every process of it joins with the same one. */
static mg_status nccl_make_id(mg_comm_id *id) {
    MG_TRY(open_library());
    const ncclResult_t result = mg_nccl.ncclGetUniqueId((ncclUniqueId *)id);
    return result == ncclSuccess
               ? MG_OK
               : mg_fail(MG_COMM, "NCCL: cannot make an id: %s (%s)",
                         mg_nccl.ncclGetErrorString(result), mg_nccl.ncclGetLastError(NULL));
}

const mg_comm_kind *mg_comm_plugin(void);
const mg_comm_kind *mg_comm_plugin(void) {
    static const mg_comm_kind kind = {sizeof(mg_comm_kind), nccl_make_id, nccl_join};
    return &kind;
}
