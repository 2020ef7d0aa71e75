/* What other kernels ask about the upcast, which runs a step on copies in a wider dtype. */
#ifndef MG_DEVICE_CPU_UPCAST_H
#define MG_DEVICE_CPU_UPCAST_H

#include "device/cpu/cpu.h"

/* Whether a kernel of the step's op would accept the upcast step. */
bool mg_cpu_upcast_suits(const mg_kernel_plan *plan, const mg_kernel *kernel);

/* Converts what lies at `own`, the elements of a port, to dtype `to` at `copy`; or back, if the
 * elements are halves and the copy has floats. Uses all threads. */
void mg_cpu_convert_port(const mg_port *port, mg_dtype to, void *own, void *copy, bool back);

#endif
