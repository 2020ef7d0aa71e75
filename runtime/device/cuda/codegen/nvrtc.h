/* NVRTC, the compiler of CUDA C as a library: generated sources become images of modules. */
#ifndef MG_DEVICE_CUDA_CODEGEN_NVRTC_H
#define MG_DEVICE_CUDA_CODEGEN_NVRTC_H

#include "core/status.h"
#include "core/string_buffer.h"
#include <stddef.h>

/* MG_UNSUPPORTED if the library is missing. `version`: "13.0". */
mg_status mg_nvrtc_open(char version[16]);

/* The image, from mg_alloc, of a source for GPUs of this compute capability: machine code, or, for
 * a GPU newer than the library, what its driver compiles. The source may include the headers of
 * kernels/. MG_INTERNAL with the compiler's words and the kernel's name if it is wrong. */
mg_status mg_nvrtc_compile(const char *name, const char *source, int major, int minor, void **image,
                           size_t *bytes);

/* Everything that decides what that gives, as one text: the source and its headers, the compiler's
 * version and options. On failure nothing is to be freed. */
mg_status mg_nvrtc_key(mg_string_buffer *key, const char *name, const char *source, int major,
                       int minor);

#endif
