/* Communicators among cuda devices: by NCCL, or by reading each other's memory. */
#ifndef MG_DEVICE_CUDA_COMM_COMM_H
#define MG_DEVICE_CUDA_COMM_COMM_H

#include "device/device.h"

/* See mg_device_api.connect: by NCCL; without it devices on one GPU, or on GPUs that read each
 * other's memory; NULL without an error if they do not. */
mg_comm *mg_cuda_connect(const mg_device_team *team);

/* NULL without an error, in one process: two of the devices share a GPU, or there is no NCCL. */
mg_comm *mg_nccl_connect(const mg_device_team *team);
/* See mg_device_api.make_id. */
mg_status mg_nccl_make_id(mg_comm_id *id);

#endif
