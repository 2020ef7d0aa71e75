/* Workers: one thread for each device of a plan that has several.
 *
 * A device's programs are compiled and run on its own thread, because libraries keep state by
 * thread. The thread is made at the first job, waits between jobs, and takes no signals. */
#ifndef MG_DEVICE_WORKER_H
#define MG_DEVICE_WORKER_H

#include "core/status.h"
#include <stdbool.h>

typedef struct mg_worker mg_worker;

/* fn(context, i) on the worker of each of n devices, side by side; returns when all have returned.
 * statuses[i] and, for those that failed, an owned message each (NULL for success). A job may not
 * start jobs. MG_OOM if a thread cannot be made: then no fn has run.
 *
 * When one has returned, the others have `deadline` seconds, or if that one has waited for them so
 * long already (MG_COMM), none, and a time of grace (MGPU_GRACE, 10 seconds). Whoever has not
 * returned then is lost (MG_DEVICE): its job may go on at any time, with everything that it knows.
 */
typedef mg_status (*mg_job)(void *context, int i);
struct mg_device;
mg_status mg_workers_run(struct mg_device *const *devices, int n, mg_job fn, void *context,
                         double deadline, mg_status *statuses, char **messages);
/* One job on the worker of one device, which goes on while the caller does; the worker is busy
 * until mg_worker_end has taken the outcome. */
mg_status mg_worker_begin(struct mg_device *d, mg_job fn, void *context, int i);
bool mg_worker_done(struct mg_device *d);
mg_status mg_worker_end(struct mg_device *d, char **message);
/* Whether the calling thread is a device's. */
bool mg_worker_is_own(void);
/* Ends all workers; none may be running. Those of lost devices that still do are left alone: their
 * devices keep them. */
void mg_workers_close(void);

#endif
