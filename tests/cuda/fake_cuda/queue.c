/* Queues: the work of streams, each in its order, and the order of streams among one another.
 *
 * Work runs when a caller must wait for it, in the thread of the caller that waits, or of the
 * caller that enqueues it. Which of the two, and what other streams do meanwhile, is chosen so that
 * a missing wait between streams, or between a stream and the host, gives wrong numbers:
 *
 *   now    work runs in the call that enqueues it
 *   late   work runs only when the host waits for it, or when that work waits for an event behind
 *          it: a missing wait for a copy reads memory before the copy
 *   early  like late, but all other streams first go on as far as their events allow: a copy that
 *          does not wait for the readers of its destination overwrites it too early
 *
 * Collectives wait for other GPUs, which the same thread may start later. So a separate thread runs
 * the queue up to each of them, in every order.
 *
 * One mutex guards all queues; it is released while a piece of work runs. */
#include "gpu.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct job {      /* a piece of work, or a wait for an event */
    fake_cuda_work *work; /* NULL: a wait */
    void *args;           /* owned */
    fake_cuda_point until;
    bool apart, hangs; /* a thread runs it; it never ends */
    struct job *next;
} job;

struct fake_cuda_queue {
    int refs;
    uint64_t added, done; /* jobs so far */
    bool running;         /* a thread runs the first job */
    job *first, **last;
    fake_cuda_queue *next; /* in the list of all */
};

typedef enum order { UNKNOWN, NOW, LATE, EARLY } order;

/* What a thread does where it cannot continue at once: TRY returns, also where another queue would
 * have to advance first; DRIVE waits, but returns at work that hangs; HOST waits. */
typedef enum patience { TRY, DRIVE, HOST } patience;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t moved = PTHREAD_COND_INITIALIZER;
static fake_cuda_queue *queues; /* all */
static order chosen;
static int hang_in = -1; /* the hang_in-th next piece of work hangs; 0: none; < 0: not read yet */

/* ---- settings ---- */

static order order_named(const char *name) {
    return name && strcmp(name, "late") == 0    ? LATE
           : name && strcmp(name, "early") == 0 ? EARLY
                                                : NOW;
}

/* With the mutex held. */
static order the_order(void) {
    if (chosen == UNKNOWN) chosen = order_named(getenv("MGPU_FAKE_CUDA_STREAMS"));
    return chosen;
}

void fake_cuda_streams(const char *name) {
    pthread_mutex_lock(&mutex);
    chosen = order_named(name);
    pthread_mutex_unlock(&mutex);
}

void fake_cuda_hang(int n) {
    pthread_mutex_lock(&mutex);
    hang_in = n;
    pthread_mutex_unlock(&mutex);
}

void fake_cuda_go_on(void) {
    pthread_mutex_lock(&mutex);
    for (const fake_cuda_queue *q = queues; q; q = q->next)
        for (job *j = q->first; j; j = j->next) j->hangs = false;
    pthread_cond_broadcast(&moved);
    pthread_mutex_unlock(&mutex);
}

/* Whether the piece of work that is being added hangs. With the mutex held. */
static bool is_to_hang(void) {
    if (hang_in < 0) {
        const char *text = getenv("MGPU_FAKE_CUDA_HANG");
        hang_in = text ? atoi(text) : 0;
    }
    return hang_in > 0 && --hang_in == 0;
}

/* ---- life ---- */

fake_cuda_queue *fake_cuda_queue_new(void) {
    fake_cuda_queue *q = calloc(1, sizeof *q);
    if (!q) return NULL;
    q->refs = 1;
    q->last = &q->first;
    pthread_mutex_lock(&mutex);
    q->next = queues;
    queues = q;
    pthread_mutex_unlock(&mutex);
    return q;
}

/* Takes it out of the list of all. With the mutex held. */
static void unlink_queue(const fake_cuda_queue *q) {
    fake_cuda_queue **place = &queues;
    while (*place != q) place = &(*place)->next;
    *place = q->next;
}

/* A queue with work that hangs is never freed. With the mutex held. */
static void release_queue(fake_cuda_queue *q) {
    if (!q || --q->refs > 0 || q->first) return;
    unlink_queue(q);
    free(q);
}

void fake_cuda_queue_release(fake_cuda_queue *q) {
    pthread_mutex_lock(&mutex);
    release_queue(q);
    pthread_mutex_unlock(&mutex);
}

fake_cuda_point fake_cuda_queue_end(fake_cuda_queue *q) {
    if (!q) return (fake_cuda_point){0};
    pthread_mutex_lock(&mutex);
    q->refs++;
    const fake_cuda_point end = {q, q->added};
    pthread_mutex_unlock(&mutex);
    return end;
}

/* ---- running ---- */

/* Runs the first job, or drops it if it is a wait that is over. With the mutex held, which is
 * released meanwhile. */
static void run_first(fake_cuda_queue *q) {
    job *j = q->first;
    q->running = true;
    pthread_mutex_unlock(&mutex);
    if (j->work) j->work(j->args);
    pthread_mutex_lock(&mutex);
    release_queue(j->until.queue);
    q->running = false;
    q->done++;
    q->first = j->next;
    if (!q->first) q->last = &q->first;
    free(j->args);
    free(j);
    pthread_cond_broadcast(&moved);
}

static bool is_reached(fake_cuda_point p) {
    return !p.queue || p.queue->done >= p.number;
}

static bool reach(fake_cuda_point p, patience how);

/* Makes the first job ready to run; false if it cannot continue (see the enum). With the mutex
 * held. */
static bool prepare_first(fake_cuda_queue *q, patience how) {
    const job *j = q->first;
    if (q->running || j->hangs) {
        if (how == TRY || (j->hangs && how == DRIVE)) return false;
        pthread_cond_wait(&moved, &mutex);
        return true;
    }
    if (how == TRY) return !j->apart && is_reached(j->until);
    const fake_cuda_point until = j->until; /* when reach returns the job may be gone */
    if (is_reached(until)) return true;
    until.queue->refs++;
    const bool reached = reach(until, how);
    release_queue(until.queue);
    return reached;
}

/* In the order EARLY: all other queues advance as far as they can. With the mutex held. */
static void let_others_go_on(const fake_cuda_queue *own) {
    for (fake_cuda_queue *q = queues, *next; q; q = next) {
        q->refs++; /* others may release it while it runs */
        while (q != own && q->first && prepare_first(q, TRY)) run_first(q);
        next = q->next;
        release_queue(q);
    }
}

/* Runs the queue until the point is reached; false if it cannot continue (see the enum). With the
 * mutex held. */
static bool reach(fake_cuda_point p, patience how) {
    while (!is_reached(p)) {
        fake_cuda_queue *q = p.queue;
        if (the_order() == EARLY) let_others_go_on(q);
        if (is_reached(p)) return true;
        const uint64_t done = q->done;
        if (!prepare_first(q, how)) return false;
        if (q->done == done && !q->running && !q->first->hangs) run_first(q);
    }
    return true;
}

bool fake_cuda_is_reached(fake_cuda_point p) {
    pthread_mutex_lock(&mutex);
    const bool reached = is_reached(p);
    pthread_mutex_unlock(&mutex);
    return reached;
}

void fake_cuda_reach(fake_cuda_point p) {
    pthread_mutex_lock(&mutex);
    reach(p, HOST);
    pthread_mutex_unlock(&mutex);
}

bool fake_cuda_drive(fake_cuda_point p) {
    pthread_mutex_lock(&mutex);
    const bool reached = reach(p, DRIVE);
    pthread_mutex_unlock(&mutex);
    return reached;
}

void fake_cuda_drive_all(void) {
    pthread_mutex_lock(&mutex);
    for (fake_cuda_queue *q = queues, *next; q; q = next) {
        q->refs++;
        reach((fake_cuda_point){q, q->added}, DRIVE);
        next = q->next;
        release_queue(q);
    }
    pthread_mutex_unlock(&mutex);
}

/* ---- adding ---- */

/* Without memory a test cannot continue: abort. */
static fake_cuda_point append(fake_cuda_queue *q, job made) {
    job *j = malloc(sizeof *j);
    if (!j) abort();
    *j = made;
    j->hangs = j->work && is_to_hang();
    *q->last = j;
    q->last = &j->next;
    q->added++;
    return (fake_cuda_point){q, q->added};
}

void fake_cuda_queue_add(fake_cuda_queue *q, fake_cuda_work *work, void *own) {
    pthread_mutex_lock(&mutex);
    const fake_cuda_point end = append(q, (job){.work = work, .args = own});
    if (the_order() == NOW) reach(end, DRIVE);
    pthread_mutex_unlock(&mutex);
}

void fake_cuda_queue_add_wait(fake_cuda_queue *q, fake_cuda_point until) {
    pthread_mutex_lock(&mutex);
    if (until.queue) until.queue->refs++;
    const fake_cuda_point end = append(q, (job){.until = until});
    if (the_order() == NOW) reach(end, DRIVE);
    pthread_mutex_unlock(&mutex);
}

/* The thread of a job that is run apart; `point` is owned, and holds its queue. */
static void *drive_apart(void *point) {
    const fake_cuda_point p = *(fake_cuda_point *)point;
    free(point);
    fake_cuda_drive(p);
    fake_cuda_queue_release(p.queue);
    return NULL;
}

void fake_cuda_queue_add_apart(fake_cuda_queue *q, fake_cuda_work *work, void *own) {
    pthread_t thread;
    fake_cuda_point *end = malloc(sizeof *end);
    if (!end) abort();
    pthread_mutex_lock(&mutex);
    *end = append(q, (job){.work = work, .args = own, .apart = true});
    q->refs++;
    pthread_mutex_unlock(&mutex);
    if (pthread_create(&thread, NULL, drive_apart, end) != 0) abort();
    pthread_detach(thread);
}
