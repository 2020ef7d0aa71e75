/* One cuda device and another: whose memory a GPU may use, and copies between them. */
#ifndef MG_DEVICE_CUDA_CONTEXT_PEER_H
#define MG_DEVICE_CUDA_CONTEXT_PEER_H

#include "device/device.h"

/* Whether the GPU of `reader` may read and write the memory of `owner`; from here on it does. Tried
 * out at the first asking. */
bool mg_cuda_enable_peer(mg_device *owner, mg_device *reader);
/* The entry of mg_device_api. Enqueued; the host waits for nothing. */
mg_status mg_cuda_copy_peer(mg_device *to, void *dst, mg_device *from, const void *src,
                            size_t bytes);

#endif
