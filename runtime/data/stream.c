/* Streams: making elements, in the caller's thread or ahead of it in threads of the stream.
 *
 * The elements that are being made are jobs in a queue, in the order of the pass. A thread takes
 * the first task that it finds: allocate a job's element, read a chunk of its rows, finish it, or
 * else, if the queue has room, draw the row numbers of a further job from the order. So several
 * threads work on one large batch, and the first element is never waited for because of a later
 * one. Without threads, the caller executes the same tasks itself.
 *
 * A failure is stored in its job, and no task of this job or a later one is started until the
 * failure has been reported to the caller. Then these jobs are restarted with the same row numbers.
 * If several rows of a job fail, the first one is reported: the rows before it were started
 * earlier, so the result does not depend on the number of threads. After a failure inside the
 * order, the order is positioned again with mg_order_seek. */
#define _GNU_SOURCE
#include "data/stream.h"
#include "core/activity.h"
#include "core/alloc.h"
#include "core/limits.h"
#include "core/threads.h"
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { MOST_CHUNK = 64, CHUNKS_PER_THREAD = 4 }; /* rows in a task */
/* Interval at which a waiting caller checks for Ctrl-C. */
static const double POLL_SECONDS = 0.05;

/* An element that is being made. */
typedef struct job {
    mg_rows rows;
    mg_element *element; /* owned; NULL: not allocated yet */
    int64_t begun, read; /* where reading has not started yet; how many rows have been read */
    int working;         /* threads that work on it */
    bool finishing;      /* a thread allocates or finishes it */
    bool ready;
    mg_status status; /* a failure, at the row `failed` */
    int64_t failed;
    char message[MG_ERROR_BYTES];
    struct job *next;
} job;

struct mg_stream {
    mg_element_kind kind;                                       /* with a retained source */
    double weight[MG_MAX_DEVICES], share_weight[MG_MAX_SHARDS]; /* of `kind` */
    int64_t depth; /* maximum number of jobs in the queue; 0: one */
    /* used by the thread that is drawing */
    mg_order *order; /* owned */
    mg_rows rows;    /* the next element's row numbers, if rows_ready */
    bool rows_ready; /* `rows` is valid and has no job yet */
    bool needs_seek; /* the order is new, or has failed */
    uint64_t pass;
    int64_t element; /* the element that the order gives next */
    /* shared by the threads, under the mutex */
    int n_threads;
    pthread_t thread[MG_STREAM_THREADS];
    pthread_mutex_t mutex;
    pthread_cond_t work,
        done; /* work: signals threads that there may be a task; done: signals the caller */
    atomic_bool closing; /* the stream is being freed */
    job *first, *last;   /* the queue; owned */
    job *spare;          /* owned; NULL: none */
    int64_t n_jobs;
    bool drawing;     /* a thread gets row numbers for a new job */
    bool finished;    /* the pass has ended */
    mg_status status; /* a failure of the order */
    char message[MG_ERROR_BYTES];
    bool told;           /* the first failure has been reported to the caller */
    mg_rows given;       /* the rows of the last element that the caller got */
    mg_device *device[]; /* of each field */
};

/* Whether work should stop: the stream is being freed, or, without threads, the user pressed
 * Ctrl-C. (With threads, the waiting caller checks for Ctrl-C itself.) */
static bool stop_wanted(void *context) {
    const mg_stream *s = context;
    return atomic_load_explicit(&s->closing, memory_order_relaxed) ||
           (s->depth == 0 && mg_interrupt_pending());
}

/* ---- jobs ---- */

static void free_job(job *j) {
    if (!j) return;
    mg_element_free(j->element);
    mg_free(j->rows.number);
    mg_free(j);
}

/* Frees the partly made element, to start again. */
static void restart_job(job *j) {
    mg_element_free(j->element);
    j->element = NULL;
    j->begun = j->read = 0;
    j->ready = false;
    j->status = MG_OK;
}

/* Keeps the job for the next element: its block of row numbers has the right size. */
static void remove_first_job(mg_stream *s) {
    job *j = s->first;
    s->first = j->next;
    if (!s->first) s->last = NULL;
    s->n_jobs--;
    restart_job(j);
    j->next = NULL;
    free_job(s->spare);
    s->spare = j;
}

static void append_job(mg_stream *s, job *j) {
    if (s->last)
        s->last->next = j;
    else
        s->first = j;
    s->last = j;
    s->n_jobs++;
}

/* With the mutex held: keeps the failure that comes first in the element. */
static void record_failure(job *j, mg_status status, int64_t row) {
    if (j->status != MG_OK && j->failed <= row) return;
    j->status = status;
    j->failed = row;
    snprintf(j->message, sizeof j->message, "%s", mg_error_message());
}

/* ---- tasks: begun and ended with the mutex held, which is released while they work ---- */

/* Gets the row numbers of the next element into s->rows; rows_ready stays false at the end. */
static mg_status next_rows(mg_stream *s) {
    if (s->needs_seek) MG_TRY(mg_order_seek(s->order, s->pass, s->element));
    s->needs_seek = true; /* until the call below succeeds */
    bool got;
    MG_TRY(mg_order_next(s->order, &s->rows, &got));
    s->needs_seek = false;
    s->rows_ready = got;
    s->element += got;
    return MG_OK;
}

/* Turns *j, or a new job if *j is NULL, into the job of the next element. *got is false at the end
 * of the pass. */
static mg_status fill_job(mg_stream *s, job **j, bool *got) {
    *got = false;
    if (!s->rows_ready) MG_TRY(next_rows(s));
    if (!s->rows_ready) return MG_OK;
    if (!*j) *j = mg_alloc_zero(sizeof **j);
    if (!*j) return MG_OOM;
    const mg_rows used = (*j)->rows;
    (*j)->rows = s->rows;
    s->rows = (mg_rows){.number = used.number, .capacity = used.capacity};
    s->rows_ready = false;
    *got = true;
    return MG_OK;
}

/* Appends a job to the queue, or notes the end or a failure. */
static void draw_job(mg_stream *s) {
    job *j = s->spare;
    bool got;
    s->spare = NULL;
    s->drawing = true;
    pthread_mutex_unlock(&s->mutex);
    const int depth = mg_activity_begin(MG_SPAN_DATA, "draws the order of rows");
    const mg_status status = fill_job(s, &j, &got);
    mg_activity_leave(depth);
    pthread_mutex_lock(&s->mutex);
    s->drawing = false;
    s->status = status;
    s->finished = status == MG_OK && !got;
    if (status != MG_OK) snprintf(s->message, sizeof s->message, "%s", mg_error_message());
    if (got)
        append_job(s, j);
    else
        free_job(j);
}

/* Allocates the job's element, or finishes it. */
static void change_element(mg_stream *s, job *j) {
    const bool is_new = !j->element;
    mg_status status = MG_OK;
    j->finishing = true;
    pthread_mutex_unlock(&s->mutex);
    const int depth = mg_activity_begin(MG_SPAN_DATA, is_new ? "begins a batch" : "ends a batch");
    if (is_new)
        status = (j->element = mg_element_new(&s->kind, &j->rows)) ? MG_OK : MG_OOM;
    else
        status = mg_element_finish(j->element, &s->kind, &j->rows);
    mg_activity_leave(depth);
    pthread_mutex_lock(&s->mutex);
    j->finishing = false;
    if (is_new && status == MG_OK) j->begun = j->element->from;
    j->ready = !is_new && status == MG_OK;
    if (status != MG_OK) record_failure(j, status, j->rows.n);
}

/* The number of rows of one task: a fixed number for a single thread, so that it can be stopped in
 * between; an even share of the batch for several threads. */
static int64_t chunk_of(const mg_stream *s, const job *j) {
    if (s->n_threads < 2) return MOST_CHUNK;
    const int64_t rows = j->element->to - j->element->from,
                  share = rows / (s->n_threads * CHUNKS_PER_THREAD);
    return share < 1 ? 1 : share > MOST_CHUNK ? MOST_CHUNK : share;
}

static void read_chunk(mg_stream *s, job *j) {
    const int64_t from = j->begun, wanted = from + chunk_of(s, j), end = j->element->to,
                  to = wanted < end ? wanted : end;
    int64_t failed;
    j->begun = to;
    pthread_mutex_unlock(&s->mutex);
    const int depth = mg_activity_begin(MG_SPAN_DATA, "reads rows");
    const mg_status status = mg_element_read(j->element, &s->kind, &j->rows, from, to, &failed);
    mg_activity_leave(depth);
    pthread_mutex_lock(&s->mutex);
    j->read += to - from;
    if (status != MG_OK) record_failure(j, status, failed);
}

/* Whether a thread is working on any job: then jobs must not be changed. */
static bool anyone_working(const mg_stream *s) {
    for (const job *j = s->first; j; j = j->next)
        if (j->working) return true;
    return false;
}

/* Whether the first job's element is ready, or its failure can be reported, or no further element
 * will come. */
static bool is_settled(const mg_stream *s) {
    const job *j = s->first;
    if (!j) return !s->drawing && (s->finished || s->status != MG_OK);
    return j->ready || (j->status != MG_OK && !anyone_working(s));
}

/* Whether the job has a task that is not started yet. */
static bool has_task(const job *j) {
    if (j->ready || j->finishing) return false;
    const mg_element *e = j->element;
    return !e || j->begun < e->to || j->read == e->to - e->from;
}

/* Executes a task of the job. */
static void work_on(mg_stream *s, job *j) {
    j->working++;
    if (j->element && j->begun < j->element->to)
        read_chunk(s, j);
    else
        change_element(s, j);
    j->working--;
}

/* Executes the first available task; false if there is none. Wakes other threads if they may find a
 * new task, and the caller if it need not wait any longer. */
static bool do_task(mg_stream *s) {
    job *j = s->first;
    while (j && j->status == MG_OK && !has_task(j)) j = j->next;
    if (j && j->status != MG_OK) return false;
    const bool opens = !j || !j->element; /* afterwards other threads can work on the job */
    if (j)
        work_on(s, j);
    else if (s->drawing || s->finished || s->status != MG_OK || s->n_jobs >= s->depth + !s->depth)
        return false;
    else
        draw_job(s);
    if (opens && s->n_threads > 1) pthread_cond_broadcast(&s->work);
    if (is_settled(s)) pthread_cond_signal(&s->done);
    return true;
}

/* ---- threads ---- */

static void *stream_thread(void *argument) {
    mg_stream *s = argument;
    mg_activity_name("data");
    pthread_mutex_lock(&s->mutex);
    while (!atomic_load(&s->closing))
        if (!do_task(s)) pthread_cond_wait(&s->work, &s->mutex);
    pthread_mutex_unlock(&s->mutex);
    return NULL;
}

/* Starts the threads; it is enough if one of them can be started. */
static mg_status start_threads(mg_stream *s, int n) {
    pthread_mutex_lock(&s->mutex);
    while (s->n_threads < n && mg_thread_start(&s->thread[s->n_threads], stream_thread, s))
        s->n_threads++;
    const int error = errno;
    pthread_mutex_unlock(&s->mutex);
    if (s->n_threads > 0) return MG_OK;
    return mg_fail(MG_OOM, "prefetch: cannot start a thread: %s; leave :prefetch out",
                   mg_reason(error));
}

/* With the mutex held: waits until the threads have changed something. MG_INTERRUPTED after Ctrl-C.
 */
static mg_status wait_for_threads(mg_stream *s) {
    const struct timespec until = mg_time_after(POLL_SECONDS);
    pthread_cond_timedwait(&s->done, &s->mutex, &until);
    return mg_interrupt_take() ? mg_fail(MG_INTERRUPTED, "interrupted") : MG_OK;
}

/* ---- what the caller gets ---- */

/* Takes the first element, or reports the failure. */
static mg_status take_first(mg_stream *s, mg_element **element) {
    job *j = s->first;
    if (j && j->ready) {
        MG_TRY(mg_element_join(j->element));
        *element = j->element;
        j->element = NULL;
        const mg_rows before = s->given;
        s->given = j->rows;
        j->rows = before; /* its memory is reused */
        remove_first_job(s);
        return MG_OK;
    }
    const mg_status status = j ? j->status : s->status;
    if (status == MG_OK) return MG_OK; /* the end */
    s->told = true;
    return mg_fail(status, "%s", j ? j->message : s->message);
}

/* After a failure: restarts all elements in the queue, so that no later one holds the memory that
 * the first one lacks. */
static void try_again(mg_stream *s) {
    for (job *j = s->first; j; j = j->next) restart_job(j);
    s->status = MG_OK;
    s->told = false;
    pthread_cond_broadcast(&s->work);
}

/* Without threads, the caller executes the tasks; takes an interrupt that has ended a task. */
static mg_status next_without_threads(mg_stream *s, mg_element **element) {
    while (!is_settled(s)) do_task(s);
    const mg_status status = take_first(s, element);
    if (status == MG_INTERRUPTED) mg_interrupt_take();
    return status;
}

static mg_status next_of_threads(mg_stream *s, mg_element **element) {
    mg_status status = MG_OK;
    while (status == MG_OK && !is_settled(s)) status = wait_for_threads(s);
    if (status == MG_OK) status = take_first(s, element);
    pthread_cond_broadcast(&s->work);
    return status;
}

mg_status mg_stream_next(mg_stream *s, mg_element **element) {
    *element = NULL;
    if (s->depth && mg_threads_forked())
        return mg_fail(MG_UNSUPPORTED, "prefetch: the threads that read ahead belong to the "
                                       "process that this one was forked from");
    const int depth =
        mg_activity_begin(MG_SPAN_DATA, s->depth ? "waits for a batch" : "makes a batch");
    pthread_mutex_lock(&s->mutex);
    if (s->told) try_again(s);
    const mg_status status =
        s->depth ? next_of_threads(s, element) : next_without_threads(s, element);
    pthread_mutex_unlock(&s->mutex);
    mg_activity_leave(depth);
    return status;
}

void mg_stream_describe(const mg_stream *s, int64_t part, int64_t parts, char *text, size_t room) {
    enum { MOST = 4 };
    const int64_t n = parts > 0 ? s->given.n / parts : 0;
    size_t used = 0;
    if (room) *text = 0;
    for (int64_t i = 0; i < n && i < MOST && used + 8 < room; i++) {
        if (i) used += (size_t)snprintf(text + used, room - used, ", ");
        mg_source_describe(s->kind.source, mg_rows_key(&s->given, part * n + i).row, text + used,
                           room - used);
        used += strlen(text + used);
    }
    if (n > MOST && used < room)
        snprintf(text + used, room - used, ", ... (%lld rows)", (long long)n);
}

/* ---- streams ---- */

static mg_status check_axes(const mg_stream_spec *spec) {
    int batches = 0;
    for (int i = 0; i < spec->n_stages; i++) batches += mg_stage_is_batch(&spec->stages[i]);
    for (int k = 0; k < spec->source->n_fields; k++) {
        const int axes = spec->source->field[k].shape.rank + batches;
        if (axes > MG_MAX_RANK)
            return mg_fail(MG_USAGE,
                           "batch: a batch of field %d would have %d axes, at most %d are possible",
                           k + 1, axes, MG_MAX_RANK);
    }
    return MG_OK;
}

/* Texts become Lua values at once, and nothing says which of them are not there. */
static bool has_texts(const mg_source *source) {
    bool texts = false;
    for (int k = 0; k < source->n_fields; k++) texts = texts || source->field[k].text;
    return texts;
}

static void take_share(mg_stream *s, const mg_share *share) {
    s->kind.share = *share;
    if (!share->weights) return;
    memcpy(s->share_weight, share->weights, (size_t)share->total * sizeof s->share_weight[0]);
    s->kind.share.weights = s->share_weight;
}

/* The threads are started last, when everything that they read is initialized. mg_stream_free also
 * frees a partly constructed stream. */
mg_stream *mg_stream_new(const mg_stream_spec *spec) {
    if (check_axes(spec) != MG_OK || mg_source_prepare(spec->source) != MG_OK) return NULL;
    const size_t devices = (size_t)spec->source->n_fields * sizeof *spec->device;
    mg_stream *s = mg_alloc_zero(sizeof *s + devices);
    if (!s) return NULL;
    memcpy(s->device, spec->device, devices);
    pthread_mutex_init(&s->mutex, NULL);
    mg_cond_init(&s->work);
    mg_cond_init(&s->done);
    s->kind = (mg_element_kind){.source = mg_source_retain(spec->source),
                                .device = s->device,
                                .host = spec->host,
                                .dense = spec->dense,
                                .stop = stop_wanted,
                                .context = s};
    memcpy(s->kind.shard, spec->shard, sizeof s->kind.shard);
    memcpy(s->weight, spec->weight, sizeof s->weight);
    s->kind.n_shards = spec->n_shards;
    if (!has_texts(spec->source)) take_share(s, &spec->share);
    s->kind.weights = spec->weighted ? s->weight : NULL;
    s->kind.ahead = spec->depth > 0;
    s->depth = spec->depth;
    s->pass = spec->pass;
    s->element = spec->element;
    s->needs_seek = true;
    s->order = mg_order_new(spec->source->n_rows, spec->stages, spec->n_stages);
    if (s->order) mg_order_set_stop(s->order, stop_wanted, s);
    const int threads = spec->threads < MG_STREAM_THREADS ? spec->threads : MG_STREAM_THREADS;
    if (s->order && (s->depth == 0 || start_threads(s, threads) == MG_OK)) return s;
    mg_stream_free(s);
    return NULL;
}

/* Each thread checks `closing` at the latest after the row that it is reading. In a forked process
 * the threads do not exist and the mutex may be locked for ever: there nothing is freed. */
void mg_stream_free(mg_stream *s) {
    if (!s || (s->n_threads && mg_threads_forked())) return;
    pthread_mutex_lock(&s->mutex);
    atomic_store(&s->closing, true);
    pthread_cond_broadcast(&s->work);
    pthread_mutex_unlock(&s->mutex);
    for (int i = 0; i < s->n_threads; i++) pthread_join(s->thread[i], NULL);
    while (s->first) remove_first_job(s);
    free_job(s->spare);
    mg_source_release(s->kind.source);
    mg_order_free(s->order);
    mg_free(s->rows.number);
    mg_free(s->given.number);
    pthread_cond_destroy(&s->work);
    pthread_cond_destroy(&s->done);
    pthread_mutex_destroy(&s->mutex);
    mg_free(s);
}
