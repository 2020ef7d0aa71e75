/* Workers and the watchdog over them: see worker.h.
 *
 * A worker has two places for jobs: one for mg_workers_run, one for mg_worker_begin. The outcome of
 * a begun job stays in its place until mg_worker_end takes it, whatever mg_workers_run does in the
 * meantime. The thread still runs one job at a time.
 *
 * A worker's mutex guards all members below it. A job is handed over by setting its state to
 * UNDER_WAY; the worker sets RETURNED when the job has returned, and both signal `changed`. */
#define _GNU_SOURCE
#include "device/worker.h"
#include "core/alloc.h"
#include "core/threads.h"
#include "device/device.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static const double DEFAULT_GRACE = 10; /* seconds; MGPU_GRACE overrides it */
static const double POLL_EVERY = 0.05;  /* seconds between the watchdog's looks at a worker */

typedef enum job_state { NO_JOB, UNDER_WAY, RETURNED } job_state;

typedef struct worker_job {
    job_state state; /* RETURNED: the outcome has not been taken yet */
    mg_job fn;
    void *context;
    int index;
    mg_status status; /* of the last job that returned */
    char *message;    /* of that job, NULL on success; owned until it is handed out */
} worker_job;

struct mg_worker {
    pthread_t thread;
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
    if (w->begun.state == UNDER_WAY) return &w->begun;
    return w->common.state == UNDER_WAY ? &w->common : NULL;
}

/* The thread: waits for jobs until it is told to end. */
static void *worker_main(void *argument) {
    mg_worker *w = argument;
    is_worker = true;
    for (;;) {
        pthread_mutex_lock(&w->mutex);
        while (!next_job(w) && !w->closing) pthread_cond_wait(&w->changed, &w->mutex);
        worker_job *job = next_job(w);
        pthread_mutex_unlock(&w->mutex);
        if (!job) return NULL; /* closing */
        run_job(w, job);
    }
}

/* The thread blocks all signals, so that the threads of the host program handle them. Not 0 on
 * failure. */
static int start_thread(mg_worker *w) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int failed = pthread_create(&w->thread, NULL, worker_main, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed;
}

/* Makes the worker of a device that has none yet. MG_DEVICE if the device is lost. */
static mg_status ensure_worker(mg_device *d) {
    MG_TRY(mg_device_check(d));
    if (d->worker) return MG_OK;
    mg_worker *w = mg_alloc_zero(sizeof *w);
    if (!w) return MG_OOM;
    pthread_mutex_init(&w->mutex, NULL);
    mg_cond_init(&w->changed);
    if (start_thread(w) != 0) {
        mg_free(w);
        return mg_fail(MG_OOM, "%s: cannot make a thread", d->name);
    }
    d->worker = w;
    return MG_OK;
}

/* Hands over a job in a place of the worker that has none. */
static void start_job(mg_worker *w, worker_job *job, mg_job fn, void *context, int index) {
    pthread_mutex_lock(&w->mutex);
    job->fn = fn;
    job->context = context;
    job->index = index;
    job->state = UNDER_WAY;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->mutex);
}

/* A job's state, and the status of the last one that returned; if it is under way, after waiting
 * for it `seconds` at most. */
static job_state look_at(mg_worker *w, const worker_job *job, double seconds, mg_status *status) {
    const struct timespec until = mg_time_after(seconds);
    pthread_mutex_lock(&w->mutex);
    while (job->state == UNDER_WAY && seconds > 0)
        if (pthread_cond_timedwait(&w->changed, &w->mutex, &until) == ETIMEDOUT) break;
    const job_state state = job->state;
    if (status) *status = job->status;
    pthread_mutex_unlock(&w->mutex);
    return state;
}

/* Waits until the job has returned. Its outcome stays where it is. */
static void await_job(mg_worker *w, const worker_job *job) {
    while (look_at(w, job, POLL_EVERY, NULL) == UNDER_WAY) continue;
}

/* Waits until the job has returned, and takes its outcome: the place is free again. */
static void finish_job(mg_worker *w, worker_job *job, mg_status *status, char **message) {
    await_job(w, job);
    pthread_mutex_lock(&w->mutex);
    *status = job->status;
    *message = job->message;
    job->message = NULL;
    job->state = NO_JOB;
    pthread_mutex_unlock(&w->mutex);
}

/* Seconds that the other jobs may take once the first has returned, or -1 while none has. If those
 * that returned have failed, and only because they waited in vain (MG_COMM), the deadline has
 * passed already. */
static double time_limit(mg_device *const *devices, int n, double deadline) {
    const char *given = getenv("MGPU_GRACE");
    const double grace = given && atof(given) > 0 ? atof(given) : DEFAULT_GRACE;
    int returned = 0, failed = 0, waited = 0; /* waited: failed with MG_COMM */
    for (int i = 0; i < n; i++) {
        mg_status status;
        if (look_at(devices[i]->worker, &devices[i]->worker->common, 0, &status) == UNDER_WAY)
            continue;
        returned++;
        failed += status != MG_OK;
        waited += status == MG_COMM;
    }
    return returned == 0 ? -1 : failed && failed == waited ? grace : deadline + grace;
}

/* Marks a device lost: no job is given to it again. */
static void mark_lost(mg_device *d, double waited, mg_status *status, char **message) {
    char text[200];
    snprintf(text, sizeof text,
             "%s: did not come back within %.3g seconds: the device is lost; go on without it",
             atomic_load(&d->at), waited);
    atomic_store(&d->lost, true);
    *status = MG_DEVICE;
    *message = mg_strdup(text);
}

/* No job starts before the begun jobs of all these devices have returned: a device that is still
 * busy with one would let the others wait in a collective, and seem lost to the watchdog.
 *
 * Workers are waited for in order. The limit is looked at again after each poll, because it depends
 * on which jobs have returned so far. */
mg_status mg_workers_run(mg_device *const *devices, int n, mg_job fn, void *context,
                         double deadline, mg_status *statuses, char **messages) {
    for (int i = 0; i < n; i++) MG_TRY(ensure_worker(devices[i]));
    for (int i = 0; i < n; i++) await_job(devices[i]->worker, &devices[i]->worker->begun);
    for (int i = 0; i < n; i++)
        start_job(devices[i]->worker, &devices[i]->worker->common, fn, context, i);
    const double start = mg_seconds();
    double first = 0; /* when the first job was seen to have returned */
    for (int i = 0; i < n; i++) {
        mg_worker *w = devices[i]->worker;
        while (look_at(w, &w->common, POLL_EVERY, NULL) == UNDER_WAY) {
            const double limit = time_limit(devices, n, deadline), now = mg_seconds();
            if (limit < 0) continue;
            if (first == 0) first = now;
            if (now - first > limit) break;
        }
        /* A last look: it may have returned just after the limit. */
        if (look_at(w, &w->common, 0, NULL) != UNDER_WAY)
            finish_job(w, &w->common, &statuses[i], &messages[i]);
        else
            mark_lost(devices[i], mg_seconds() - start, &statuses[i], &messages[i]);
    }
    return MG_OK;
}

mg_status mg_worker_begin(mg_device *d, mg_job fn, void *context, int i) {
    MG_TRY(ensure_worker(d));
    if (look_at(d->worker, &d->worker->begun, 0, NULL) != NO_JOB)
        return mg_fail(MG_USAGE,
                       "%s: a submitted run has not been waited for yet: call wait() on its "
                       "handle first",
                       d->name);
    start_job(d->worker, &d->worker->begun, fn, context, i);
    return MG_OK;
}

bool mg_worker_done(mg_device *d) {
    return look_at(d->worker, &d->worker->begun, 0, NULL) != UNDER_WAY;
}

mg_status mg_worker_end(mg_device *d, char **message) {
    mg_status status;
    finish_job(d->worker, &d->worker->begun, &status, message);
    return status;
}

bool mg_worker_came_back(mg_device *d) {
    return look_at(d->worker, &d->worker->common, 0, NULL) != UNDER_WAY;
}

void mg_worker_forget(mg_device *d) {
    mg_status status;
    char *message = NULL;
    finish_job(d->worker, &d->worker->common, &status, &message);
    mg_free(message);
}

void mg_workers_close(void) {
    for (mg_device *d = mg_device_first(); d; d = d->next) {
        mg_worker *w = d->worker;
        if (!w || (mg_device_is_lost(d) && !mg_worker_came_back(d))) continue;
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
