/* Failures: aborting the communicators of all ranks, the watcher that notices errors between calls,
 * and making new communicators at reset. See nccl.h. */
#include "comm/nccl/nccl.h"
#include "core/alloc.h"
#include "core/threads.h"
#include <stdio.h>
#include <string.h>

static const double WATCH_SECONDS = 0.1; /* between two checks by the watcher */

/* ---- the state ---- */

/* Without a reason the abort came from another device of the step that failed. */
mg_status mg_nccl_check(mg_comm *comm) {
    mg_nccl_comm *c = mg_nccl_of(comm);
    pthread_mutex_lock(&c->mutex);
    const mg_status status =
        !c->aborted ? MG_OK
                    : mg_fail(MG_COMM, "%s", c->reason[0] ? c->reason : "another device failed");
    pthread_mutex_unlock(&c->mutex);
    return status;
}

/* Sets no message, unlike mg_nccl_check. */
static bool is_aborted(mg_nccl_comm *c) {
    pthread_mutex_lock(&c->mutex);
    const bool aborted = c->aborted;
    pthread_mutex_unlock(&c->mutex);
    return aborted;
}

/* Notes why the communicator is about to be aborted: rank i failed (-1: all of it), unless an
 * earlier failure has aborted it already. */
static void set_reason(mg_nccl_comm *c, int i, const char *why) {
    pthread_mutex_lock(&c->mutex);
    if (!c->aborted && i >= 0)
        snprintf(c->reason, sizeof c->reason, "NCCL: rank %d: %s", i, why);
    else if (!c->aborted)
        snprintf(c->reason, sizeof c->reason, "%s", why);
    pthread_mutex_unlock(&c->mutex);
}

/* ---- aborting ---- */

/* Called by the owner, or by the last abort thread if the owner has not waited for it. */
void mg_nccl_free_struct(mg_nccl_comm *c) {
    pthread_mutex_destroy(&c->lifetime);
    pthread_mutex_destroy(&c->mutex);
    pthread_cond_destroy(&c->ending);
    pthread_cond_destroy(&c->abort_over);
    mg_free(c);
}

/* The thread that aborts one rank's communicator. */
static void *abort_main(void *argument) {
    const mg_nccl_abort_job job = *(mg_nccl_abort_job *)argument;
    mg_nccl_comm *c = job.of;
    mg_free(argument);
    mg_nccl.ncclCommAbort(job.comm); /* may take until the last recording is destroyed */
    pthread_mutex_lock(&c->mutex);
    const bool last = --c->aborts == 0 && c->orphaned;
    pthread_cond_signal(&c->abort_over);
    pthread_mutex_unlock(&c->mutex);
    if (last) mg_nccl_free_struct(c);
    return NULL;
}

/* One thread per rank, because in NCCL an abort returns only after all ranks have started theirs.
 * If no thread can be made the caller aborts, and may have to wait. */
void mg_nccl_abort_rank(mg_nccl_comm *c, mg_nccl_rank *r) {
    mg_nccl_abort_job *job = r->abort_job;
    ncclComm_t comm = r->comm;
    pthread_t thread;
    r->comm = NULL;
    if (comm) r->abort_job = NULL;
    pthread_mutex_unlock(&r->lock);
    if (!comm) return;
    *job = (mg_nccl_abort_job){c, comm};
    pthread_mutex_lock(&c->mutex);
    c->aborts++;
    pthread_mutex_unlock(&c->mutex);
    if (mg_thread_start(&thread, abort_main, job))
        pthread_detach(thread);
    else
        abort_main(job);
}

/* With the lifetime lock: aborts all ranks of this process. `aborted` is set first, so that no rank
 * starts another call. */
static void abort_ranks(mg_nccl_comm *c) {
    pthread_mutex_lock(&c->mutex);
    c->aborted = true;
    pthread_mutex_unlock(&c->mutex);
    for (int i = 0; i < c->here; i++) {
        pthread_mutex_lock(&c->ranks[i].lock);
        mg_nccl_abort_rank(c, &c->ranks[i]);
    }
}

/* May be called from any thread, also while ranks are in calls: their next poll finds the
 * communicator gone. */
void mg_nccl_abort(mg_comm *comm) {
    mg_nccl_comm *c = mg_nccl_of(comm);
    pthread_mutex_lock(&c->lifetime);
    if (!is_aborted(c)) abort_ranks(c);
    pthread_mutex_unlock(&c->lifetime);
}

/* ---- the watcher ---- */

/* The error that NCCL has found for r since its last call. Skips a rank that is in a call: it finds
 * the error itself. */
static ncclResult_t poll_error(mg_nccl_rank *r) {
    ncclResult_t result = ncclSuccess;
    if (pthread_mutex_trylock(&r->lock) != 0) return result;
    if (r->comm) {
        const ncclResult_t asked = mg_nccl.ncclCommGetAsyncError(r->comm, &result);
        if (asked != ncclSuccess) result = asked;
    }
    pthread_mutex_unlock(&r->lock);
    return result;
}

/* Aborts if one of the ranks here has an error. */
static void watch_ranks(mg_nccl_comm *c) {
    for (int i = 0; i < c->here; i++) {
        const ncclResult_t result = poll_error(&c->ranks[i]);
        if (!mg_nccl_failed(result)) continue;
        set_reason(c, c->first + i, mg_nccl.ncclGetErrorString(result));
        mg_nccl_abort(&c->comm);
        return;
    }
}

/* The watcher thread: looks at all ranks every WATCH_SECONDS, until the communicator ends. The
 * mutex is released for the check, which takes locks that precede it in the lock order. */
static void *watcher_main(void *comm) {
    mg_nccl_comm *c = comm;
    pthread_mutex_lock(&c->mutex);
    while (!c->ended) {
        const struct timespec until = mg_time_after(WATCH_SECONDS);
        pthread_cond_timedwait(&c->ending, &c->mutex, &until);
        if (c->ended || c->aborted) continue;
        pthread_mutex_unlock(&c->mutex);
        watch_ranks(c);
        pthread_mutex_lock(&c->mutex);
    }
    pthread_mutex_unlock(&c->mutex);
    return NULL;
}

mg_status mg_nccl_start_watcher(mg_nccl_comm *c) {
    c->has_watcher = mg_thread_start(&c->watcher, watcher_main, c);
    return c->has_watcher ? MG_OK
                          : mg_fail(MG_OOM, "NCCL: cannot make the thread that watches for errors");
}

void mg_nccl_stop_watcher(mg_nccl_comm *c) {
    pthread_mutex_lock(&c->mutex);
    c->ended = true;
    pthread_cond_signal(&c->ending);
    pthread_mutex_unlock(&c->mutex);
    if (c->has_watcher) pthread_join(c->watcher, NULL);
}

/* ---- joining, and joining again ---- */

/* Starts making a communicator for each rank here, in one group, because each waits for the others.
 */
static ncclResult_t start_joining(mg_nccl_comm *c) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    ncclResult_t result =
        c->spans_processes ? ncclSuccess : mg_nccl.ncclGetUniqueId((ncclUniqueId *)&c->id);
    config.blocking = 0; /* non-blocking mode: see nccl.h */
    memcpy(&id, &c->id, sizeof id);
    if (mg_nccl_failed(result)) return result;
    result = mg_nccl.ncclGroupStart();
    for (int i = 0; i < c->here && !mg_nccl_failed(result); i++) {
        mg_nccl_rank *r = &c->ranks[i];
        if (r->end.enter(r->end.device) != MG_OK) result = ncclSystemError;
        pthread_mutex_lock(&r->lock);
        if (!mg_nccl_failed(result))
            result = mg_nccl.ncclCommInitRankConfig(&r->comm, c->comm.n, id, c->first + i, &config);
        pthread_mutex_unlock(&r->lock);
    }
    const ncclResult_t ended = mg_nccl.ncclGroupEnd();
    return mg_nccl_failed(result) ? result : ended;
}

/* Allocates the abort jobs first, so that a communicator can always be aborted. */
mg_status mg_nccl_join_ranks(mg_nccl_comm *c, bool stops) {
    for (int i = 0; i < c->here; i++) {
        mg_nccl_abort_job **job = &c->ranks[i].abort_job;
        if (!*job && !(*job = mg_alloc(sizeof **job))) return MG_OOM;
    }
    const ncclResult_t result = start_joining(c);
    if (mg_nccl_failed(result)) return mg_nccl_fail(c, result, "start");
    for (int i = 0; i < c->here; i++) {
        mg_nccl_rank *r = &c->ranks[i];
        pthread_mutex_lock(&r->lock);
        const mg_status status = mg_nccl_wait(c, r, ncclInProgress, stops, "start");
        pthread_mutex_unlock(&r->lock);
        MG_TRY(status);
    }
    return MG_OK;
}

/* With the lifetime lock: replaces aborted NCCL communicators by new ones. If this fails the
 * communicator stays aborted, with the new reason. */
static void rejoin(mg_nccl_comm *c) {
    pthread_mutex_lock(&c->mutex);
    c->aborted = false;
    c->reason[0] = 0;
    pthread_mutex_unlock(&c->mutex);
    if (mg_nccl_join_ranks(c, false) == MG_OK) {
        c->comm.generation++; /* recordings hold the old communicators */
        return;
    }
    set_reason(c, -1, mg_error_message());
    abort_ranks(c);
}

/* A team that spans processes stays aborted: only its processes together can make a new id. Keeps
 * the error that was set before the call, because the caller still has to report it. */
void mg_nccl_reset(mg_comm *comm) {
    mg_nccl_comm *c = mg_nccl_of(comm);
    char message[2048];
    const mg_status code = mg_error_code();
    if (c->spans_processes || !is_aborted(c)) return;
    snprintf(message, sizeof message, "%s", mg_error_message());
    pthread_mutex_lock(&c->lifetime);
    rejoin(c);
    pthread_mutex_unlock(&c->lifetime);
    mg_error_clear();
    if (code != MG_OK) mg_fail(code, "%s", message);
}
