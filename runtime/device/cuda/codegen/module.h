/* The generated kernels that a device has loaded.
 *
 * A kernel is requested while a program's steps are prepared. When the program is complete, all
 * requested kernels are compiled and loaded. Only one thread at a time does this for a device: the
 * functions below are called with the device's mutex `compiling` held. */
#ifndef MG_DEVICE_CUDA_CODEGEN_MODULE_H
#define MG_DEVICE_CUDA_CODEGEN_MODULE_H

#include "device/cuda/context/context.h"

struct mg_cuda_image;

typedef struct mg_cuda_module {
    struct mg_cuda_module *next;
    struct mg_cuda_image *image; /* a reference */
    CUmodule module;
    CUfunction function; /* NULL while only requested: until mg_cuda_modules_finish */
} mg_cuda_module;

/* Requests the kernel `name` of a source text, which may include kernels/kernel.h. The module
 * belongs to the device. A kernel that was requested before is not compiled again. */
mg_status mg_cuda_module_want(mg_device *d, const char *name, const char *source,
                              const mg_cuda_module **module);

/* Compiles and loads all that was requested; after an error the requests are forgotten. */
mg_status mg_cuda_modules_finish(mg_device *d);
void mg_cuda_modules_forget(mg_cuda *s); /* drops the requests */

/* Unloads all modules. The device's context must be current. */
void mg_cuda_modules_drop(mg_cuda *s);

#endif
