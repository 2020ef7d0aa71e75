/* Stacks of spans, and reports of them: see activity.h. */
#include "core/activity_record.h"
#include "core/threads.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *const mg_span_kind_names[MG_SPAN_KINDS] = {
    [MG_SPAN_SCRIPT] = "script", [MG_SPAN_CALLBACK] = "callback",
    [MG_SPAN_DATA] = "data",     [MG_SPAN_TRACE] = "trace",
    [MG_SPAN_PLAN] = "plan",     [MG_SPAN_STEP] = "step",
    [MG_SPAN_LAUNCH] = "launch", [MG_SPAN_COLLECTIVE] = "collective",
    [MG_SPAN_WAIT] = "wait",     [MG_SPAN_CHECKPOINT] = "checkpoint",
};

enum { BACKWARD = 1 << 8 }; /* in mg_open_span.kind */

mg_activity_record mg_activity_records[MG_PROFILE_TRACKS];
atomic_int mg_activity_n_records;
pthread_mutex_t mg_activity_table = PTHREAD_MUTEX_INITIALIZER;

/* ---- records of threads ---- */

static _Thread_local mg_activity_record *own;
/* Of the threads that find no record: written by all of them, and never recorded. */
static mg_activity_record spare = {.lock = PTHREAD_MUTEX_INITIALIZER};
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t at_end; /* its destructor releases the record of a thread that ends */

static void release(void *record) {
    mg_activity_record *r = record;
    atomic_store(&r->depth, 0);
    r->sums_on = false;
    atomic_store(&r->used, false);
}

static void set_up(void) {
    pthread_key_create(&at_end, release);
}

/* With the lock of the table held: a record that has never had a thread, or NULL. */
static mg_activity_record *add_record(void) {
    const int n = atomic_load(&mg_activity_n_records);
    if (n == MG_PROFILE_TRACKS) return NULL;
    pthread_mutex_init(&mg_activity_records[n].lock, NULL);
    atomic_store(&mg_activity_n_records, n + 1);
    return &mg_activity_records[n];
}

/* By preference a record of the same name, so that the threads of one stream after the other are
 * one track; else a new one, so that no track has events of another. */
mg_activity_record *mg_activity_take(const char *name) {
    mg_activity_record *same = NULL, *unused = NULL;
    pthread_once(&once, set_up);
    pthread_mutex_lock(&mg_activity_table);
    for (int i = 0; i < atomic_load(&mg_activity_n_records) && !same; i++) {
        mg_activity_record *r = &mg_activity_records[i];
        if (atomic_load(&r->used)) continue;
        unused = r;
        if (strcmp(r->name, name) == 0) same = r;
    }
    mg_activity_record *found = same ? same : add_record();
    if (!found) found = unused;
    if (found) {
        snprintf(found->name, sizeof found->name, "%s", name);
        atomic_store(&found->used, true);
    }
    pthread_mutex_unlock(&mg_activity_table);
    return found;
}

static mg_activity_record *take_own(const char *name) {
    own = mg_activity_take(name);
    if (own)
        pthread_setspecific(at_end, own);
    else
        own = &spare;
    return own;
}

static _Atomic(void (*)(void)) at_first;

void mg_activity_at_first(void (*fn)(void)) {
    atomic_store(&at_first, fn);
}

static __attribute__((noinline)) mg_activity_record *take_unnamed(void) {
    take_own("thread");
    void (*fn)(void) = atomic_exchange(&at_first, NULL);
    if (fn) fn();
    return own;
}

static inline mg_activity_record *get_own(void) {
    return own ? own : take_unnamed();
}

void mg_activity_name(const char *name) {
    mg_activity_record *r = own;
    if (!r) {
        take_own(name);
        return;
    }
    pthread_mutex_lock(&mg_activity_table);
    snprintf(r->name, sizeof r->name, "%s", name);
    pthread_mutex_unlock(&mg_activity_table);
}

/* ---- the stack ---- */

#define STORE(member, value) atomic_store_explicit(&(member), (value), memory_order_relaxed)
#define LOAD(member) atomic_load_explicit(&(member), memory_order_relaxed)

/* Launches are short and many: the clock is read only for a profile. */
static inline bool is_timed(mg_span_kind kind) {
    return kind != MG_SPAN_LAUNCH || LOAD(mg_profile_on);
}

static void forget_about(mg_activity_record *r, mg_open_span *o) {
    pthread_mutex_lock(&r->lock);
    o->describe = NULL;
    pthread_mutex_unlock(&r->lock);
}

int mg_activity_enter(const mg_span *s) {
    mg_activity_record *r = get_own();
    const int depth = LOAD(r->depth);
    if (depth < MG_MOST_SPANS) {
        mg_open_span *to = &r->span[depth];
        STORE(to->what, s->what);
        STORE(to->device, s->device);
        STORE(to->where, s->origin.where);
        STORE(to->layer, s->origin.layer);
        STORE(to->number, s->number);
        STORE(to->kind, (unsigned)s->kind | (s->origin.backward ? BACKWARD : 0));
        STORE(to->start, is_timed(s->kind) ? mg_nanoseconds() : 0);
        r->inside[depth + 1] = 0;
        STORE(to->flops, s->flops);
        STORE(to->bytes, s->bytes);
        if (to->describe) forget_about(r, to); /* of a thread that ended in a span */
    }
    atomic_store_explicit(&r->depth, depth + 1, memory_order_release);
    return depth;
}

static mg_span span_of(const mg_open_span *o) {
    const unsigned kind = LOAD(o->kind);
    return (mg_span){.kind = (mg_span_kind)(kind & (BACKWARD - 1)),
                     .what = LOAD(o->what),
                     .device = LOAD(o->device),
                     .origin = {LOAD(o->where), LOAD(o->layer), kind & BACKWARD},
                     .number = LOAD(o->number),
                     .flops = LOAD(o->flops),
                     .bytes = LOAD(o->bytes)};
}

/* Of a span that began before the profile, the part in it. */
static void record(mg_activity_record *r, int depth) {
    const mg_open_span *o = &r->span[depth];
    mg_event e = {.start = LOAD(o->start), .end = mg_nanoseconds(), .depth = depth};
    if (e.start == 0) return; /* a launch that began before the profile */
    if (e.start < mg_profile_from()) e.start = mg_profile_from();
    e.span = span_of(o);
    mg_profile_write(r, &e);
}

/* Of a span that began before the sums, the part since. */
static void add_up(mg_activity_record *r, int depth) {
    const mg_open_span *o = &r->span[depth];
    const mg_span_kind kind = (mg_span_kind)(LOAD(o->kind) & (BACKWARD - 1));
    const uint64_t began = LOAD(o->start), start = began < r->sums_from ? r->sums_from : began;
    if (began == 0 || kind == MG_SPAN_LAUNCH || kind == MG_SPAN_COLLECTIVE) {
        r->inside[depth] += r->inside[depth + 1];
        return;
    }
    const uint64_t whole = mg_nanoseconds() - start;
    if (whole > r->inside[depth + 1]) r->sums[kind] += whole - r->inside[depth + 1];
    r->inside[depth] += whole;
}

void mg_activity_sum(bool on) {
    mg_activity_record *r = get_own();
    if (r == &spare) return;
    r->sums_on = on;
    r->sums_from = mg_nanoseconds();
    memset(r->sums, 0, sizeof r->sums);
    memset(r->inside, 0, sizeof r->inside);
}

bool mg_activity_sums(uint64_t sums[MG_SPAN_KINDS]) {
    const mg_activity_record *r = get_own();
    memcpy(sums, r->sums, sizeof r->sums);
    return r->sums_on;
}

void mg_activity_leave(int depth) {
    mg_activity_record *r = get_own();
    const bool on = atomic_load_explicit(&mg_profile_on, memory_order_acquire) && r != &spare;
    if (depth < 0) depth = 0;
    if (depth >= LOAD(r->depth)) return; /* it was ended with a span around it */
    for (int d = LOAD(r->depth) - 1; d >= depth; d--) {
        if (d >= MG_MOST_SPANS) continue;
        if (r->sums_on) add_up(r, d);
        if (on) record(r, d);
        if (r->span[d].describe) forget_about(r, &r->span[d]);
    }
    atomic_store_explicit(&r->depth, depth, memory_order_release);
}

int mg_activity_depth(void) {
    return LOAD(get_own()->depth);
}

void mg_activity_about(mg_activity_describer describe, const void *of, int64_t number) {
    mg_activity_record *r = get_own();
    const int depth = LOAD(r->depth);
    if (depth == 0 || depth > MG_MOST_SPANS || r == &spare) return;
    mg_open_span *o = &r->span[depth - 1];
    pthread_mutex_lock(&r->lock);
    o->describe = describe;
    o->of = of;
    o->about = number;
    pthread_mutex_unlock(&r->lock);
}

/* ---- reports ---- */

/* A text in memory of the caller, cut off where that ends. */
typedef struct text {
    char *s;
    size_t n, room;
} text;

static __attribute__((format(printf, 2, 3))) void append(text *t, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const int n = vsnprintf(t->s + t->n, t->room - t->n, format, arguments);
    va_end(arguments);
    t->n += n < 0 ? 0 : (size_t)n;
    if (t->n >= t->room) t->n = t->room - 1;
}

/* With the record's lock held. `name`: of the thread, which need not be told again. */
static void append_span(text *t, const mg_open_span *o, const char *name) {
    const mg_span s = span_of(o);
    append(t, "%s%s", t->n ? " > " : "", s.what ? s.what : "?");
    if (s.number) append(t, " %lld", (long long)s.number);
    if (s.origin.backward) append(t, " (gradient)");
    if (s.origin.layer) append(t, " of %s", s.origin.layer);
    if (s.device && strcmp(s.device, name) != 0)
        append(t, " %s %s", s.kind == MG_SPAN_WAIT ? "for" : "on", s.device);
    if (s.origin.where) append(t, ", %s", s.origin.where);
    if (!o->describe) return;
    append(t, " ");
    o->describe(o->of, o->about, t->s + t->n, t->room - t->n);
    t->n += strlen(t->s + t->n);
}

/* With the lock of the table held. How long: of the innermost span that was timed. */
static void describe(mg_activity_record *r, text *t) {
    t->s[0] = 0;
    uint64_t start = 0;
    pthread_mutex_lock(&r->lock);
    const int depth = atomic_load_explicit(&r->depth, memory_order_acquire);
    for (int d = 0; d < depth && d < MG_MOST_SPANS; d++) {
        append_span(t, &r->span[d], r->name);
        const uint64_t began = LOAD(r->span[d].start);
        if (began) start = began;
    }
    pthread_mutex_unlock(&r->lock);
    if (depth && start) append(t, ", for %.1f s", 1e-9 * (double)(mg_nanoseconds() - start));
}

void mg_activity_describe(const char *name, char *to, size_t room) {
    text t = {to, 0, room};
    to[0] = 0;
    pthread_once(&once, set_up);
    pthread_mutex_lock(&mg_activity_table);
    for (int i = 0; i < atomic_load(&mg_activity_n_records) && t.n == 0; i++) {
        mg_activity_record *r = &mg_activity_records[i];
        if (atomic_load(&r->used) && strcmp(r->name, name) == 0) describe(r, &t);
    }
    pthread_mutex_unlock(&mg_activity_table);
}

void mg_activity_report(void (*line)(const char *text, void *context), void *context) {
    char said[1000] = "", whole[1100];
    pthread_once(&once, set_up);
    for (int i = 0; i < atomic_load(&mg_activity_n_records); i++) {
        mg_activity_record *r = &mg_activity_records[i];
        text t = {said, 0, sizeof said};
        pthread_mutex_lock(&mg_activity_table);
        const bool used = atomic_load(&r->used);
        if (used) describe(r, &t);
        if (used) snprintf(whole, sizeof whole, "%s: %s", r->name, t.n ? said : "idle");
        pthread_mutex_unlock(&mg_activity_table);
        if (used) line(whole, context); /* without locks: it may wait for a terminal */
    }
}
