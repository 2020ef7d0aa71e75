/* Peer access: whether a GPU may use the memory of another, and copies between devices. */
#ifndef MG_DEVICE_CUDA_CONTEXT_PEER_H
#define MG_DEVICE_CUDA_CONTEXT_PEER_H

#include "device/device.h"

/* Lets the GPU of `reader` read and write the memory of `owner`; returns whether it can. The first
 * call for two GPUs tries it with a copy, later ones answer from memory. */
bool mg_cuda_enable_peer(mg_device *owner, mg_device *reader);
/* The entry of mg_device_api: enqueues the copy and does not wait. MG_UNSUPPORTED without peer
 * access. */
mg_status mg_cuda_copy_peer(mg_device *to, void *dst, mg_device *from, const void *src,
                            size_t bytes);

#endif
