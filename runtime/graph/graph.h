/* Gradients, evaluation, plans and traces: what the bindings call.
 *
 * passes.c lists the passes that a plan is made by, and plan.h says which file calls which. */
#ifndef MG_GRAPH_GRAPH_H
#define MG_GRAPH_GRAPH_H

#include "core/variable.h"
#include "device/device.h"

/* ---- grad.c ---- */

/* Gradients of the scalar y with respect to wrt[0..n-1], by reverse walk; made of ordinary tensors.
 * grads[i] is owned, or NULL where y does not depend on wrt[i]. */
mg_status mg_grad(mg_tensor *y, mg_tensor *const *wrt, int n, mg_tensor **grads);

/* The same from several ys of any shape, whose gradients are given, in the innermost scope of
 * ops/build.h, which owns all that is made: grads[i] is borrowed, or NULL. */
mg_status mg_grad_from(mg_tensor *const *ys, mg_tensor *const *dys, int n_ys, mg_tensor *const *wrt,
                       int n, mg_tensor **grads);

/* ---- eval.c ---- */

/* Computes the values of t[0..n-1] and of every tensor in their history that someone else holds. */
mg_status mg_eval(mg_tensor *const *t, int n);
/* The bytes of all values that tensors got from this thread's evaluations since the last call. */
size_t mg_eval_take_bytes(void);
/* Bounds the growth of lazy history: the bindings report each new lazy tensor, and every 2,000th is
 * evaluated together with the pending variables. A tensor of constants only is spared, for up to
 * 2,000 further ones, because a value would no longer be free to move. Does nothing inside a trace.
 */
mg_status mg_eval_pending(mg_tensor *newest);
/* Evaluates the pending values of this thread's variables. */
mg_status mg_eval_variables(void);

/* Evaluates if needed and copies the elements, row-major, to dst (count * dtype size bytes). */
mg_status mg_tensor_read(mg_tensor *t, void *dst);
/* As doubles. */
mg_status mg_tensor_read_double(mg_tensor *t, double *dst);

/* To be called where t is read: a result of a recorded run becomes a plain value, now or when the
 * last recording closes, as other tensors do when they are evaluated. */
mg_status mg_recorded_end(mg_tensor *t);

/* While at least one recording is open, evaluated tensors keep their history. Per thread. */
void mg_recording_begin(void);
void mg_recording_end(void);
bool mg_recording(void);

/* ---- plan.c: making a plan ---- */

enum { MG_MOST_NEW_VALUES = 255 }; /* variables of a guard */

typedef struct mg_guard {    /* checked after the compute phase, before commit; or new_values.h */
    mg_tensor *ok;           /* retained: a bool scalar, true if the guard holds */
    mg_status code;          /* of the failure */
    char *message;           /* owned */
    mg_variable **variables; /* owned: those whose new values it checks, after commit; or NULL */
    int n_variables;
} mg_guard;

typedef struct mg_plan_spec {  /* what to make a plan of */
    mg_device *device;         /* of a plan on one device */
    mg_device *const *devices; /* n_devices of them, of a plan on several (else n_devices is 0) */
    int n_devices;
    int n_stages; /* the devices are n_stages groups of equal length, stage by stage; 0 means 1 */
    const double
        *weights;       /* relative shares of the rows, per device of a stage; NULL: equal shares */
    bool local_norm;    /* batch statistics are those of each device's rows */
    bool joint;         /* all ranks of the world share the step, each with its own devices */
    int absent;         /* further devices share the rows, but are not there: no run is possible */
    mg_device *central; /* the only one that has the variables; NULL: all have them */
    int n_outputs, n_assigns, n_guards, n_args;
    mg_tensor *const *outputs;
    mg_variable *const *targets; /* assigned variables ... */
    mg_tensor *const *values;    /* ... and their new values */
    const mg_guard *guards;      /* those of new values last */
    mg_tensor *verdict; /* u8: 0, or the number of the first guard that fails, from 1; the plan then
                           reads this in place of the guards' `ok`. NULL: it reads those */
    uint64_t n_draws;   /* random ordinals taken by one run */
    bool frozen; /* variables will change rarely: what depends on nothing else is computed once, and
                    again when one of them has changed. Of a plan on one device that assigns none */
    bool recorded; /* run again and again for a model's call: gives what evaluating the calls of its
                      layers gives (on the cpu the same bits), so batch norms are not folded */
    int threads;   /* of a plan on one device, at most; 0: all of the host's cores. A frozen or
                      recorded plan takes fewer where they do not pay off */
    uint16_t trace; /* serial number of the trace of the placeholders; 0: there are none */
} mg_plan_spec;

typedef struct mg_plan mg_plan;
/* Compiles. Owned; NULL on failure. */
mg_plan *mg_plan_new(const mg_plan_spec *spec);
/* Accepts NULL. */
void mg_plan_free(mg_plan *p);

/* ---- run.c and eval.c: running it ---- */

/* results[i] are owned value tensors. If a guard fails, its code and message are raised and nothing
 * is committed. */
mg_status mg_plan_run(mg_plan *p, mg_tensor *const *args, mg_tensor **results);
/* A run that has failed with MG_OOM will not be repeated: the other ranks of a joint plan learn
 * why, and do not wait for this one. */
void mg_plan_give_up(const mg_plan *p);
/* The same in two halves, for plans on one device: begin starts the compute phase on the device's
 * own thread, with the variables' present values; end waits for it, checks the guards and commits.
 * Between the two the caller may change variables and run other plans, on this device too; but this
 * plan cannot run again, and no second run can begin on the device (MG_USAGE). */
mg_status mg_plan_begin(mg_plan *p, mg_tensor *const *args);
bool mg_plan_begun(const mg_plan *p);
/* Whether mg_plan_end would not have to wait. */
bool mg_plan_done(const mg_plan *p);
mg_status mg_plan_end(mg_plan *p, mg_tensor *const *args, mg_tensor **results);
/* In place of mg_plan_end: stops the run and commits nothing. */
void mg_plan_cancel(mg_plan *p, mg_tensor *const *args);
/* The value as it lies on d: copied there at first need, then kept up to date by plans that run on
 * d. The variable must be evaluated. Borrowed; NULL on failure. */
mg_tensor *mg_variable_on(mg_variable *v, mg_device *d);

/* ---- plan_report.c ---- */

/* One line per step, for tests, MGPU_LOG=plan and MGPU_CHECK=retrace. Owned text. With `where`,
 * each line ends with the user's line. */
char *mg_plan_dump(const mg_plan *p, bool where);
/* For MGPU_CHECK=retrace, with plans of equal dumps: *differs is the shape of the first constant or
 * variable in which p differs from the other plan, or NULL. */
mg_status mg_plan_compare_given(const mg_plan *p, const mg_plan *other, const mg_shape **differs);

typedef struct mg_plan_report { /* what one device does in a run */
    const mg_device *device;
    int64_t first_row, rows; /* of the sharded batch */
    int steps, collectives;
    int64_t collective_bytes; /* input of the collectives */
    int64_t variable_bytes, argument_bytes, result_bytes, arena_bytes;
    int64_t kept_bytes;        /* of a frozen plan: what it makes of the variables once */
    double products, elements; /* multiplications; elements read or written */
    /* Sums over all runs so far, of plans on several devices: seconds in programs altogether, in
     * collectives reducing, and in collectives waiting for others; seconds that collectives took
     * on a thread beside the computation; and bytes sent. */
    double seconds, reduce_seconds, wait_seconds, beside_seconds;
    int64_t bytes_moved;
} mg_plan_report;
/* The random draws and the variables assigned in each run. */
void mg_plan_effects(const mg_plan *p, int64_t *draws, int *assigns);
/* How many devices, of all ranks, compute the whole step, each for itself; 1 if they share it. */
int mg_plan_repeats(const mg_plan *p);
/* How many devices the plan is on, and what number i of them does. */
int mg_plan_devices(const mg_plan *p);
mg_plan_report mg_plan_describe(const mg_plan *p, int i);
/* Step number `step`, from 0, of what that device does. False: there are no more. The texts live as
 * long as the plan. */
typedef struct mg_step_report {
    const char *op; /* "fused" for a chain of element-wise ops */
    mg_origin origin;
    double flops, bytes; /* estimates */
    int collective;      /* its number among the calls of collectives, from 1; several steps, a
                            bucket, are one call. 0: it is none */
    double sent;         /* of a collective: the bytes of its operand */
    int awaits;          /* the last call of a collective whose result it reads; 0: none */
} mg_step_report;
bool mg_plan_describe_step(const mg_plan *p, int i, int step, mg_step_report *r);

/* ---- trace.c: what mgpu.jit is made of ---- */

typedef struct mg_trace mg_trace;
/* Opens the thread's trace (one at a time), after evaluating pending variables. Inside it, random
 * draws are counted from 0, relative to the base of each run. Owned; NULL on failure. */
mg_trace *mg_trace_begin(mg_device *device);
/* The plan will be on these n devices (copied; at most MG_MAX_DEVICES). The other arguments are as
 * in mg_plan_spec. */
mg_status mg_trace_set_devices(mg_trace *t, mg_device *const *devices, int n, int n_stages,
                               const double *weights, bool local_norm, mg_device *central,
                               bool joint);
/* And n more devices that are not there: the plan can be reported on, but not run. */
void mg_trace_set_absent(mg_trace *t, int n);
/* mg_plan_spec.frozen, recorded and threads. */
void mg_trace_freeze(mg_trace *t, bool frozen, bool recorded, int threads);
mg_trace *mg_trace_current(void);
/* Leaves the open trace, for tensors that do not depend on it and whose values are needed now,
 * until mg_trace_resume with what this returns; NULL if none is open. No trace may begin meanwhile.
 */
mg_trace *mg_trace_suspend(void);
void mg_trace_resume(mg_trace *t);
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
/* A run will fail with code and message unless ok is true. Without a trace: evaluates ok at once.
 */
mg_status mg_guard_add(mg_tensor *ok, mg_status code, const char *message);
/* A run will fail, after its commit phase, with "NAME message" if it makes one of the variables NaN
 * or infinite; only variables of floating point numbers that the trace assigns are checked. Without
 * a trace: checks their values at once. */
mg_status mg_guard_variables(mg_variable *const *variables, int n, const char *message);
/* The recipe of the outputs (core/recipe.h), before the trace is closed. *r is owned; NULL if a run
 * cannot be recorded: it draws random numbers, assigns variables, has a loop, or is given nothing.
 */
mg_status mg_trace_recipe(const mg_trace *t, mg_tensor *const *outputs, int n_outputs,
                          struct mg_recipe **r);
/* Closes the trace, restoring every variable, and compiles. Owned; NULL on failure (also closed).
 */
mg_plan *mg_trace_end(mg_trace *t, mg_tensor *const *outputs, int n_outputs);
/* Closes the trace without making a plan. */
void mg_trace_abandon(mg_trace *t);

#endif
