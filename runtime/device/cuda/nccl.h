/* NCCL: the communicator among devices on different GPUs, of one process or several. */
#ifndef MG_DEVICE_CUDA_NCCL_H
#define MG_DEVICE_CUDA_NCCL_H

#include "device/device.h"

/* NULL without an error, in one process: two of the devices share a GPU, or there is no NCCL. */
mg_comm *mg_nccl_connect(const mg_device_team *team);
/* See mg_device_api.make_id. */
mg_status mg_nccl_make_id(mg_comm_id *id);

#endif
