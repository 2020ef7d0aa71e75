/* Workers: one thread per device, for plans on several devices and for long or submitted runs.
 *
 * A device's programs are compiled and run on its own thread, because libraries keep state per
 * thread. The thread is made for the first job, waits between jobs, and handles no signals: the
 * caller, who waits, does.
 *
 * Every wait ends. The jobs return; or the caller is interrupted and leaves a job that does not
 * stop at once; or the watchdog finds that a device does not answer, and marks it lost. A job that
 * was left or lost may continue, so all that it uses must stay valid until it has returned. */
#ifndef MG_DEVICE_WORKER_H
#define MG_DEVICE_WORKER_H

#include "core/status.h"
#include <stdatomic.h>
#include <stdbool.h>

typedef struct mg_worker mg_worker;

struct mg_device;
typedef mg_status (*mg_job)(void *context, int i);

/* Calls fn(context, i) on the worker of each of n devices at the same time, and returns when all
 * have returned. Jobs that were begun or left on these devices run to their end first; the outcome
 * of a begun one is kept for mg_worker_end. Fills in statuses[i] and messages[i]: NULL on success,
 * else for the caller to free. A job must not start jobs. If it fails itself, no fn has been
 * called: MG_OOM if a thread cannot be made, else as below.
 *
 * Interrupts: with `stop`, an interrupt sets *stop, which the jobs look at. A job that has not
 * returned soon after is left, with MG_INTERRUPTED. Without it, the jobs must run to their end: the
 * interrupt stays pending, and only makes the watchdog less patient.
 *
 * The watchdog: once the first job has returned, the others have `deadline` seconds and a grace
 * period (MGPU_GRACE, 10 seconds) to return; only the grace period if the first has failed with
 * MG_COMM, because then it has waited for them already. Nor may that much time pass without any of
 * them starting a step (mg_device.progress). A device whose job has not returned by then is marked
 * lost (MG_DEVICE). */
mg_status mg_workers_run(struct mg_device *const *devices, int n, mg_job fn, void *context,
                         double deadline, atomic_bool *stop, mg_status *statuses, char **messages);

/* Starts one job on the worker of one device and returns at once. A device has one such job at a
 * time: until mg_worker_end has taken its outcome, another is refused with MG_USAGE. */
mg_status mg_worker_begin(struct mg_device *d, mg_job fn, void *context, int i);
/* Whether mg_worker_end would not have to wait: the job has returned, or is overdue. */
bool mg_worker_done(struct mg_device *d, double deadline);
/* Waits for the job of mg_worker_begin and returns its status; an interrupt and the watchdog end
 * the wait as in mg_workers_run. If *stop is set already, the job is left unless it returns soon.
 * *message: NULL on success, else for the caller to free. */
mg_status mg_worker_end(struct mg_device *d, double deadline, atomic_bool *stop, char **message);

/* Whether a job that was left or lost is still under way. */
bool mg_worker_is_away(const struct mg_device *d);
/* Waits until no such job is under way; MG_INTERRUPTED or MG_DEVICE if the wait ends before. */
mg_status mg_worker_await_return(struct mg_device *d, double deadline);
/* Drops the outcomes of jobs that were left or lost and have returned. */
void mg_worker_forget(struct mg_device *d);

/* MGPU_GRACE, or 10: the seconds that a device has beyond the deadline. */
double mg_grace(void);
/* Raises what a job on d has failed with (NULL: out of memory), with the device's name in front
 * unless it is there already. */
mg_status mg_device_fail(const struct mg_device *d, mg_status status, const char *message);
/* The watchdog of other waits: marks a device lost that did not come back. MG_DEVICE. */
mg_status mg_device_give_up(struct mg_device *d, double waited);

/* Whether the calling thread is a worker. */
bool mg_worker_is_own(void);
/* Between the pieces of work that makes a plan: MG_INTERRUPTED after an interrupt, which is taken.
 * Always MG_OK on a worker, whose caller takes interrupts. */
mg_status mg_worker_poll(void);
/* Ends all workers that have no job under way. The others are left running, and their devices keep
 * them. */
void mg_workers_close(void);

#endif
