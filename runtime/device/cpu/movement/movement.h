/* Ops that place elements elsewhere: walks over shapes (movement.c), and elements picked or added
 * by ids (along_axis.c, scatter.c); tensors of one number and of counted numbers. */
#ifndef MG_DEVICE_CPU_MOVEMENT_MOVEMENT_H
#define MG_DEVICE_CPU_MOVEMENT_MOVEMENT_H

#include "device/cpu/cpu.h"

extern const mg_kernel mg_cpu_permute, mg_cpu_slice, mg_cpu_reverse, mg_cpu_pad, mg_cpu_concat,
    mg_cpu_split, mg_cpu_broadcast_to, mg_cpu_gather, mg_cpu_scatter_add, mg_cpu_scatter_last,
    mg_cpu_take_along_axis, mg_cpu_scatter_along_axis, mg_cpu_linear_scan, mg_cpu_reshape,
    mg_cpu_full, mg_cpu_iota;

#endif
