/* Work that a stream has a thread do: a list, and a thread while there is something on it. */
#include "gpu.h"
#include <pthread.h>
#include <stdlib.h>

typedef struct job {
    fake_cuda_work *work;
    void *args; /* owned */
    struct job *next;
} job;

typedef struct fake_cuda_queue {
    pthread_mutex_t mutex;
    pthread_cond_t empty;
    bool working;
    job *first, **last;
} fake_cuda_queue;

/* With the mutex, which is let go while it works. */
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

static void *do_all(void *queue) {
    fake_cuda_queue *q = queue;
    pthread_mutex_lock(&q->mutex);
    while (q->first) do_first(q);
    q->working = false;
    pthread_cond_broadcast(&q->empty);
    pthread_mutex_unlock(&q->mutex);
    return NULL;
}

static fake_cuda_queue *make(void) {
    fake_cuda_queue *q = calloc(1, sizeof *q);
    if (!q) return NULL;
    pthread_mutex_init(&q->mutex, NULL);
    pthread_cond_init(&q->empty, NULL);
    q->last = &q->first;
    return q;
}

CUresult fake_cuda_queue_add(fake_cuda_queue **queue, fake_cuda_work *work, void *own) {
    job *j = malloc(sizeof *j);
    pthread_t thread;
    if (!*queue) *queue = make();
    fake_cuda_queue *q = *queue;
    if (!j || !q) abort();
    *j = (job){work, own, NULL};
    pthread_mutex_lock(&q->mutex);
    *q->last = j;
    q->last = &j->next;
    if (!q->working) {
        q->working = true;
        if (pthread_create(&thread, NULL, do_all, q) != 0) abort();
        pthread_detach(thread);
    }
    pthread_mutex_unlock(&q->mutex);
    return CUDA_SUCCESS;
}

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
