/* Streams: copying rows into buffers, in the caller's thread or ahead of it in a thread of the
 * stream.
 *
 * The thread owns the order and the row numbers; what it shares with the caller is guarded by the
 * mutex. It pauses after a failure until the caller has been told, then tries the same element
 * again. For that, an element's row numbers are kept until they are copied, and an order that
 * failed half-way is sought again. */
#define _GNU_SOURCE
#include "data/stream.h"
#include "core/alloc.h"
#include "core/threads.h"
#include "device/buffer.h"
#include "device/device.h"
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* How often a waiting caller looks for Ctrl-C; how many rows are copied between two such checks. */
enum { ROWS_BETWEEN_CHECKS = 64 };
static const double POLL_SECONDS = 0.05;

struct mg_stream {
    mg_tensor *tensors[MG_STREAM_TENSORS]; /* retained */
    size_t row_bytes[MG_STREAM_TENSORS];   /* of each tensor */
    int n_tensors;
    int dense;       /* see mg_stream_spec */
    mg_order *order; /* owned */
    mg_rows rows;    /* the next element's row numbers, if rows_ready */
    bool rows_ready; /* they are not copied yet */
    bool needs_seek; /* the order is new, or it failed half-way */
    uint64_t pass;
    int64_t element; /* the element that the order gives next */
    /* shared with the thread, under the mutex */
    int64_t depth; /* most elements in the queue */
    bool threaded; /* there is a thread */
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    atomic_bool closing;      /* the stream is being freed */
    mg_element *first, *last; /* the queue of finished elements; owned */
    int64_t n_ready;          /* elements in the queue */
    bool finished;            /* the pass has ended */
    mg_status status;         /* a failure of the thread that the caller has not been told of */
    char message[512];        /* its message: error messages are per thread */
};

/* ---- elements ---- */

void mg_element_free(mg_element *e) {
    if (!e) return;
    for (int64_t i = 0; i < e->n_parts * e->n_tensors; i++) mg_buffer_release(e->buffer[i]);
    mg_free(e);
}

/* The sizes of batches from .. to-1 as a shape. rows->dim lists the innermost batch first, a shape
 * the outermost. */
static mg_shape shape_of_batches(const mg_rows *rows, int from, int to) {
    mg_shape shape = {.rank = to - from};
    for (int i = from; i < to; i++) shape.dim[to - 1 - i] = rows->dim[i];
    return shape;
}

/* An element of the right shapes for s->rows, without buffers. Owned; NULL: MG_OOM. */
static mg_element *new_element(const mg_stream *s) {
    const mg_rows *rows = &s->rows;
    const int dense = s->dense < rows->rank ? s->dense : rows->rank;
    const mg_shape inner = shape_of_batches(rows, 0, dense),
                   outer = shape_of_batches(rows, dense, rows->rank);
    const int64_t n_parts = mg_shape_count(&outer);
    mg_element *e = mg_alloc_zero(sizeof *e + (size_t)(n_parts * s->n_tensors) * sizeof(void *));
    if (!e) return NULL;
    e->outer = outer;
    e->n_parts = n_parts;
    e->n_tensors = s->n_tensors;
    for (int k = 0; k < s->n_tensors; k++) {
        const mg_tensor *t = s->tensors[k];
        e->dtype[k] = (mg_dtype)t->dtype;
        e->shape[k] = inner;
        for (int a = 1; a < t->shape.rank; a++)
            e->shape[k].dim[e->shape[k].rank++] = t->shape.dim[a];
    }
    return e;
}

/* Whether work should stop: the stream is being freed, or, without a thread, the user pressed
 * Ctrl-C. (With one, the waiting caller looks for Ctrl-C itself.) */
static bool stop_wanted(void *context) {
    const mg_stream *s = context;
    return atomic_load(&s->closing) || (!s->threaded && mg_interrupt_pending());
}

/* Copies n rows of tensor k to dst. */
static mg_status copy_rows(mg_stream *s, char *dst, int k, const int64_t *row, int64_t n) {
    const char *src = s->tensors[k]->buffer->data;
    const size_t bytes = s->row_bytes[k];
    for (int64_t i = 0; i < n; i++) {
        if (i % ROWS_BETWEEN_CHECKS == 0 && stop_wanted(s))
            return mg_fail(MG_INTERRUPTED, "interrupted");
        memcpy(dst + (size_t)i * bytes, src + (size_t)row[i] * bytes, bytes);
    }
    return MG_OK;
}

/* Allocates and fills the element's buffers, on the device of each tensor.
 *
 * Buffer i is that of tensor i % n_tensors in part i / n_tensors. On failure the caller frees the
 * element. */
static mg_status copy_element(mg_stream *s, mg_element *e) {
    const int64_t n = s->rows.n / e->n_parts;
    for (int64_t i = 0; i < e->n_parts * e->n_tensors; i++) {
        const int k = (int)(i % e->n_tensors);
        const int64_t *row = s->rows.row + i / e->n_tensors * n;
        size_t bytes;
        if (!mg_size_mul((size_t)n, s->row_bytes[k], &bytes))
            return mg_fail(MG_OOM, "out of memory: a batch of %lld rows", (long long)n);
        e->buffer[i] = mg_buffer_new(s->tensors[k]->buffer->device, bytes);
        if (!e->buffer[i]) return MG_OOM;
        MG_TRY(copy_rows(s, e->buffer[i]->data, k, row, n));
        e->bytes += bytes;
    }
    return MG_OK;
}

/* Gets the row numbers of the next element into s->rows; rows_ready stays false at the end. */
static mg_status next_rows(mg_stream *s) {
    bool got;
    if (s->needs_seek) MG_TRY(mg_order_seek(s->order, s->pass, s->element));
    s->needs_seek = true; /* until the call below succeeds */
    MG_TRY(mg_order_next(s->order, &s->rows, &got));
    s->needs_seek = false;
    s->rows_ready = got;
    s->element += got;
    return MG_OK;
}

/* Makes the next element; *out is NULL at the end. Runs in the thread if there is one. */
static mg_status make_element(mg_stream *s, mg_element **out) {
    *out = NULL;
    if (!s->rows_ready) MG_TRY(next_rows(s));
    if (!s->rows_ready) return MG_OK;
    mg_element *e = new_element(s);
    if (!e) return MG_OOM;
    const mg_status status = copy_element(s, e);
    if (status != MG_OK) {
        mg_element_free(e);
        return status;
    }
    s->rows_ready = false;
    *out = e;
    return MG_OK;
}

/* ---- the thread ---- */

/* With the mutex held: records the result of make_element, which is a failure, the end or an
 * element for the queue. */
static void publish_element(mg_stream *s, mg_status status, mg_element *e) {
    if (status != MG_OK) {
        s->status = status;
        snprintf(s->message, sizeof s->message, "%s", mg_error_message());
    } else if (!e) {
        s->finished = true;
    } else {
        if (s->last)
            s->last->next = e;
        else
            s->first = e;
        s->last = e;
        s->n_ready++;
    }
}

/* Makes elements while the queue has room; sleeps at the end and after a failure. */
static void *prefetch_thread(void *argument) {
    mg_stream *s = argument;
    pthread_mutex_lock(&s->mutex);
    while (!atomic_load(&s->closing)) {
        if (s->finished || s->status != MG_OK || s->n_ready >= s->depth) {
            pthread_cond_wait(&s->changed, &s->mutex);
            continue;
        }
        pthread_mutex_unlock(&s->mutex);
        mg_element *e;
        const mg_status status = make_element(s, &e);
        pthread_mutex_lock(&s->mutex);
        publish_element(s, status, e);
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->mutex);
    return NULL;
}

/* Starts the prefetching thread.
 *
 * It blocks all signals: they are for the host program's threads. */
static mg_status start_thread(mg_stream *s) {
    sigset_t all, before;
    sigfillset(&all);
    s->threaded = true;
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int failed = pthread_create(&s->thread, NULL, prefetch_thread, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!failed) return MG_OK;
    s->threaded = false;
    return mg_fail(MG_OOM, "prefetch: cannot start a thread: leave :prefetch out or free memory");
}

/* With the mutex held: waits for an element, a failure or the end. MG_INTERRUPTED after Ctrl-C. */
static mg_status wait_for_element(mg_stream *s) {
    while (!s->first && !s->finished && s->status == MG_OK) {
        const struct timespec until = mg_time_after(POLL_SECONDS);
        pthread_cond_timedwait(&s->changed, &s->mutex, &until);
        if (mg_interrupt_take()) return mg_fail(MG_INTERRUPTED, "interrupted");
    }
    return MG_OK;
}

/* With the mutex held: takes an element from the queue, or reports the thread's failure and lets it
 * try again. Queued elements come before a failure. */
static mg_status take_element(mg_stream *s, mg_element **element) {
    mg_element *e = s->first;
    if (e) {
        s->first = e->next;
        if (!s->first) s->last = NULL;
        s->n_ready--;
        e->next = NULL;
        *element = e;
    } else if (s->status != MG_OK) {
        const mg_status status = s->status;
        s->status = MG_OK;
        pthread_cond_broadcast(&s->changed);
        return mg_fail(status, "%s", s->message);
    }
    pthread_cond_broadcast(&s->changed);
    return MG_OK;
}

/* ---- streams ---- */

/* What mg_stream_new promises to refuse. */
static mg_status check_tensors(const mg_stream_spec *spec) {
    int batches = 0;
    for (int i = 0; i < spec->n_stages; i++) batches += spec->stages[i].kind == MG_BATCH;
    for (int k = 0; k < spec->n_tensors; k++) {
        const mg_tensor *t = spec->tensors[k];
        if (!t->buffer || !mg_device_kind_is_host_visible(t->device->api))
            return mg_fail(
                MG_USAGE,
                "from_tensors: tensor %d is not in the host's memory: move it with :to \"cpu\"",
                k + 1);
        if (t->shape.rank == 0)
            return mg_fail(MG_USAGE,
                           "from_tensors: tensor %d is a single number, but its first axis must be "
                           "rows",
                           k + 1);
        if (t->shape.dim[0] != spec->tensors[0]->shape.dim[0])
            return mg_fail(MG_USAGE, "from_tensors: tensor 1 has %lld rows but tensor %d has %lld",
                           (long long)spec->tensors[0]->shape.dim[0], k + 1,
                           (long long)t->shape.dim[0]);
        if (t->shape.rank - 1 + batches > MG_MAX_RANK)
            return mg_fail(
                MG_USAGE, "batch: a batch of tensor %d would have %d axes, at most %d are possible",
                k + 1, t->shape.rank - 1 + batches, MG_MAX_RANK);
    }
    return MG_OK;
}

/* Retains the tensors and notes the bytes of a row of each. */
static void take_tensors(mg_stream *s, const mg_stream_spec *spec) {
    s->n_tensors = spec->n_tensors;
    for (int k = 0; k < s->n_tensors; k++) {
        const mg_tensor *t = s->tensors[k] = mg_tensor_retain(spec->tensors[k]);
        const int64_t rows = t->shape.dim[0];
        s->row_bytes[k] = rows ? mg_tensor_bytes(t) / (size_t)rows : 0;
    }
}

/* The thread is started last, when everything it reads is in place.
 *
 * mg_stream_free also frees a stream that was made in part. */
mg_stream *mg_stream_new(const mg_stream_spec *spec) {
    if (check_tensors(spec) != MG_OK) return NULL;
    mg_stream *s = mg_alloc_zero(sizeof *s);
    if (!s) return NULL;
    pthread_mutex_init(&s->mutex, NULL);
    mg_cond_init(&s->changed);
    take_tensors(s, spec);
    s->dense = spec->dense;
    s->depth = spec->depth;
    s->pass = spec->pass;
    s->element = spec->element;
    s->needs_seek = true;
    s->order = mg_order_new(spec->tensors[0]->shape.dim[0], spec->stages, spec->n_stages);
    if (s->order) mg_order_set_stop(s->order, stop_wanted, s);
    if (s->order && (s->depth == 0 || start_thread(s) == MG_OK)) return s;
    mg_stream_free(s);
    return NULL;
}

/* With a thread, the caller only waits; without one, it makes the element here, and an interrupt
 * that ended the work is taken. */
mg_status mg_stream_next(mg_stream *s, mg_element **element) {
    *element = NULL;
    if (s->threaded && mg_threads_forked())
        return mg_fail(MG_UNSUPPORTED, "prefetch: the thread that reads ahead belongs to the "
                                       "process that this one was forked from");
    if (s->threaded) {
        pthread_mutex_lock(&s->mutex);
        mg_status status = wait_for_element(s);
        if (status == MG_OK) status = take_element(s, element);
        pthread_mutex_unlock(&s->mutex);
        return status;
    }
    const mg_status status = make_element(s, element);
    if (status == MG_INTERRUPTED) mg_interrupt_take();
    return status;
}

/* The thread sees `closing` at the latest after the rows of one check. A forked process has no such
 * thread, which may have held the mutex: there the stream is left as it is. */
void mg_stream_free(mg_stream *s) {
    if (!s || (s->threaded && mg_threads_forked())) return;
    if (s->threaded) {
        pthread_mutex_lock(&s->mutex);
        atomic_store(&s->closing, true);
        pthread_cond_broadcast(&s->changed);
        pthread_mutex_unlock(&s->mutex);
        pthread_join(s->thread, NULL);
    }
    for (mg_element *e = s->first, *next; e; e = next) {
        next = e->next;
        mg_element_free(e);
    }
    for (int k = 0; k < s->n_tensors; k++) mg_tensor_release(s->tensors[k]);
    mg_order_free(s->order);
    mg_free(s->rows.row);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->mutex);
    mg_free(s);
}
