/* Communicators among cuda devices. */
#ifndef MG_DEVICE_CUDA_COMM_H
#define MG_DEVICE_CUDA_COMM_H

#include "device/device.h"

/* See mg_device_api.connect: by NCCL; without it devices on one GPU, or on GPUs that read each
 * other's memory; NULL without an error if they do not. */
mg_comm *mg_cuda_connect(const mg_device_team *team);

#endif
