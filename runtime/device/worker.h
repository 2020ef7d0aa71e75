/* Workers: one thread per device, for plans on several devices and for long or submitted runs.
 *
 * A device's programs are compiled and run on its own thread, because libraries keep state per
 * thread. The thread is made for the first job, waits between jobs, and handles no signals: the
 * caller, who waits, does.
 *
 * Every wait ends. The jobs return; or the caller is interrupted and abandons a job that does not
 * stop at once; or the watchdog finds that a device does not answer, marks it lost and abandons its
 * job. An abandoned job may continue, so everything that it uses must stay valid until it has
 * returned. */
#ifndef MG_DEVICE_WORKER_H
#define MG_DEVICE_WORKER_H

#include "core/status.h"
#include <stdatomic.h>
#include <stdbool.h>

typedef struct mg_worker mg_worker;

struct mg_device;
typedef mg_status (*mg_job)(void *context, int i);

/* Calls fn(context, i) on the worker of each of n devices at the same time, and returns when all
 * have returned. Jobs that were begun or abandoned on these devices run to their end first; the
 * outcome of a begun one is kept for mg_worker_end. Fills in statuses[i] and messages[i] (NULL on
 * success, else freed by the caller). A job must not start jobs. If mg_workers_run itself fails, no
 * fn was called: MG_OOM if a thread cannot be made, else as below.
 *
 * Interrupts: with `stop`, an interrupt sets *stop, which the jobs poll. A job that has not
 * returned soon after is abandoned, with MG_INTERRUPTED. If `stop` is NULL, the jobs must run to
 * their end: the interrupt stays pending and only shortens the watchdog's limit.
 *
 * The watchdog: once the first job has returned, the others have `deadline` seconds and a grace
 * period (MGPU_GRACE, 10 seconds) to return; only the grace period if the first has failed with
 * MG_COMM, because then it has waited for them already. The same limit holds for the time in which
 * none of them starts a step (mg_device.progress). A device whose job has not returned by then is
 * marked lost (MG_DEVICE). */
mg_status mg_workers_run(struct mg_device *const *devices, int n, mg_job fn, void *context,
                         double deadline, atomic_bool *stop, mg_status *statuses, char **messages);

/* Starts one job on the worker of one device and returns at once. A device has one such job at a
 * time: until mg_worker_end has taken its outcome, another is refused with MG_USAGE. */
mg_status mg_worker_begin(struct mg_device *d, mg_job fn, void *context, int i);
/* Whether mg_worker_end would not have to wait: the job has returned, or is overdue. */
bool mg_worker_done(struct mg_device *d, double deadline);
/* Waits for the job of mg_worker_begin and returns its status; an interrupt and the watchdog end
 * the wait as in mg_workers_run. If *stop is set already, the job is abandoned unless it returns
 * soon. *message: NULL on success, else freed by the caller. */
mg_status mg_worker_end(struct mg_device *d, double deadline, atomic_bool *stop, char **message);

/* Whether an abandoned job still runs on d. */
bool mg_worker_has_abandoned(const struct mg_device *d);
/* Waits until no abandoned job runs on d; MG_INTERRUPTED or MG_DEVICE if the wait ends before
 * that. */
mg_status mg_worker_await_return(struct mg_device *d, double deadline);
/* Drops the outcomes of abandoned jobs that have returned. */
void mg_worker_forget(struct mg_device *d);

/* MGPU_GRACE, or 10: the seconds that a device has beyond the deadline. */
double mg_grace(void);
/* Raises what a job on d has failed with (NULL: out of memory), with the device's name in front
 * unless it is there already. */
mg_status mg_device_fail(const struct mg_device *d, mg_status status, const char *message);
/* For waits outside this file: marks a device that did not answer as lost. MG_DEVICE. */
mg_status mg_device_give_up(struct mg_device *d, double waited);

/* Whether the calling thread is a worker. */
bool mg_worker_is_own(void);
/* Called between pieces of work while a plan is made: MG_INTERRUPTED after an interrupt, which is
 * taken. Always MG_OK on a worker, because its caller takes interrupts. */
mg_status mg_worker_poll(void);
/* Ends all workers that have no running job. The others continue, and their devices keep them. */
void mg_workers_close(void);

#endif
