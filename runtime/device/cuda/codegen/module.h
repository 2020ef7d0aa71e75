/* The generated kernels that a device keeps.
 *
 * A kernel is wanted while a program's steps are prepared; all that a program wants are compiled
 * and loaded when it is finished. One thread at a time does so for a device: it holds `compiling`.
 */
#ifndef MG_DEVICE_CUDA_CODEGEN_MODULE_H
#define MG_DEVICE_CUDA_CODEGEN_MODULE_H

#include "device/cuda/context/context.h"

struct mg_cuda_image;

typedef struct mg_cuda_module {
    struct mg_cuda_module *next;
    struct mg_cuda_image *image; /* held */
    CUmodule module;
    CUfunction function; /* NULL until the program is finished */
} mg_cuda_module;

/* The kernel `name` of a source text, which may use all of kernels/kernel.h; the device's. Compiled
 * once for the device's architecture, kept in memory and in the disk cache. */
mg_status mg_cuda_module_want(mg_device *d, const char *name, const char *source,
                              const mg_cuda_module **module);

/* Compiles and loads what is wanted, or, with an error, forgets it. */
mg_status mg_cuda_modules_finish(mg_device *d);
void mg_cuda_modules_forget(mg_cuda *s); /* what is wanted */

/* Unloads them all; the device's context is the current one. */
void mg_cuda_modules_drop(mg_cuda *s);

#endif
