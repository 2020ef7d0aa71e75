/* Communicators among cuda devices: by NCCL, or by reading each other's memory. */
#ifndef MG_DEVICE_CUDA_COMM_COMM_H
#define MG_DEVICE_CUDA_COMM_COMM_H

#include "device/device.h"

/* The entry `connect` of mg_device_api: NCCL's communicator if the devices are on different GPUs
 * and NCCL is there; else one among devices on one GPU, or on GPUs with peer access. NULL without
 * an error if neither is possible. */
mg_comm *mg_cuda_connect(const mg_device_team *team);

/* NCCL's communicator, for devices on different GPUs, of one process or several. NULL without an
 * error, within one process, if two devices share a GPU or NCCL is missing. */
mg_comm *mg_nccl_connect(const mg_device_team *team);
/* The entry `make_id` of mg_device_api. */
mg_status mg_nccl_make_id(mg_comm_id *id);

#endif
