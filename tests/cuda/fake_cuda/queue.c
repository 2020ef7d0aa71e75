/* A queue of work that a thread does in order (fake_cuda_enqueue_apart): collectives wait for other
 * ranks, which may be enqueued by the same thread later, so they cannot run in the call itself. The
 * thread is started with the first piece of work and ends when the list is empty. */
#include "gpu.h"
#include <pthread.h>
#include <stdlib.h>

typedef struct job { /* one piece of work */
    fake_cuda_work *work;
    void *args; /* owned */
    struct job *next;
} job;

typedef struct fake_cuda_queue {
    pthread_mutex_t mutex;
    pthread_cond_t empty; /* signalled when the thread ends */
    bool working;         /* there is a thread */
    job *first, **last;   /* the list, and where the next one is linked */
} fake_cuda_queue;

/* Does the first job of the list. Called with the mutex held, which is released while the job runs.
 */
static void do_first(fake_cuda_queue *q) {
    job *j = q->first;
    q->first = j->next;
    if (!q->first) q->last = &q->first;
    pthread_mutex_unlock(&q->mutex);
    j->work(j->args);
    free(j->args);
    free(j);
    pthread_mutex_lock(&q->mutex);
}

/* The thread: works until the list is empty. */
static void *do_all(void *queue) {
    fake_cuda_queue *q = queue;
    pthread_mutex_lock(&q->mutex);
    while (q->first) do_first(q);
    q->working = false;
    pthread_cond_broadcast(&q->empty);
    pthread_mutex_unlock(&q->mutex);
    return NULL;
}

static fake_cuda_queue *queue_new(void) {
    fake_cuda_queue *q = calloc(1, sizeof *q);
    if (!q) return NULL;
    pthread_mutex_init(&q->mutex, NULL);
    pthread_cond_init(&q->empty, NULL);
    q->last = &q->first;
    return q;
}

/* Makes the queue at its first use. Without memory or threads a test cannot go on: abort. */
CUresult fake_cuda_queue_add(fake_cuda_queue **queue, fake_cuda_work *work, void *own) {
    job *j = malloc(sizeof *j);
    pthread_t thread;
    if (!*queue) *queue = queue_new();
    fake_cuda_queue *q = *queue;
    if (!j || !q) abort();
    *j = (job){work, own, NULL};
    pthread_mutex_lock(&q->mutex);
    *q->last = j;
    q->last = &j->next;
    /* No thread: start one, which ends by itself when the list is empty. */
    if (!q->working) {
        q->working = true;
        if (pthread_create(&thread, NULL, do_all, q) != 0) abort();
        pthread_detach(thread);
    }
    pthread_mutex_unlock(&q->mutex);
    return CUDA_SUCCESS;
}

/* Waits until the list is empty and the thread has ended. */
void fake_cuda_queue_finish(fake_cuda_queue *q) {
    if (!q) return;
    pthread_mutex_lock(&q->mutex);
    while (q->working) pthread_cond_wait(&q->empty, &q->mutex);
    pthread_mutex_unlock(&q->mutex);
}

void fake_cuda_queue_free(fake_cuda_queue *q) {
    if (!q) return;
    fake_cuda_queue_finish(q);
    pthread_mutex_destroy(&q->mutex);
    pthread_cond_destroy(&q->empty);
    free(q);
}
