/* Ids of any integer dtype. */
#ifndef MG_DEVICE_CUDA_IDS_H
#define MG_DEVICE_CUDA_IDS_H

#include "device/cuda/kernels/kernel.h"

DEVICE int64_t mg_id(const void *ids, int bytes, int64_t i) {
    if (bytes == 4) return ((const int32_t *)ids)[i];
    if (bytes == 8) return ((const int64_t *)ids)[i];
    return ((const uint8_t *)ids)[i];
}

#endif
