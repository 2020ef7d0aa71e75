/* Reductions over axes, running sums and sorting along one. channel_view.h cuts a tensor into units
 * that threads share, for batch normalization as well. */
#ifndef MG_DEVICE_CPU_REDUCE_REDUCE_H
#define MG_DEVICE_CPU_REDUCE_REDUCE_H

#include "device/cpu/cpu.h"

extern const mg_kernel mg_cpu_sum, mg_cpu_prod, mg_cpu_max, mg_cpu_min, mg_cpu_any, mg_cpu_all,
    mg_cpu_argmax, mg_cpu_argmin, mg_cpu_all_finite, mg_cpu_cumsum, mg_cpu_argsort;

#endif
