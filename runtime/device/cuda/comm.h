/* The communicator among cuda devices of one process. */
#ifndef MG_DEVICE_CUDA_COMM_H
#define MG_DEVICE_CUDA_COMM_H

#include "device/device.h"

/* See mg_device_api.connect: devices on one GPU, or on GPUs that read each other's memory; NULL
 * without an error if they do not. */
mg_comm *mg_cuda_connect(mg_device *const *devices, int n);

#endif
