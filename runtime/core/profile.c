/* Rings of events: see profile.h. */
#define _GNU_SOURCE
#include "core/activity_record.h"
#include "core/alloc.h"
#include "core/threads.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

atomic_bool mg_profile_on;
static atomic_uint number;
static size_t wanted_room;
static uint64_t from, to;
static struct timespec time_of_day; /* at `from` */

mg_status mg_profile_begin(size_t room) {
    if (atomic_load(&mg_profile_on))
        return mg_fail(MG_USAGE, "a profile is being recorded already, by mgpu.profile or "
                                 "mgpulua --profile");
    wanted_room = room;
    atomic_fetch_add(&number, 1);
    clock_gettime(CLOCK_REALTIME, &time_of_day);
    from = to = mg_nanoseconds();
    atomic_store(&mg_profile_on, true);
    return MG_OK;
}

/* What to call at the end; protected by the lock of the table. */
static struct flusher {
    void (*flush)(void *of);
    void *of;
} flushers[MG_PROFILE_TRACKS];
static int n_flushers;

void mg_profile_at_end(void (*flush)(void *of), void *of) {
    pthread_mutex_lock(&mg_activity_table);
    if (n_flushers < MG_PROFILE_TRACKS) flushers[n_flushers++] = (struct flusher){flush, of};
    pthread_mutex_unlock(&mg_activity_table);
}

void mg_profile_end(void) {
    if (!atomic_exchange(&mg_profile_on, false)) return;
    to = mg_nanoseconds();
    for (int i = 0; i < n_flushers; i++) flushers[i].flush(flushers[i].of);
    n_flushers = 0;
}

bool mg_profile_is_on(void) {
    return atomic_load_explicit(&mg_profile_on, memory_order_relaxed);
}

unsigned mg_profile_number(void) {
    return atomic_load(&number);
}

uint64_t mg_profile_from(void) {
    return from;
}

uint64_t mg_profile_to(void) {
    return to;
}

double mg_profile_time_of_day(void) {
    return (double)time_of_day.tv_sec + 1e-9 * (double)time_of_day.tv_nsec;
}

/* ---- writing ---- */

/* A ring of the room that the profile wants. False: there is no memory, and events are lost. */
static bool map_ring(mg_activity_record *r) {
    if (r->ring && r->room == wanted_room) return true;
    if (r->ring) munmap(r->ring, r->room * sizeof *r->ring);
    r->ring = mmap(NULL, wanted_room * sizeof *r->ring, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (r->ring == MAP_FAILED) r->ring = NULL;
    r->room = wanted_room;
    return r->ring != NULL;
}

/* Events of the profile before are forgotten by the owner of the ring, at its first one. */
void mg_profile_write(mg_activity_record *r, const mg_event *e) {
    const unsigned now = atomic_load_explicit(&number, memory_order_relaxed);
    if (r->profile != now) {
        atomic_store(&r->n, 0);
        r->profile = now;
        map_ring(r);
    }
    if (!r->ring) return;
    const uint64_t n = atomic_load_explicit(&r->n, memory_order_relaxed);
    r->ring[n & (r->room - 1)] = *e;
    atomic_store_explicit(&r->n, n + 1, memory_order_release);
}

void mg_profile_add(const char *track, const mg_event *e) {
    static mg_activity_record *made[MG_PROFILE_TRACKS];
    mg_activity_record *r = NULL;
    static int n_made;
    pthread_mutex_lock(&mg_activity_table);
    for (int i = 0; i < n_made && !r; i++)
        if (strcmp(made[i]->name, track) == 0) r = made[i];
    pthread_mutex_unlock(&mg_activity_table);
    if (!r) {
        r = mg_activity_take(track);
        if (!r) return;
        made[n_made++] = r; /* it is kept */
    }
    mg_profile_write(r, e);
}

/* ---- reading ---- */

/* The events that can be read. Of a full ring the oldest is left out: a thread that was late may be
 * writing it. */
static size_t readable(const mg_activity_record *r, uint64_t *first) {
    const uint64_t n = atomic_load_explicit(&r->n, memory_order_acquire);
    if (!r->ring || r->profile != atomic_load(&number)) return *first = 0;
    *first = n < r->room ? 0 : n - r->room + 1;
    return (size_t)(n - *first);
}

const char *mg_profile_track(int i) {
    uint64_t first;
    if (i >= atomic_load(&mg_activity_n_records)) return NULL;
    return readable(&mg_activity_records[i], &first) ? mg_activity_records[i].name : NULL;
}

/* Events are written when they end, so the first one that is left ended first. */
uint64_t mg_profile_kept_from(void) {
    uint64_t kept = from, first;
    for (int i = 0; i < atomic_load(&mg_activity_n_records); i++) {
        const mg_activity_record *r = &mg_activity_records[i];
        if (readable(r, &first) == 0 || first == 0) continue;
        const uint64_t end = r->ring[first & (r->room - 1)].end;
        if (end > kept) kept = end;
    }
    return kept;
}

static int by_start(const void *a, const void *b) {
    const mg_event *x = a, *y = b;
    if (x->start != y->start) return x->start < y->start ? -1 : 1;
    return x->depth - y->depth;
}

mg_event *mg_profile_events(int i, size_t *n, uint64_t *lost) {
    const mg_activity_record *r = &mg_activity_records[i];
    *n = readable(r, lost);
    mg_event *events = mg_alloc((*n + 1) * sizeof *events);
    if (!events) return NULL;
    for (size_t k = 0; k < *n; k++) events[k] = r->ring[(*lost + k) & (r->room - 1)];
    qsort(events, *n, sizeof *events, by_start);
    return events;
}

/* A thread that was late may still write an event, which then is in a page of zeros. */
void mg_profile_drop(void) {
    if (atomic_load(&mg_profile_on)) return;
    for (int i = 0; i < atomic_load(&mg_activity_n_records); i++) {
        const mg_activity_record *r = &mg_activity_records[i];
        if (r->ring) madvise(r->ring, r->room * sizeof *r->ring, MADV_DONTNEED);
    }
    atomic_fetch_add(&number, 1);
}
