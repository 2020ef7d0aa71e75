/* Guards of devices that work asynchronously: a step's guards are answered while the next step is
 * already under way, so the host never waits for the device between two steps.
 *
 * The plan of such a step computes a *verdict*: 0, or the number of the first guard that failed.
 * Its new values are "the new one where all guards hold, else the old one", so a step whose guard
 * fails changes nothing although its commit phase has run. Nor do the steps after it: a flag in the
 * device's memory, itself a variable of every such plan, becomes false with the first failure and
 * stays so until the host has reported it. The host learns of the failure after it has started the
 * next plan, or when a value is read; the error is raised there, and variables and random state are
 * as they were before the step that failed.
 *
 * Called by trace.c (making a plan), run.c (running it), plan.c (freeing it) and eval.c (reading);
 * calls no other file of the plan. */
#ifndef MG_GRAPH_ASYNC_GUARDS_H
#define MG_GRAPH_ASYNC_GUARDS_H

#include "core/rng.h"
#include "graph/graph.h"

/* ---- making such a plan ---- */

/* *flag: the device's "no guard has failed" variable (borrowed), or NULL if so many guards on this
 * device must be checked before the step ends. */
mg_status mg_async_guards_prepare(mg_device *d, int n_guards, mg_variable **flag);
/* In the open trace, which `flag` has entered too: the traced value of each variable becomes "the
 * new one where all guards and the flag hold, else the old one". *verdict is owned. */
mg_status mg_async_guards_hold_values(mg_variable *flag, const mg_guard *guards, int n_guards,
                                      mg_variable *const *variables, int n, mg_tensor **verdict);

/* Afterwards, with guards on the values that these variables then have: they join *verdict, behind
 * the n_before guards it is made of, and the flag. */
mg_status mg_async_guards_add_checks(mg_variable *flag, const mg_guard *checks, int n, int n_before,
                                     mg_tensor **verdict);

/* ---- running it ---- */

/* Before a run: if a failure has been reported since, the flag becomes true again. */
mg_status mg_async_guards_reset(mg_device *d);
/* The caller has read a verdict itself, behind the commit phase, and reports the failure. */
void mg_async_guards_reported(mg_device *d);
/* Behind a run: starts the readback of its verdict, a byte in device memory. `guards` (borrowed
 * until mg_async_guards_forget) tell code and message of a failure, after which the random state
 * goes back to `before`; n_draws is how far the run has moved it on. MG_READBACKS are under way at
 * most. */
mg_status mg_async_guards_start(mg_device *d, const mg_guard *guards, const void *verdict,
                                mg_rng_state before, uint64_t n_draws);
/* Waits for the readbacks that are under way on d, if any; the error of a guard that failed.
 * MG_INTERRUPTED: they stay under way. */
mg_status mg_async_guards_wait(mg_device *d);
/* The same, for a run that has happened: an interrupt ends the wait, and stays pending. */
mg_status mg_async_guards_wait_or_stop(mg_device *d);
/* Before a run: waits until a readback may be started. */
mg_status mg_async_guards_make_room(mg_device *d);
/* Before `guards` are freed: waits for them, and keeps an error for the next mg_async_guards_wait.
 */
void mg_async_guards_forget(mg_device *d, const mg_guard *guards);

#endif
