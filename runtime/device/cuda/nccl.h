/* NCCL: the communicator among devices on different GPUs. */
#ifndef MG_DEVICE_CUDA_NCCL_H
#define MG_DEVICE_CUDA_NCCL_H

#include "device/device.h"

/* NULL without an error if two of the devices share a GPU or there is no NCCL. */
mg_comm *mg_nccl_connect(mg_device *const *devices, int n);

#endif
