/* Guards of devices that work asynchronously: a step's guards are answered while the next step is
 * already under way, so the host never waits for the device between two steps.
 *
 * The plan of such a step computes a *verdict*: 0, or the number of the first guard that failed.
 * Each new value is "the new one if all guards hold, else the old one", so a step whose guard fails
 * changes nothing although its commit phase has run. The steps after it change nothing either: a
 * flag in the device's memory, itself a variable of every such plan, becomes false with the first
 * failure and stays false until the host has reported it. The host learns of the failure after it
 * has started the next plan, or when a value is read; the error is raised there, and variables and
 * random state are as they were before the step that failed.
 *
 * On several devices each computes the same verdict, of which the host reads that of the first, the
 * *judge*. One device may fail to start its part while the others are at work on theirs: then the
 * communicator is aborted, and what their collectives give is not defined. So each new value is
 * "the new one if all devices agree", and the last collective of the step finds that out: it adds
 * up the devices' *tickets*, the number of a step, which no earlier step has had. Whatever an
 * aborted collective leaves in memory is not this sum, so all devices change their variables or
 * none; a device that fails in the midst of that is left out (commit.c).
 *
 * Called by trace.c (making a plan), run.c (running it), plan.c (freeing it) and eval.c (reading);
 * calls no other file of the plan. */
#ifndef MG_GRAPH_ASYNC_GUARDS_H
#define MG_GRAPH_ASYNC_GUARDS_H

#include "core/rng.h"
#include "graph/graph.h"

/* ---- making such a plan ---- */

/* The verdict of a step whose devices have not agreed. */
enum { MG_NOT_AGREED = 255 };

typedef struct mg_async_state { /* variables of the device, borrowed */
    mg_variable *flag;          /* "no guard has failed"; NULL: the guards must be checked before
                                   the step ends, as of too many */
    mg_variable *ticket;        /* of steps on several devices, else NULL */
} mg_async_state;

/* Of an asynchronous device, the first of those that the plan is on. */
mg_status mg_async_guards_prepare(mg_device *d, bool several, int n_guards, mg_async_state *state);
/* In the open trace, which the variables of `state` have entered too: the traced value of each
 * variable becomes "the new one where all guards and the flag hold and the devices agree, else the
 * old one". *verdict is owned. */
mg_status mg_async_guards_hold_values(const mg_async_state *state, const mg_guard *guards,
                                      int n_guards, mg_variable *const *variables, int n,
                                      mg_tensor **verdict);

/* To be called after it, for guards on the variables' new values (new_values.h): adds them to
 * *verdict, after the n_before guards that it already covers, and to the flag. */
mg_status mg_async_guards_add_checks(mg_variable *flag, const mg_guard *checks, int n, int n_before,
                                     mg_tensor **verdict);

/* ---- running it ---- */

/* Before a run on d that is judged by `judge` (NULL: guards are read before it ends): waits for the
 * pending verdicts that other devices have about d's work. */
mg_status mg_async_guards_enter(mg_device *d, const mg_device *judge);
/* Before a run: if a failure has been reported since, the flag becomes true again. */
mg_status mg_async_guards_reset(mg_device *d);
/* The caller has read a verdict itself, after the commit phase, and reports the failure. */
void mg_async_guards_reported(mg_device *d);
/* The error of MG_NOT_AGREED. */
mg_status mg_async_guards_disagree(void);
/* After a run: starts the readback of its verdict, a byte in device memory. `guards` (borrowed
 * until mg_async_guards_forget) tell code and message of a failure, after which the random state
 * goes back to `before`; n_draws is the number of draws of the run. At most MG_READBACKS readbacks
 * are pending. */
mg_status mg_async_guards_start(mg_device *d, const mg_guard *guards, const void *verdict,
                                mg_rng_state before, uint64_t n_draws);
/* Waits for the pending readbacks on d and on its judge, if any. Fails with the error of a guard
 * that failed. MG_INTERRUPTED: the readbacks stay pending. */
mg_status mg_async_guards_wait(mg_device *d);
/* The same after a run: an interrupt ends the wait and stays pending for the next step. */
mg_status mg_async_guards_wait_or_stop(mg_device *d);
/* Before a run: waits until a readback may be started. */
mg_status mg_async_guards_make_room(mg_device *d);
/* Before `guards` are freed: waits for them, and keeps an error for the next mg_async_guards_wait.
 */
void mg_async_guards_forget(mg_device *d, const mg_guard *guards);

#endif
