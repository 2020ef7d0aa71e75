/* Convolutions with 8-bit integers. */
#ifndef MG_DEVICE_CPU_INT8_INT8_H
#define MG_DEVICE_CPU_INT8_INT8_H

#include "device/cpu/cpu.h"

extern const mg_kernel mg_cpu_conv2d_int8;

#endif
