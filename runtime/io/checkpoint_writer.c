/* The thread that writes checkpoints while training goes on: one save at a time. */
#define _GNU_SOURCE
#include "io/checkpoint.h"
#include "core/activity.h"
#include "core/alloc.h"
#include "core/limits.h"
#include "core/threads.h"
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { LOW_PRIORITY = 10 };

struct mg_checkpoint_writer {
    char *folder;  /* owned */
    mg_file *lock; /* owned: of the folder */
    int keep;
    int64_t next; /* the number of the next checkpoint */
    bool started; /* there is a thread to join */
    bool untold;  /* mg_checkpoint_writer_wait has not returned the result yet */
    pthread_t thread;
    /* of the thread, from start to join */
    mg_store *state; /* owned */
    mg_checkpoint_part spare;
    mg_checkpoint_result result;
    atomic_bool ended;
};

/* ---- the end of the process ---- */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int n_running; /* threads that are writing; protected by the mutex */

static void count_running(int change) {
    pthread_mutex_lock(&mutex);
    n_running += change;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
}

/* A script may call os.exit during a save: devices must not be closed while the thread uses
 * them. */
static void wait_at_exit(void) {
    pthread_mutex_lock(&mutex);
    while (n_running > 0) pthread_cond_wait(&changed, &mutex);
    pthread_mutex_unlock(&mutex);
}

static void wait_before_exit(void) {
    atexit(wait_at_exit);
}

/* ---- the thread ---- */

/* Waits for the thread, which may write for long. */
static void join_thread(mg_checkpoint_writer *w) {
    const int depth = mg_activity_begin(MG_SPAN_CHECKPOINT, "waits for a checkpoint");
    if (w->started) pthread_join(w->thread, NULL);
    mg_activity_leave(depth);
    w->started = false;
}

/* For mg_activity_about. */
static void describe_folder(const void *folder, int64_t unused, char *text, size_t room) {
    (void)unused;
    snprintf(text, room, "in %s", (const char *)folder);
}

/* Lowers the thread's priority (on Linux, priorities are per thread), so that training has
 * precedence when cores are short. The error message is copied, because error messages belong to
 * threads. */
static void *writer_thread(void *argument) {
    mg_checkpoint_writer *w = argument;
    mg_checkpoint_result *r = &w->result;
    setpriority(PRIO_PROCESS, 0, LOW_PRIORITY);
    mg_activity_name("checkpoint");
    const int depth = mg_activity_enter(
        &(mg_span){.kind = MG_SPAN_CHECKPOINT, .what = "writes checkpoint", .number = r->number});
    mg_activity_about(describe_folder, w->folder, 0);
    r->status = mg_checkpoint_write(w->folder, r->number, w->state, w->keep, &w->spare, &r->saved);
    mg_activity_leave(depth);
    if (r->status != MG_OK) snprintf(r->message, sizeof r->message, "%s", mg_error_message());
    mg_store_free(w->state);
    w->state = NULL;
    atomic_store(&w->ended, true);
    count_running(-1);
    return NULL;
}

/* Makes the folder and locks it. Two training runs that write to one folder in turn would remove
 * each other's checkpoints, and a resume could continue from either of them. */
static mg_status take_folder(mg_checkpoint_writer *w) {
    char inside[PATH_MAX]; /* the folder itself if its name is a link */
    MG_TRY(mg_io_make_folder(w->folder));
    snprintf(inside, sizeof inside, "%s/.", w->folder);
    MG_TRY(mg_io_lock_folder(inside, &w->lock));
    if (w->lock) return MG_OK;
    return mg_fail(
        MG_IO,
        "another training run saves its checkpoints in %s: wait until it has ended, or choose "
        "another folder",
        w->folder);
}

/* Numbers continue after the newest existing checkpoint. */
mg_checkpoint_writer *mg_checkpoint_writer_new(const char *folder, int keep) {
    mg_checkpoint_writer *w = mg_alloc_zero(sizeof *w);
    if (!w) return NULL;
    size_t n = 0;
    int64_t *numbers = NULL;
    w->keep = keep;
    w->folder = mg_strdup(folder);
    if (w->folder && take_folder(w) == MG_OK && mg_checkpoint_clean(folder) == MG_OK)
        numbers = mg_checkpoint_list(folder, &n);
    if (!numbers) {
        mg_checkpoint_writer_free(w);
        return NULL;
    }
    w->next = n ? numbers[0] + 1 : 1;
    mg_free(numbers);
    return w;
}

mg_status mg_checkpoint_writer_start(mg_checkpoint_writer *w, mg_store *state) {
    join_thread(w);
    w->state = state;
    w->result = (mg_checkpoint_result){.number = w->next++};
    atomic_store(&w->ended, false);
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, wait_before_exit);
    count_running(1);
    w->started = w->untold = mg_thread_start(&w->thread, writer_thread, w);
    if (w->started) return MG_OK;
    const int error = errno;
    count_running(-1);
    mg_store_free(state);
    w->state = NULL;
    return mg_fail(MG_OOM, "cannot start the thread that writes checkpoints: %s", mg_reason(error));
}

bool mg_checkpoint_writer_busy(mg_checkpoint_writer *w) {
    return w->started && !atomic_load(&w->ended);
}

bool mg_checkpoint_writer_wait(mg_checkpoint_writer *w, mg_checkpoint_result *result) {
    const bool untold = w->untold;
    join_thread(w);
    w->untold = false;
    if (untold) *result = w->result;
    return untold;
}

void mg_checkpoint_writer_free(mg_checkpoint_writer *w) {
    if (!w) return;
    join_thread(w);
    /* A part that cannot be removed now is removed by the next writer. */
    if (w->lock && mg_checkpoint_drop(w->folder, &w->spare) != MG_OK) mg_error_clear();
    mg_io_close(w->lock);
    mg_free(w->folder);
    mg_free(w);
}
