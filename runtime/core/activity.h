/* What each thread is doing: for reports about a job that hangs, and for profiles (core/profile.h).
 *
 * A thread keeps a stack of spans: a step, in it a phase, in that a launch. Any thread may read the
 * stacks of all others while they go on (mg_activity_describe, mg_activity_report). A launch costs
 * a few stores, and reads no clock unless a profile is recorded.
 *
 * The records of threads lie in a fixed table and are used again after a thread has ended, so
 * nobody can hold a stale one. Texts of spans are not copied: they must be literals, or interned
 * for as long as the process reports (names of ops, devices and layers, the user's lines). */
#ifndef MG_CORE_ACTIVITY_H
#define MG_CORE_ACTIVITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum mg_span_kind {
    MG_SPAN_SCRIPT, /* what the script is at: a profile, an epoch, a batch */
    MG_SPAN_CALLBACK,
    MG_SPAN_DATA,  /* rows are waited for, or made */
    MG_SPAN_TRACE, /* a function is traced */
    MG_SPAN_PLAN,  /* a plan is made */
    MG_SPAN_STEP,  /* the run of a plan, and its phases */
    MG_SPAN_LAUNCH,
    MG_SPAN_COLLECTIVE, /* a launch that exchanges data with other devices or ranks */
    MG_SPAN_WAIT,       /* for a device, another thread or another rank */
    MG_SPAN_CHECKPOINT,
    MG_SPAN_KINDS
} mg_span_kind;

/* Where an op of a plan comes from. All may be 0. */
typedef struct mg_origin {
    const char *where; /* the user's line, an interned "file:line" */
    const char *layer; /* interned: the name of a layer, or "loss", "optimizer" ... */
    bool backward;     /* made by the gradient of an op with this origin */
} mg_origin;

typedef struct mg_span {
    mg_span_kind kind;
    const char *what;   /* "compute", "matmul", "reads rows" */
    const char *device; /* its name, or NULL */
    mg_origin origin;
    int64_t number;     /* of the epoch, batch, collective; 0: it has none */
    float flops, bytes; /* of a launch: estimates of its arithmetic and of the memory it touches */
} mg_span;

/* The names of the kinds, for files and tables: "launch". */
extern const char *const mg_span_kind_names[MG_SPAN_KINDS];

/* ---- of the calling thread ---- */

/* Names it in reports and profiles: "cpu:0", "data", "main". A thread that never calls this is
 * called "thread". */
void mg_activity_name(const char *name);
/* `fn` is called once, by the first thread without a name that begins a span: the script's. */
void mg_activity_at_first(void (*fn)(void));
/* Begins a span; returns the depth to end it with. */
int mg_activity_enter(const mg_span *s);
/* Ends the span of this depth, and those inside it that were left by a jump. */
void mg_activity_leave(int depth);
/* The number of spans that it is in, for mg_activity_leave after a jump. */
int mg_activity_depth(void);
/* Begins or ends adding up the time of the calling thread by the kinds of its spans, from 0: of
 * each the time without the spans inside it. Launches and collectives, whose starts are not
 * measured, count as a part of the step around them. */
void mg_activity_sum(bool on);
/* The sums of the calling thread so far, ns. False: mg_activity_sum(true) was not called. */
bool mg_activity_sums(uint64_t sums[MG_SPAN_KINDS]);
/* Describes the innermost span further, by a function that may use `of` until the span ends, or
 * until the next call: the row of a file, who is waited for. Takes a lock. */
typedef void (*mg_activity_describer)(const void *of, int64_t number, char *text, size_t room);
void mg_activity_about(mg_activity_describer describe, const void *of, int64_t number);

/* Begins a span of which only kind and text are known. */
static inline int mg_activity_begin(mg_span_kind kind, const char *what) {
    return mg_activity_enter(&(mg_span){.kind = kind, .what = what});
}

/* ---- reports ---- */

/* Writes what the thread of this name is in, the outermost span first: "step > compute > matmul of
 * dense_1, train.lua:12, for 3.2 s". "" if there is no such thread, or it is idle. */
void mg_activity_describe(const char *name, char *text, size_t room);
/* Calls `line` with a line for each thread: "cpu:0: step > ...". */
void mg_activity_report(void (*line)(const char *text, void *context), void *context);

#endif
