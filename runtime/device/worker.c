/* Workers and the watchdog over them: see worker.h.
 *
 * A worker has two slots for jobs: one for mg_workers_run, one for mg_worker_begin. The outcome of
 * a begun job stays in its slot until mg_worker_end takes it, even if mg_workers_run runs jobs in
 * between. An abandoned job, one that its caller no longer waits for, stays in its slot until it
 * has returned. The thread runs one job at a time.
 *
 * A worker's mutex guards all members below it. A caller starts a job by setting its state to
 * RUNNING; the worker sets RETURNED when the job has returned. Both signal `changed`. */
#define _GNU_SOURCE
#include "device/worker.h"
#include "core/activity.h"
#include "core/alloc.h"
#include "core/limits.h"
#include "core/threads.h"
#include "device/device.h"
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Seconds. */
static const double DEFAULT_GRACE = 10; /* MGPU_GRACE overrides it */
static const double POLL_EVERY = 0.02;  /* between two looks at the interrupt flag and the jobs */
static const double STOP_WITHIN = 0.05; /* the time that a job has to stop after an interrupt ... */
static const double PATIENCE = 2;       /* ... or, if it must not stop, to start its next step */

typedef enum job_state { NO_JOB, RUNNING, RETURNED } job_state;

typedef struct worker_job {
    job_state state; /* RETURNED: the outcome has not been taken yet */
    bool abandoned;  /* its caller no longer waits for it: its outcome will be dropped */
    mg_job fn;
    void *context;
    int index;
    mg_status status; /* of the last job that returned */
    char *message;    /* of that job, NULL on success; owned until it is handed out */
} worker_job;

/* For measuring how long a device has made no progress. */
typedef struct stillness {
    unsigned progress; /* mg_device.progress at its last change */
    double since;      /* the time of that change; 0: not measured yet */
} stillness;

struct mg_worker {
    pthread_t thread;
    const mg_device *device;
    stillness begun_still; /* of the begun job; only its owner's thread uses it */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    worker_job common; /* of mg_workers_run: the caller waits for it */
    worker_job begun;  /* of mg_worker_begin: the caller goes on */
    bool closing;      /* the thread ends when it is idle */
};

static _Thread_local bool is_worker;

bool mg_worker_is_own(void) {
    return is_worker;
}

mg_status mg_worker_poll(void) {
    if (is_worker) return MG_OK;
    mg_signals_admit();
    if (!mg_interrupt_pending() || !mg_interrupt_take()) return MG_OK;
    return mg_fail(MG_INTERRUPTED, "interrupted");
}

/* Runs a job that has been handed over, on the worker's thread, and stores its outcome. */
static void run_job(mg_worker *w, worker_job *job) {
    mg_error_clear();
    const mg_status status = job->fn(job->context, job->index);
    char *message = status != MG_OK ? mg_strdup(mg_error_message()) : NULL;
    pthread_mutex_lock(&w->mutex);
    job->status = status;
    job->message = message;
    job->state = RETURNED;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->mutex);
}

/* The job that the thread has to run next, or NULL. The mutex must be locked. */
static worker_job *next_job(mg_worker *w) {
    if (w->begun.state == RUNNING) return &w->begun;
    return w->common.state == RUNNING ? &w->common : NULL;
}

/* The thread: waits for jobs until it is told to end. */
static void *worker_main(void *argument) {
    mg_worker *w = argument;
    is_worker = true;
    mg_activity_name(w->device->name);
    for (;;) {
        pthread_mutex_lock(&w->mutex);
        while (!next_job(w) && !w->closing) pthread_cond_wait(&w->changed, &w->mutex);
        worker_job *job = next_job(w);
        pthread_mutex_unlock(&w->mutex);
        if (!job) return NULL; /* closing */
        run_job(w, job);
    }
}

/* Makes the worker of a device that has none yet. MG_DEVICE if the device is lost. */
static mg_status ensure_worker(mg_device *d) {
    MG_TRY(mg_device_check(d));
    if (d->worker) return MG_OK;
    mg_worker *w = mg_alloc_zero(sizeof *w);
    if (!w) return MG_OOM;
    w->device = d;
    pthread_mutex_init(&w->mutex, NULL);
    mg_cond_init(&w->changed);
    if (!mg_thread_start(&w->thread, worker_main, w)) {
        const int error = errno;
        mg_free(w);
        return mg_fail(MG_OOM, "%s: cannot make a thread: %s", d->name, mg_reason(error));
    }
    d->worker = w;
    return MG_OK;
}

/* Starts a job in a free slot of the worker. */
static void start_job(mg_worker *w, worker_job *job, mg_job fn, void *context, int index) {
    pthread_mutex_lock(&w->mutex);
    job->fn = fn;
    job->context = context;
    job->index = index;
    job->state = RUNNING;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->mutex);
}

/* Takes the outcome of a job that has returned, which frees its slot. */
static void take_outcome(mg_worker *w, worker_job *job, mg_status *status, char **message) {
    pthread_mutex_lock(&w->mutex);
    *status = job->status;
    *message = job->message;
    job->message = NULL;
    job->state = NO_JOB;
    pthread_mutex_unlock(&w->mutex);
}

/* Whether no job runs in this slot; with `wait`, after waiting for at most POLL_EVERY. */
static bool has_returned(mg_worker *w, const worker_job *job, bool wait) {
    const struct timespec until = mg_time_after(POLL_EVERY);
    pthread_mutex_lock(&w->mutex);
    while (job->state == RUNNING && wait)
        if (pthread_cond_timedwait(&w->changed, &w->mutex, &until) == ETIMEDOUT) break;
    const bool returned = job->state != RUNNING;
    pthread_mutex_unlock(&w->mutex);
    return returned;
}

/* ---- the watchdog ---- */

double mg_grace(void) {
    const char *given = getenv("MGPU_GRACE");
    return given && atof(given) > 0 ? atof(given) : DEFAULT_GRACE;
}

/* Marks a device lost: no job is given to it again. */
static void mark_lost(mg_device *d, double waited, mg_status *status, char **message) {
    char text[MG_ERROR_BYTES], doing[300];
    const char *at = atomic_load(&d->at);
    mg_activity_describe(d->name, doing, sizeof doing);
    snprintf(
        text, sizeof text,
        "%s%sdid not come back within %.3g seconds: the device is lost; go on without it%s%s%s",
        at ? at : "", at ? ": " : "", waited, doing[0] ? " (it is in " : "", doing,
        doing[0] ? ")" : "");
    atomic_store(&d->lost, true);
    *status = MG_DEVICE;
    *message = mg_strdup(text);
}

mg_status mg_device_fail(const mg_device *d, mg_status status, const char *message) {
    const size_t n = strlen(d->name);
    if (!message) message = "out of memory";
    const bool named = strncmp(message, d->name, n) == 0 && message[n] == ':';
    /* The user interrupts all devices, not one. */
    if (named || status == MG_INTERRUPTED) return mg_fail(status, "%s", message);
    return mg_fail(status, "%s: %s", d->name, message);
}

mg_status mg_device_give_up(mg_device *d, double waited) {
    mg_status status;
    char *message;
    mark_lost(d, waited, &status, &message);
    mg_device_fail(d, status, message);
    mg_free(message);
    return status;
}

/* Seconds without progress. */
static double still_for(stillness *s, unsigned progress) {
    const double now = mg_seconds();
    if (s->since == 0 || s->progress != progress) *s = (stillness){progress, now};
    return now - s->since;
}

/* The jobs of one mg_workers_run and the state of the wait for them. */
typedef struct team {
    mg_device *const *devices;
    int n;
    double deadline, start;
    double first;   /* when the first job was seen to have returned; 0: none has */
    double stopped; /* when *stop was seen to be set; 0: it is not */
    stillness still;
    atomic_bool *stop; /* NULL: the jobs must not stop */
} team;

/* Whether the caller has to stop: *stop is set. Takes a pending interrupt, which sets it. */
static bool is_stopped(atomic_bool *stop) {
    if (!stop) return false;
    if (mg_interrupt_take()) atomic_store(stop, true);
    return atomic_load(stop);
}

/* Seconds that the other jobs may take once the first has returned, or -1 while none has. If all
 * failures so far are timeouts in collectives (MG_COMM), the deadline has passed already, so only
 * the grace period is left. */
static double time_limit(const team *t) {
    int returned = 0, failed = 0, waited = 0; /* waited: failed with MG_COMM */
    for (int i = 0; i < t->n; i++) {
        mg_worker *w = t->devices[i]->worker;
        if (!has_returned(w, &w->common, false)) continue;
        returned++;
        failed += w->common.status != MG_OK;
        waited += w->common.status == MG_COMM;
    }
    return returned == 0 ? -1 : failed && failed == waited ? mg_grace() : t->deadline + mg_grace();
}

/* Whether to stop waiting for the jobs that still run. */
static bool gives_up(team *t) {
    const double now = mg_seconds();
    if (is_stopped(t->stop)) {
        if (t->stopped == 0) t->stopped = now;
        return now - t->stopped > STOP_WITHIN;
    }
    unsigned progress = 0;
    for (int i = 0; i < t->n; i++) progress += atomic_load(&t->devices[i]->progress);
    const bool wanted = !t->stop && mg_interrupt_pending();
    if (still_for(&t->still, progress) > (wanted ? PATIENCE : t->deadline + mg_grace()))
        return true;
    const double limit = time_limit(t);
    if (limit < 0) return false;
    if (t->first == 0) t->first = now;
    return now - t->first > limit;
}

/* Marks a running job as abandoned; its caller gets MG_INTERRUPTED. */
static void abandon_job(mg_worker *w, worker_job *job, mg_status *status, char **message) {
    pthread_mutex_lock(&w->mutex);
    job->abandoned = true;
    pthread_mutex_unlock(&w->mutex);
    *status = MG_INTERRUPTED;
    *message = mg_strdup("interrupted");
}

/* Takes the outcome of a job that has returned. Otherwise abandons the job, because it was
 * `stopped` or because the device is lost. */
static void end_job(mg_device *d, worker_job *job, bool stopped, double waited, mg_status *status,
                    char **message) {
    if (has_returned(d->worker, job, false)) {
        take_outcome(d->worker, job, status, message);
        return;
    }
    abandon_job(d->worker, job, status, message);
    if (stopped) return;
    mg_free(*message);
    mark_lost(d, waited, status, message);
}

/* Waits until the job has returned. Its outcome stays in the slot. */
static mg_status wait_for_job(mg_device *d, worker_job *job, double deadline, atomic_bool *stop) {
    stillness still = {0};
    const double start = mg_seconds();
    while (!has_returned(d->worker, job, true)) {
        if (is_stopped(stop)) return mg_fail(MG_INTERRUPTED, "interrupted");
        if (still_for(&still, atomic_load(&d->progress)) <= deadline + mg_grace()) continue;
        return mg_device_give_up(d, mg_seconds() - start);
    }
    return MG_OK;
}

/* The calling thread waits for this device. */
static int begin_wait(const mg_device *d) {
    return mg_activity_enter(&(mg_span){.kind = MG_SPAN_WAIT, .what = "waits", .device = d->name});
}

static mg_status await_job(mg_device *d, worker_job *job, double deadline, atomic_bool *stop) {
    if (has_returned(d->worker, job, false)) return MG_OK;
    const int depth = begin_wait(d);
    const mg_status status = wait_for_job(d, job, deadline, stop);
    mg_activity_leave(depth);
    return status;
}

/* ---- abandoned jobs ---- */

static bool is_abandoned(mg_worker *w, const worker_job *job) {
    pthread_mutex_lock(&w->mutex);
    const bool running = job->abandoned && job->state == RUNNING;
    pthread_mutex_unlock(&w->mutex);
    return running;
}

bool mg_worker_has_abandoned(const mg_device *d) {
    return d->worker && (is_abandoned(d->worker, &d->worker->common) ||
                         is_abandoned(d->worker, &d->worker->begun));
}

/* Frees the slot of an abandoned job that has returned. */
static void forget_job(mg_worker *w, worker_job *job) {
    mg_status status;
    char *message;
    if (!job->abandoned || !has_returned(w, job, false)) return;
    take_outcome(w, job, &status, &message);
    job->abandoned = false;
    mg_free(message);
}

void mg_worker_forget(mg_device *d) {
    if (!d->worker) return;
    forget_job(d->worker, &d->worker->common);
    forget_job(d->worker, &d->worker->begun);
}

static mg_status await_abandoned(mg_device *d, double deadline, atomic_bool *stop) {
    if (!d->worker) return MG_OK;
    if (d->worker->common.abandoned) MG_TRY(await_job(d, &d->worker->common, deadline, stop));
    if (d->worker->begun.abandoned) MG_TRY(await_job(d, &d->worker->begun, deadline, stop));
    mg_worker_forget(d);
    return MG_OK;
}

mg_status mg_worker_await_return(mg_device *d, double deadline) {
    atomic_bool stop = false;
    return await_abandoned(d, deadline, &stop);
}

/* ---- jobs on several devices ---- */

/* No job starts before the begun jobs of all these devices have returned: a device that is still
 * busy with one would make the others wait in a collective, and would seem lost to the watchdog.
 *
 * Workers are waited for in order. The time limit is computed again after each poll, because it
 * depends on which jobs have returned. */
mg_status mg_workers_run(mg_device *const *devices, int n, mg_job fn, void *context,
                         double deadline, atomic_bool *stop, mg_status *statuses, char **messages) {
    for (int i = 0; i < n; i++) MG_TRY(ensure_worker(devices[i]));
    for (int i = 0; i < n; i++) {
        MG_TRY(await_abandoned(devices[i], deadline, stop));
        MG_TRY(await_job(devices[i], &devices[i]->worker->begun, deadline, stop));
    }
    for (int i = 0; i < n; i++)
        start_job(devices[i]->worker, &devices[i]->worker->common, fn, context, i);
    team t = {
        .devices = devices, .n = n, .deadline = deadline, .start = mg_seconds(), .stop = stop};
    for (int i = 0; i < n; i++) {
        worker_job *job = &devices[i]->worker->common;
        const int depth = begin_wait(devices[i]);
        while (!has_returned(devices[i]->worker, job, true))
            if (gives_up(&t)) break;
        mg_activity_leave(depth);
        end_job(devices[i], job, t.stopped > 0, mg_seconds() - t.start, &statuses[i], &messages[i]);
    }
    return MG_OK;
}

/* ---- begun jobs ---- */

/* Whether mg_worker_end has yet to be called for a begun job. */
static bool has_begun_job(mg_worker *w) {
    pthread_mutex_lock(&w->mutex);
    const bool has = w->begun.state != NO_JOB;
    pthread_mutex_unlock(&w->mutex);
    return has;
}

mg_status mg_worker_begin(mg_device *d, mg_job fn, void *context, int i) {
    MG_TRY(ensure_worker(d));
    MG_TRY(mg_worker_await_return(d, mg_deadline()));
    if (has_begun_job(d->worker))
        return mg_fail(MG_USAGE,
                       "%s: a submitted run has not been waited for yet: call wait() on its "
                       "handle first",
                       d->name);
    d->worker->begun_still = (stillness){0};
    start_job(d->worker, &d->worker->begun, fn, context, i);
    return MG_OK;
}

/* Whether the begun job has made no progress for too long. */
static bool is_overdue(mg_device *d, double deadline) {
    return still_for(&d->worker->begun_still, atomic_load(&d->progress)) > deadline + mg_grace();
}

bool mg_worker_done(mg_device *d, double deadline) {
    return has_returned(d->worker, &d->worker->begun, false) || is_overdue(d, deadline);
}

mg_status mg_worker_end(mg_device *d, double deadline, atomic_bool *stop, char **message) {
    mg_status status;
    worker_job *job = &d->worker->begun;
    double stopped = 0;
    const int depth = begin_wait(d);
    while (!has_returned(d->worker, job, true)) {
        if (!is_stopped(stop) && is_overdue(d, deadline)) break;
        if (atomic_load(stop) && stopped == 0) stopped = mg_seconds();
        if (stopped > 0 && mg_seconds() - stopped > STOP_WITHIN) break;
    }
    mg_activity_leave(depth);
    end_job(d, job, stopped > 0, mg_seconds() - d->worker->begun_still.since, &status, message);
    return status;
}

/* ---- the end ---- */

static bool is_idle(mg_worker *w) {
    return has_returned(w, &w->common, false) && has_returned(w, &w->begun, false);
}

void mg_workers_close(void) {
    for (mg_device *d = mg_device_first(); d; d = d->next) {
        mg_worker *w = d->worker;
        if (!w || !is_idle(w)) continue;
        pthread_mutex_lock(&w->mutex);
        w->closing = true;
        pthread_cond_broadcast(&w->changed);
        pthread_mutex_unlock(&w->mutex);
        pthread_join(w->thread, NULL);
        pthread_mutex_destroy(&w->mutex);
        pthread_cond_destroy(&w->changed);
        mg_free(w->common.message);
        mg_free(w->begun.message);
        mg_free(w);
        d->worker = NULL;
    }
}
