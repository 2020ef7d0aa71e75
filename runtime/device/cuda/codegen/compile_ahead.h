/* Compiling generated kernels in parallel.
 *
 * An image is the machine code of one kernel. A program requests its images one by one while its
 * steps are prepared, and needs them only when it is complete, so all of them are compiled then, by
 * several threads. Devices and programs of the process share images with the same source; an image
 * in the disk cache is not compiled at all. */
#ifndef MG_DEVICE_CUDA_CODEGEN_COMPILE_AHEAD_H
#define MG_DEVICE_CUDA_CODEGEN_COMPILE_AHEAD_H

#include "core/status.h"

typedef struct mg_cuda_image mg_cuda_image;

/* *image: that of kernel `name` of a source, for GPUs of compute capability major.minor, perhaps
 * not compiled yet. The caller holds a reference until it drops it. MG_UNSUPPORTED without NVRTC.
 */
mg_status mg_cuda_image_want(const char *name, const char *source, int major, int minor,
                             mg_cuda_image **image);
void mg_cuda_image_drop(mg_cuda_image *image); /* NULL: nothing happens */

/* Compiles those of the n images that are not compiled yet, with at most `threads` threads, and
 * waits for all of them. The error is that of the first image that failed, with its kernel's name.
 */
mg_status mg_cuda_images_make(mg_cuda_image *const *images, int n, int threads);

/* The machine code of a compiled image, for cuModuleLoadData. */
const void *mg_cuda_image_data(const mg_cuda_image *image);
const char *mg_cuda_image_name(const mg_cuda_image *image);

/* Replaces an image from the disk cache that the driver refuses to load by one compiled now. One
 * that this process compiled stays. */
mg_status mg_cuda_image_again(mg_cuda_image **image);

#endif
