/* Collectives in programs: calls that go over the communicator of the run instead of to a kernel of
 * the device. */
#ifndef MG_DEVICE_PROGRAM_COLLECTIVE_H
#define MG_DEVICE_PROGRAM_COLLECTIVE_H

#include "device/program/program.h"

/* What stands for a kernel in a call of a collective; it has no functions. */
extern const mg_kernel mg_collective_kernel;
bool mg_is_collective(const mg_step *s);
/* One call, or those of a bucket, over the run's communicator; without one inputs are copied.
 * Operands are row-major. */
mg_status mg_collective_run(const mg_kernel_set *set, const mg_call *calls, int n,
                            const mg_run *run);

#endif
