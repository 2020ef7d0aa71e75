/* Workers: see worker.h. */
#define _GNU_SOURCE
#include "device/worker.h"
#include "core/alloc.h"
#include "core/threads.h"
#include "device/device.h"
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static const double GRACE = 10, LOOK_EVERY = 0.05; /* seconds */

struct mg_worker {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    mg_job fn; /* NULL: nothing to do */
    void *context;
    int index;
    mg_status status;
    char *message; /* owned, until it is handed out */
    bool closing;
};

static _Thread_local bool own;

bool mg_worker_is_own(void) {
    return own;
}

static void run_job(mg_worker *w) {
    mg_error_clear();
    const mg_status status = w->fn(w->context, w->index);
    char *message = status != MG_OK ? mg_strdup(mg_error_message()) : NULL;
    pthread_mutex_lock(&w->mutex);
    w->status = status;
    w->message = message;
    w->fn = NULL;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->mutex);
}

static void *work(void *argument) {
    mg_worker *w = argument;
    own = true;
    for (;;) {
        pthread_mutex_lock(&w->mutex);
        while (!w->fn && !w->closing) pthread_cond_wait(&w->changed, &w->mutex);
        const bool closing = w->closing && !w->fn;
        pthread_mutex_unlock(&w->mutex);
        if (closing) return NULL;
        run_job(w);
    }
}

/* Signals stay with the threads of the host program. */
static int start_thread(mg_worker *w) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int failed = pthread_create(&w->thread, NULL, work, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed;
}

static mg_status worker_of(mg_device *d) {
    MG_TRY(mg_device_check(d));
    if (d->worker) return MG_OK;
    mg_worker *w = mg_alloc_zero(sizeof *w);
    if (!w) return MG_OOM;
    pthread_mutex_init(&w->mutex, NULL);
    pthread_cond_init(&w->changed, NULL);
    if (start_thread(w) != 0) {
        mg_free(w);
        return mg_fail(MG_OOM, "%s: cannot make a thread", d->name);
    }
    d->worker = w;
    return MG_OK;
}

static void give(mg_worker *w, mg_job fn, void *context, int index) {
    pthread_mutex_lock(&w->mutex);
    w->fn = fn;
    w->context = context;
    w->index = index;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->mutex);
}

static void await(mg_worker *w, mg_status *status, char **message) {
    pthread_mutex_lock(&w->mutex);
    while (w->fn) pthread_cond_wait(&w->changed, &w->mutex);
    *status = w->status;
    *message = w->message;
    w->message = NULL;
    pthread_mutex_unlock(&w->mutex);
}

/* Whether it has returned, after at most LOOK_EVERY; and how. */
static bool look(mg_worker *w, bool wait, mg_status *status) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += (long)(LOOK_EVERY * 1e9);
    if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
    pthread_mutex_lock(&w->mutex);
    if (w->fn && wait) pthread_cond_timedwait(&w->changed, &w->mutex, &until);
    const bool done = !w->fn;
    *status = w->status;
    pthread_mutex_unlock(&w->mutex);
    return done;
}

/* How long those that have not returned may take from now on; below 0 as long as nobody has. */
static double patience(mg_device *const *devices, int n, double deadline) {
    const char *given = getenv("MGPU_GRACE");
    const double grace = given && atof(given) > 0 ? atof(given) : GRACE;
    int returned = 0, failed = 0, waited = 0;
    for (int i = 0; i < n; i++) {
        mg_status status;
        if (!look(devices[i]->worker, false, &status)) continue;
        returned++;
        failed += status != MG_OK;
        waited += status == MG_COMM;
    }
    return returned == 0 ? -1 : failed && failed == waited ? grace : deadline + grace;
}

static void lose(mg_device *d, double waited, mg_status *status, char **message) {
    char text[200];
    snprintf(text, sizeof text,
             "%s: did not come back within %.3g seconds: the device is lost; go on without it",
             atomic_load(&d->at), waited);
    atomic_store(&d->lost, true);
    *status = MG_DEVICE;
    *message = mg_strdup(text);
}

mg_status mg_workers_run(mg_device *const *devices, int n, mg_job fn, void *context,
                         double deadline, mg_status *statuses, char **messages) {
    for (int i = 0; i < n; i++) MG_TRY(worker_of(devices[i]));
    for (int i = 0; i < n; i++) give(devices[i]->worker, fn, context, i);
    const double start = mg_seconds();
    double first = 0; /* when somebody was seen to have returned */
    for (int i = 0; i < n; i++) {
        mg_worker *w = devices[i]->worker;
        while (!look(w, true, &statuses[i])) {
            const double limit = patience(devices, n, deadline), now = mg_seconds();
            if (limit < 0) continue;
            if (first == 0) first = now;
            if (now - first > limit) break;
        }
        if (look(w, false, &statuses[i]))
            await(w, &statuses[i], &messages[i]);
        else
            lose(devices[i], mg_seconds() - start, &statuses[i], &messages[i]);
    }
    return MG_OK;
}

mg_status mg_worker_begin(mg_device *d, mg_job fn, void *context, int i) {
    MG_TRY(worker_of(d));
    give(d->worker, fn, context, i);
    return MG_OK;
}

bool mg_worker_done(mg_device *d) {
    pthread_mutex_lock(&d->worker->mutex);
    const bool done = !d->worker->fn;
    pthread_mutex_unlock(&d->worker->mutex);
    return done;
}

mg_status mg_worker_end(mg_device *d, char **message) {
    mg_status status;
    await(d->worker, &status, message);
    return status;
}

void mg_workers_close(void) {
    for (mg_device *d = mg_device_first(); d; d = d->next) {
        mg_worker *w = d->worker;
        if (!w || (mg_device_is_lost(d) && !mg_worker_done(d))) continue;
        pthread_mutex_lock(&w->mutex);
        w->closing = true;
        pthread_cond_broadcast(&w->changed);
        pthread_mutex_unlock(&w->mutex);
        pthread_join(w->thread, NULL);
        pthread_mutex_destroy(&w->mutex);
        pthread_cond_destroy(&w->changed);
        mg_free(w);
        d->worker = NULL;
    }
}
