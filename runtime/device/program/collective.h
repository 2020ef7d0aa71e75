/* Collectives in programs: calls that go to the communicator of the run instead of to a kernel of
 * the device. */
#ifndef MG_DEVICE_PROGRAM_COLLECTIVE_H
#define MG_DEVICE_PROGRAM_COLLECTIVE_H

#include "device/program/program.h"

/* Stands for the kernel in the call of a collective: it is only compared with, and has no
 * functions. */
extern const mg_kernel mg_collective_kernel;
bool mg_is_collective(const mg_step *s);
/* The communicator that a collective step goes over: the stage's, or for transfers, which go from
 * stage to stage, the world's. NULL: the plan has one device. */
mg_comm *mg_collective_comm(const mg_step *s, const mg_run *run);
/* Runs one call, or the n calls of a bucket, over the run's communicator; without one the operands
 * are copied. Operands are row-major. */
mg_status mg_collective_run(const mg_kernel_set *set, const mg_call *calls, int n,
                            const mg_run *run);

#endif
