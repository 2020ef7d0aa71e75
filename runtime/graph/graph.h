/* The graph passes, in the order they run: grad, (trace,) simplify, fuse, schedule, plan. */
#ifndef MG_GRAPH_GRAPH_H
#define MG_GRAPH_GRAPH_H

#include "core/variable.h"
#include "device/device.h"

/* ---- grad.c ---- */

/* Gradients of the scalar y with respect to wrt[0..n-1], by reverse walk; made of ordinary tensors.
 * grads[i] is owned, or NULL where y does not depend on wrt[i]. */
mg_status mg_grad(mg_tensor *y, mg_tensor *const *wrt, int n, mg_tensor **grads);
/* While at least one recording is open, evaluated tensors keep their history. Per thread. */
void mg_recording_begin(void);
void mg_recording_end(void);
bool mg_recording(void);

/* ---- eval.c ---- */

/* Evaluates if needed and copies the elements, row-major, to dst (count * dtype size bytes). */
mg_status mg_tensor_read(mg_tensor *t, void *dst);
/* As doubles. */
mg_status mg_tensor_read_double(mg_tensor *t, double *dst);

/* Makes the values of t[0..n-1] (and of every tensor in their history that someone else holds). */
mg_status mg_eval(mg_tensor *const *t, int n);
/* Bounded growth: the binding reports each new lazy tensor; every 2,000th is evaluated, or the next
 * that lies somewhere, and the pending variables with it. Does nothing inside a trace. */
mg_status mg_eval_pending(mg_tensor *newest);
/* Evaluates the pending values of this thread's variables. */
mg_status mg_eval_variables(void);

/* ---- plan.c ---- */

typedef struct mg_guard { /* checked after compute and before commit: `ok` is a bool scalar */
    mg_tensor *ok;        /* retained */
    mg_status code;
    char *message; /* owned */
} mg_guard;

typedef struct mg_plan_spec {
    mg_device *device;         /* of a plan on one */
    mg_device *const *devices; /* n_devices of them, if the plan is on several (else 0) */
    int n_devices;
    int n_stages; /* the devices are n_stages groups of equal length, stage by stage; 0 means 1 */
    const double *weights; /* shares of the rows; NULL: even */
    bool local_norm;       /* batch statistics by device */
    mg_device *central;    /* the only one that has the variables; NULL: all have them */
    int n_outputs, n_assigns, n_guards, n_args;
    mg_tensor *const *outputs;
    mg_variable *const *targets; /* assigned variables ... */
    mg_tensor *const *values;    /* ... and their new values */
    const mg_guard *guards;
    mg_tensor *verdict; /* u8: 0, or the number of the first guard that fails, from 1: in place of
                           their `ok`; NULL: there is none */
    uint64_t n_draws;   /* random ordinals taken by one run */
    uint16_t trace;     /* serial of the trace the placeholders belong to; 0 = there are none */
} mg_plan_spec;

typedef struct mg_plan mg_plan;
/* The value as it lies on d: copied there at first need, then kept up to date by plans that run on
 * d. The variable must be evaluated. Borrowed; NULL on failure. */
mg_tensor *mg_variable_on(mg_variable *v, mg_device *d);
mg_plan *mg_plan_new(const mg_plan_spec *spec);
/* results[i] are owned value tensors. A failed guard gives its code and message; nothing commits.
 */
mg_status mg_plan_run(mg_plan *p, mg_tensor *const *args, mg_tensor **results);
/* The same in two halves, for plans on one device: begin starts the compute phase on the device's
 * own thread, with the variables' values as they are now; end waits for it, checks and commits.
 * Between the two the caller may change variables and run other plans, on other devices. */
mg_status mg_plan_begin(mg_plan *p, mg_tensor *const *args);
bool mg_plan_done(const mg_plan *p);
bool mg_plan_begun(const mg_plan *p);
mg_status mg_plan_end(mg_plan *p, mg_tensor *const *args, mg_tensor **results);
void mg_plan_free(mg_plan *p);
/* One line per step, for tests, MGPU_LOG=plan and MGPU_CHECK=retrace. Owned text. With `where`, the
 * user's line stands at the end of each. */
char *mg_plan_dump(const mg_plan *p, bool where);
/* For MGPU_CHECK=retrace: the shape of the first constant or variable of p that is another one in a
 * plan of equal dump; NULL if there is none. */
mg_status mg_plan_compare_given(const mg_plan *p, const mg_plan *other, const mg_shape **differs);

typedef struct mg_plan_report { /* what one device does in a run */
    const mg_device *device;
    int64_t first_row, rows; /* of the batch that is dealt out */
    int steps, collectives;
    int64_t collective_bytes; /* given into collectives */
    int64_t variable_bytes, argument_bytes, result_bytes, arena_bytes;
    /* of all runs so far, on several devices: in programs altogether, in collectives adding up, and
     * in them waiting for others; and what they moved */
    double seconds, reduce_seconds, wait_seconds;
    int64_t bytes_moved;
} mg_plan_report;
/* How many devices the plan is on; and what number i does. */
int mg_plan_devices(const mg_plan *p);
mg_plan_report mg_plan_describe(const mg_plan *p, int i);

/* ---- trace.c: what mgpu.jit stands on ---- */

typedef struct mg_trace mg_trace;
/* Opens the thread's trace (one at a time). Settles pending variables first. NULL on failure. */
/* Inside a trace, random draws are counted from 0 and become relative to the run's base. */
mg_trace *mg_trace_begin(mg_device *device);
/* The plan will be on these devices (at most 64; copied), sharing rows by weights (NULL: evenly).
 */
mg_status mg_trace_set_devices(mg_trace *t, mg_device *const *devices, int n, int n_stages,
                               const double *weights, bool local_norm, mg_device *central);
mg_trace *mg_trace_current(void);
/* The device that stands for d in the open trace; d itself outside of one. */
mg_device *mg_trace_device(mg_device *d);
/* Gives v its placeholder in the open trace, once. */
mg_status mg_trace_enter_variable(mg_variable *v);
/* The current value; inside a trace the traced one. Owned; NULL on failure. */
mg_tensor *mg_variable_read(mg_variable *v);
/* Casts `value` to the variable's dtype and makes it the current one; inside a trace it is noted
 * for the plan's commit phase, and the real value stays. MG_USAGE if the shapes differ. */
mg_status mg_variable_assign(mg_variable *v, mg_tensor *value);
/* Adds a tensor argument's placeholder; borrowed. */
mg_tensor *mg_trace_argument(mg_trace *t, mg_tensor *actual);
/* Without a trace: evaluates ok at once and fails if it is false. */
mg_status mg_guard_add(mg_tensor *ok, mg_status code, const char *message);
/* Closes the trace, restoring every variable, and compiles. NULL on failure (also closed). */
mg_plan *mg_trace_end(mg_trace *t, mg_tensor *const *outputs, int n_outputs);
void mg_trace_abandon(mg_trace *t);

#endif
