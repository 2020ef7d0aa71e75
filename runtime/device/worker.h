/* Workers: one thread per device, for plans on several devices.
 *
 * A device's programs are compiled and run on its own thread, because libraries keep state per
 * thread. The thread is made for the first job, waits between jobs, and handles no signals. */
#ifndef MG_DEVICE_WORKER_H
#define MG_DEVICE_WORKER_H

#include "core/status.h"
#include <stdbool.h>

typedef struct mg_worker mg_worker;

struct mg_device;
typedef mg_status (*mg_job)(void *context, int i);

/* Calls fn(context, i) on the worker of each of n devices at the same time, and returns when all
 * have returned. A job that mg_worker_begin started on one of the devices runs to its end first,
 * and its outcome is kept for mg_worker_end. Fills in statuses[i] and messages[i]: NULL on success,
 * else for the caller to free. A job must not start jobs. MG_OOM if a thread cannot be made: then
 * no fn has been called.
 *
 * This is also the watchdog. Once the first job has returned, the others have `deadline` seconds
 * and a grace period (MGPU_GRACE, 10 seconds) to return; only the grace period if the first has
 * failed with MG_COMM, because then it has waited for them already. A device whose job has not
 * returned by then is marked lost (MG_DEVICE). Its job may still continue later, so all that it
 * uses must stay valid. */
mg_status mg_workers_run(struct mg_device *const *devices, int n, mg_job fn, void *context,
                         double deadline, mg_status *statuses, char **messages);
/* Starts one job on the worker of one device and returns at once. A device has one such job at a
 * time: until mg_worker_end has taken its outcome, another is refused with MG_USAGE. */
mg_status mg_worker_begin(struct mg_device *d, mg_job fn, void *context, int i);
/* Whether mg_worker_end would not have to wait. */
bool mg_worker_done(struct mg_device *d);
/* Waits for the job of mg_worker_begin and returns its status. *message: NULL on success, else for
 * the caller to free. */
mg_status mg_worker_end(struct mg_device *d, char **message);
/* Whether the job of mg_workers_run in which the device was lost has returned by now. */
bool mg_worker_came_back(struct mg_device *d);
/* Drops the outcome of that job. */
void mg_worker_forget(struct mg_device *d);
/* Whether the calling thread is a worker. */
bool mg_worker_is_own(void);
/* Ends all workers, after their begun jobs have returned. Workers of lost devices may still be in a
 * job: those are left running, and their devices stay allocated. */
void mg_workers_close(void);

#endif
