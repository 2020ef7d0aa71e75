/* Streams: see stream.h. Jobs stand in a ring; the thread fills the oldest that is not filled yet.
 */
#define _GNU_SOURCE
#include "data/stream.h"
#include "core/alloc.h"
#include "device/device.h"
#include <pthread.h>
#include <signal.h>
#include <string.h>

typedef struct job {
    int32_t *rows; /* owned */
    int64_t n;
    mg_buffer *made[MG_STREAM_TENSORS]; /* owned */
    bool done, failed;
} job;

struct mg_stream {
    int n_tensors, depth;
    mg_tensor *tensors[MG_STREAM_TENSORS]; /* retained */
    size_t row_bytes[MG_STREAM_TENSORS];
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool started, closing;
    int first, pushed, filled; /* of the ring: the oldest job, and how many from it on */
    job jobs[];
};

/* ---- the thread ---- */

static void fill(const mg_stream *s, job *j) {
    for (int t = 0; t < s->n_tensors; t++) {
        const size_t bytes = s->row_bytes[t];
        j->made[t] = mg_buffer_new(s->tensors[t]->place.device, (size_t)j->n * bytes);
        if (!j->made[t]) {
            j->failed = true;
            return;
        }
        const char *from = s->tensors[t]->buffer->data;
        char *to = j->made[t]->data;
        for (int64_t i = 0; i < j->n; i++)
            memcpy(to + (size_t)i * bytes, from + (size_t)j->rows[i] * bytes, bytes);
    }
}

static void *work(void *argument) {
    mg_stream *s = argument;
    pthread_mutex_lock(&s->mutex);
    for (;;) {
        while (!s->closing && s->filled == s->pushed) pthread_cond_wait(&s->changed, &s->mutex);
        if (s->closing) break;
        job *j = &s->jobs[(s->first + s->filled) % s->depth];
        pthread_mutex_unlock(&s->mutex);
        fill(s, j);
        pthread_mutex_lock(&s->mutex);
        j->done = true;
        s->filled++;
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->mutex);
    return NULL;
}

/* At the first batch: a stream that nobody reads costs no thread. Signals stay with the host
 * program. */
static mg_status start(mg_stream *s) {
    sigset_t all, before;
    if (s->started) return MG_OK;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int failed = pthread_create(&s->thread, NULL, work, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    s->started = !failed;
    return failed ? mg_fail(MG_OOM, "prefetch: cannot make a thread") : MG_OK;
}

/* ---- the reader ---- */

mg_stream *mg_stream_new(mg_tensor *const *tensors, int n, int depth) {
    mg_stream *s = mg_alloc_zero(sizeof *s + (size_t)depth * sizeof *s->jobs);
    if (!s) return NULL;
    s->depth = depth;
    pthread_mutex_init(&s->mutex, NULL);
    pthread_cond_init(&s->changed, NULL);
    for (int i = 0; i < n; i++) {
        const int64_t rows = tensors[i]->shape.dim[0];
        s->row_bytes[i] = rows ? mg_tensor_bytes(tensors[i]) / (size_t)rows : 0;
        s->tensors[i] = mg_tensor_retain(tensors[i]);
        s->n_tensors = i + 1;
    }
    return s;
}

static void drop_job(const mg_stream *s, job *j) {
    for (int t = 0; t < s->n_tensors; t++) mg_buffer_release(j->made[t]);
    mg_free(j->rows);
    *j = (job){0};
}

mg_status mg_stream_push(mg_stream *s, const int32_t *rows, int64_t n) {
    const int64_t there = s->tensors[0]->shape.dim[0];
    for (int64_t i = 0; i < n; i++)
        if (rows[i] < 0 || rows[i] >= there)
            return mg_fail(MG_DATA, "row %d was asked for; there are %lld, from 0", rows[i],
                           (long long)there);
    if (s->pushed == s->depth)
        return mg_fail(MG_USAGE, "%d batches are ahead already: take one first", s->depth);
    MG_TRY(start(s));
    int32_t *copy = mg_alloc((size_t)(n + 1) * sizeof *copy);
    if (!copy) return MG_OOM;
    memcpy(copy, rows, (size_t)n * sizeof *copy);
    pthread_mutex_lock(&s->mutex);
    s->jobs[(s->first + s->pushed) % s->depth] = (job){.rows = copy, .n = n};
    s->pushed++;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->mutex);
    return MG_OK;
}

int mg_stream_ahead(const mg_stream *s) {
    return s->pushed;
}

static mg_status take_tensors(const mg_stream *s, const job *j, mg_tensor **batch) {
    for (int t = 0; t < s->n_tensors; t++) {
        mg_shape shape = s->tensors[t]->shape;
        shape.dim[0] = j->n;
        batch[t] = mg_tensor_from_buffer(j->made[t], (mg_dtype)s->tensors[t]->dtype, &shape);
        if (batch[t]) continue;
        while (t > 0) mg_tensor_release(batch[--t]);
        return MG_OOM;
    }
    return MG_OK;
}

mg_status mg_stream_pop(mg_stream *s, mg_tensor **batch) {
    if (!s->pushed) return mg_fail(MG_USAGE, "no batch is on its way");
    pthread_mutex_lock(&s->mutex);
    job *j = &s->jobs[s->first];
    while (!j->done) pthread_cond_wait(&s->changed, &s->mutex);
    s->first = (s->first + 1) % s->depth;
    s->pushed--;
    s->filled--;
    pthread_mutex_unlock(&s->mutex);
    mg_status status =
        j->failed
            ? mg_fail(MG_OOM, "prefetch: out of memory for a batch of %lld rows", (long long)j->n)
            : take_tensors(s, j, batch);
    drop_job(s, j);
    return status;
}

void mg_stream_free(mg_stream *s) {
    if (!s) return;
    pthread_mutex_lock(&s->mutex);
    s->closing = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->mutex);
    if (s->started) pthread_join(s->thread, NULL);
    for (int i = 0; i < s->pushed; i++) drop_job(s, &s->jobs[(s->first + i) % s->depth]);
    for (int i = 0; i < s->n_tensors; i++) mg_tensor_release(s->tensors[i]);
    pthread_mutex_destroy(&s->mutex);
    pthread_cond_destroy(&s->changed);
    mg_free(s);
}
