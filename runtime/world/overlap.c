/* Reductions beside the computation: see overlap.h. */
#include "world/overlap.h"
#include "core/activity.h"
#include "core/alloc.h"
#include "core/threads.h"
#include "world/exchange.h"
#include <pthread.h>
#include <string.h>

typedef struct reduction { /* kept for the next step, which begins the same ones */
    char *values;          /* the terms, then the results */
    size_t room;           /* bytes */
    uint32_t tag;
    int64_t count;
    mg_dtype dtype;
    enum mg_reduce_kind op;
    mg_memory outs[MG_BUCKET_TENSORS];
    int n_outs;
} reduction;

struct mg_overlap {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    pthread_t thread;
    bool running, ending;
    reduction **list; /* owned; the first n_begun are of this step */
    int n_begun, n_settled, n_list, room;
    int n_done;     /* carried out, or failed */
    double seconds; /* that reductions took on the thread */
    mg_status status;
    char *message; /* of the first that failed; owned */
};

/* ---- the thread ---- */

static void keep_failure(mg_overlap *o, mg_status status) {
    if (o->status != MG_OK) return;
    o->status = status;
    o->message = mg_strdup(mg_error_message());
}

static void *thread_main(void *argument) {
    mg_overlap *o = argument;
    mg_exchange_be_patient();
    mg_activity_name("reductions");
    pthread_mutex_lock(&o->mutex);
    while (!o->ending) {
        if (o->n_done == o->n_begun) {
            pthread_cond_wait(&o->changed, &o->mutex);
            continue;
        }
        const reduction *r = o->list[o->n_done];
        const bool failed = o->status != MG_OK;
        pthread_mutex_unlock(&o->mutex);
        const double start = mg_seconds();
        const int depth = mg_activity_begin(MG_SPAN_COLLECTIVE, "all_reduce");
        const mg_status status = failed ? MG_OK
                                        : mg_exchange_reduce(r->tag, r->values, r->values, r->count,
                                                             r->dtype, r->op, -1);
        mg_activity_leave(depth);
        pthread_mutex_lock(&o->mutex);
        o->seconds += mg_seconds() - start;
        if (status != MG_OK) keep_failure(o, status);
        o->n_done++;
        pthread_cond_broadcast(&o->changed);
    }
    pthread_mutex_unlock(&o->mutex);
    return NULL;
}

static mg_status start_thread(mg_overlap *o) {
    if (o->running) return MG_OK;
    o->running = mg_thread_start(&o->thread, thread_main, o);
    return o->running ? MG_OK : mg_fail(MG_OOM, "cannot start a thread for reductions");
}

/* ---- beginning ---- */

static mg_status reserve(reduction *r, size_t bytes) {
    if (r->room >= bytes) return MG_OK;
    mg_free(r->values);
    r->room = 0;
    r->values = mg_alloc(bytes);
    if (!r->values) return MG_OOM;
    r->room = bytes;
    return MG_OK;
}

/* The reduction that comes next, made at the first step. */
static reduction *next_reduction(mg_overlap *o) {
    if (o->n_begun < o->n_list) return o->list[o->n_begun];
    if (mg_reserve((void **)&o->list, o->n_list, &o->room, sizeof(reduction *)) != MG_OK)
        return NULL;
    reduction *r = mg_alloc_zero(sizeof *r);
    if (r) o->list[o->n_list++] = r;
    return r;
}

static mg_status fill(reduction *r, uint32_t tag, const mg_collective_call *x) {
    const size_t width = mg_dtype_size(x->dtype);
    *r = (reduction){.values = r->values,
                     .room = r->room,
                     .tag = tag,
                     .dtype = x->dtype,
                     .op = x->reduction,
                     .n_outs = x->n_operands};
    for (int i = 0; i < x->n_operands; i++) r->count += x->operands[i].count;
    MG_TRY(reserve(r, (size_t)r->count * width));
    char *to = r->values;
    for (int i = 0; i < x->n_operands; i++) {
        const size_t bytes = (size_t)x->operands[i].count * width;
        r->outs[i] = (mg_memory){x->operands[i].out, bytes};
        memcpy(to, x->operands[i].in, bytes);
        to += bytes;
    }
    return MG_OK;
}

/* The thread does not look at reductions from number n_begun on, so this one is filled without the
 * mutex; but the list may move. */
mg_status mg_overlap_begin(mg_overlap *o, uint32_t tag, const mg_collective_call *x) {
    MG_TRY(start_thread(o));
    pthread_mutex_lock(&o->mutex);
    reduction *r = next_reduction(o);
    pthread_mutex_unlock(&o->mutex);
    if (!r) return MG_OOM;
    MG_TRY(fill(r, tag, x));
    pthread_mutex_lock(&o->mutex);
    o->n_begun++;
    pthread_cond_broadcast(&o->changed);
    pthread_mutex_unlock(&o->mutex);
    return MG_OK;
}

/* ---- settling ---- */

static bool overlaps(const mg_memory *a, const mg_memory *b) {
    const char *x = a->data, *y = b->data;
    return x < y + b->bytes && y < x + a->bytes;
}

static bool is_read(const reduction *r, const mg_memory *read, int n) {
    for (int i = 0; i < r->n_outs; i++)
        for (int k = 0; k < n; k++)
            if (overlaps(&r->outs[i], &read[k])) return true;
    return false;
}

/* How many reductions must be settled; only the thread that begins them changes the list. */
static int find_last(const mg_overlap *o, const mg_memory *read, int n) {
    int last = n ? 0 : o->n_begun;
    for (int i = o->n_settled; i < o->n_begun && n; i++)
        if (is_read(o->list[i], read, n)) last = i + 1;
    return last;
}

bool mg_overlap_concerns(const mg_overlap *o, const mg_memory *read, int n) {
    return o->n_begun > 0 && find_last(o, read, n) > (n ? o->n_settled : -1);
}

static void write_results(const reduction *r) {
    const char *from = r->values;
    for (int i = 0; i < r->n_outs; i++) {
        memcpy((void *)(uintptr_t)r->outs[i].data, from, r->outs[i].bytes);
        from += r->outs[i].bytes;
    }
}

mg_status mg_overlap_settle(mg_overlap *o, const mg_memory *read, int n) {
    const int last = find_last(o, read, n);
    const int depth = mg_activity_begin(MG_SPAN_WAIT, "waits for reductions");
    pthread_mutex_lock(&o->mutex);
    while (o->n_done < last) pthread_cond_wait(&o->changed, &o->mutex);
    mg_activity_leave(depth);
    const mg_status status = o->status == MG_OK ? MG_OK : mg_fail(o->status, "%s", o->message);
    pthread_mutex_unlock(&o->mutex);
    if (status != MG_OK) return status;
    for (; o->n_settled < last; o->n_settled++) write_results(o->list[o->n_settled]);
    if (n == 0) mg_overlap_drop(o);
    return MG_OK;
}

double mg_overlap_seconds(mg_overlap *o) {
    pthread_mutex_lock(&o->mutex);
    const double seconds = o->seconds;
    pthread_mutex_unlock(&o->mutex);
    return seconds;
}

void mg_overlap_drop(mg_overlap *o) {
    pthread_mutex_lock(&o->mutex);
    while (o->n_done < o->n_begun) pthread_cond_wait(&o->changed, &o->mutex);
    o->n_begun = o->n_done = o->n_settled = 0;
    o->status = MG_OK;
    mg_free(o->message);
    o->message = NULL;
    pthread_mutex_unlock(&o->mutex);
}

/* ---- life ---- */

mg_overlap *mg_overlap_new(void) {
    mg_overlap *o = mg_alloc_zero(sizeof *o);
    if (!o) return NULL;
    pthread_mutex_init(&o->mutex, NULL);
    pthread_cond_init(&o->changed, NULL);
    return o;
}

void mg_overlap_free(mg_overlap *o) {
    if (!o) return;
    if (o->running) {
        mg_overlap_drop(o);
        pthread_mutex_lock(&o->mutex);
        o->ending = true;
        pthread_cond_broadcast(&o->changed);
        pthread_mutex_unlock(&o->mutex);
        pthread_join(o->thread, NULL);
    }
    for (int i = 0; i < o->n_list; i++) {
        mg_free(o->list[i]->values);
        mg_free(o->list[i]);
    }
    mg_free(o->list);
    pthread_mutex_destroy(&o->mutex);
    pthread_cond_destroy(&o->changed);
    mg_free(o);
}
