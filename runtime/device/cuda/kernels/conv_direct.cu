/* Convolutions of images with few channels: a library's kernels, made for sums over many channels,
 * mostly wait for memory there. A block keeps the kernels and the patch of the image that lies
 * under its tile of results in shared memory, so that a thread makes its results without bounds. */
#include "device/cuda/kernels/conv_direct_params.h"
#include "device/cuda/kernels/kernel.h"

#define BODY "device/cuda/kernels/conv_direct_body.h"
#include "device/cuda/kernels/each_float.h"
