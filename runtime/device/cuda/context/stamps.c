/* Times of launches, for profiles: see stamps.h.
 *
 * Events are kept in a list. When it is full, and when the profile ends, the host waits for the GPU
 * and adds the launches to the profile: the track of the device. The GPU's clock is related to the
 * host's by one more event, on the stream that is then idle. */
#include "device/cuda/context/stamps.h"
#include "core/alloc.h"
#include "core/profile.h"
#include "core/threads.h"

enum { MOST = 1024 };

typedef struct stamp {
    CUevent begin, end; /* kept; NULL: not made yet */
    mg_span span;
} stamp;

struct mg_cuda_stamps {
    stamp list[MOST];
    int n;
    CUevent mark;
    unsigned profile; /* that the stamps belong to */
    uint64_t last;    /* the end of the last launch that was added, ns */
};

static bool make_event(CUevent *e) {
    return *e || mg_cu.cuEventCreate(e, CU_EVENT_DEFAULT) == CUDA_SUCCESS;
}

/* Records the mark on the idle stream. Returns the host's time of it; 0: the GPU does not answer.
 */
static uint64_t find_mark(mg_cuda *s) {
    struct mg_cuda_stamps *t = s->stamps;
    if (mg_cuda_wait(s->device, t->list[t->n - 1].end, NULL) != MG_OK) return 0;
    const uint64_t before = mg_nanoseconds();
    if (!make_event(&t->mark) || mg_cu.cuEventRecord(t->mark, s->stream) != CUDA_SUCCESS) return 0;
    if (mg_cuda_wait(s->device, t->mark, NULL) != MG_OK) return 0;
    return before + (mg_nanoseconds() - before) / 2;
}

/* Nanoseconds on the host's clock; launches of a stream do not overlap, but times are rounded. */
static uint64_t time_of(const struct mg_cuda_stamps *t, CUevent e, uint64_t mark) {
    float ms = 0;
    if (mg_cu.cuEventElapsedTime(&ms, e, t->mark) != CUDA_SUCCESS || !(ms > 0)) ms = 0;
    const uint64_t at = mark - (uint64_t)(1e6 * (double)ms);
    return at < t->last ? t->last : at;
}

/* With the turn held: adds all stamps to the profile. */
static void add_all(mg_cuda *s) {
    struct mg_cuda_stamps *t = s->stamps;
    const uint64_t mark = t->n ? find_mark(s) : 0;
    for (int i = 0; i < t->n && mark; i++) {
        mg_event e = {.start = time_of(t, t->list[i].begin, mark), .span = t->list[i].span};
        t->last = e.start;
        e.end = t->last = time_of(t, t->list[i].end, mark);
        mg_profile_add(s->device->name, &e);
    }
    t->n = 0;
}

static void at_end(void *device) {
    mg_device *d = device;
    mg_cuda *s = d->state;
    if (!s || mg_device_is_lost(d) || mg_cuda_enter(d) != MG_OK) return;
    pthread_mutex_lock(&s->turn);
    add_all(s);
    pthread_mutex_unlock(&s->turn);
}

/* The list, with room, for this profile; NULL: nothing can be noted. */
static struct mg_cuda_stamps *ready(mg_cuda *s) {
    if (!s->stamps) s->stamps = mg_alloc_zero(sizeof *s->stamps);
    if (!s->stamps) return NULL;
    if (s->stamps->profile != mg_profile_number()) {
        s->stamps->profile = mg_profile_number();
        s->stamps->n = 0;
        s->stamps->last = mg_profile_from();
        mg_profile_at_end(at_end, s->device);
    }
    if (s->stamps->n == MOST) add_all(s);
    return s->stamps;
}

bool mg_cuda_stamp(mg_device *d, const mg_span *span) {
    mg_cuda *s = d->state;
    if (!span) { /* the launch that was begun is enqueued */
        stamp *last = &s->stamps->list[s->stamps->n];
        s->stamps->n += mg_cu.cuEventRecord(last->end, s->stream) == CUDA_SUCCESS;
        return true;
    }
    struct mg_cuda_stamps *t = ready(s);
    stamp *next = t ? &t->list[t->n] : NULL;
    if (!next || !make_event(&next->begin) || !make_event(&next->end)) return false;
    next->span = *span;
    return mg_cu.cuEventRecord(next->begin, s->stream) == CUDA_SUCCESS;
}

void mg_cuda_stamps_close(mg_cuda *s) {
    for (int i = 0; s->stamps && i < MOST; i++) {
        if (s->stamps->list[i].begin) mg_cu.cuEventDestroy(s->stamps->list[i].begin);
        if (s->stamps->list[i].end) mg_cu.cuEventDestroy(s->stamps->list[i].end);
    }
    if (s->stamps && s->stamps->mark) mg_cu.cuEventDestroy(s->stamps->mark);
    mg_free(s->stamps);
    s->stamps = NULL;
}
