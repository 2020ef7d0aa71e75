/* Images of generated kernels: asked for one by one, compiled side by side.
 *
 * An image is asked for while a program's steps are prepared and needed when the program is
 * finished. Who asks for what another holds, for any device of the process, gets the same one; what
 * is on disk is not compiled at all. */
#ifndef MG_DEVICE_CUDA_CODEGEN_COMPILE_AHEAD_H
#define MG_DEVICE_CUDA_CODEGEN_COMPILE_AHEAD_H

#include "core/status.h"

typedef struct mg_cuda_image mg_cuda_image;

/* The image of the kernel `name` of a source for GPUs of this compute capability, held by the
 * caller until dropped; perhaps yet to be compiled. MG_UNSUPPORTED if there is no compiler. */
mg_status mg_cuda_image_want(const char *name, const char *source, int major, int minor,
                             mg_cuda_image **image);
void mg_cuda_image_drop(mg_cuda_image *image); /* NULL is allowed */

/* Compiles those of n images that are not there yet, on at most so many threads, which are gone on
 * return. If there are wrong ones, the first of them says so, with its kernel's name. */
mg_status mg_cuda_images_make(mg_cuda_image *const *images, int n, int threads);

/* Of one that was made: what the driver loads. */
const void *mg_cuda_image_data(const mg_cuda_image *image);
const char *mg_cuda_image_name(const mg_cuda_image *image);

/* In place of one that the driver refuses: compiled now, unless it was by this process. */
mg_status mg_cuda_image_again(mg_cuda_image **image);

#endif
