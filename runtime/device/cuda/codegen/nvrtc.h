/* NVRTC, the CUDA C compiler as a library: it turns generated sources into machine code. */
#ifndef MG_DEVICE_CUDA_CODEGEN_NVRTC_H
#define MG_DEVICE_CUDA_CODEGEN_NVRTC_H

#include "core/status.h"
#include "core/string_buffer.h"
#include <stddef.h>

/* Opens the library; `version` becomes a text such as "13.0". MG_UNSUPPORTED if it is missing. */
mg_status mg_nvrtc_open(char version[16]);

/* *image: the compiled source, a block from mg_alloc, for GPUs of compute capability major.minor.
 * For a GPU newer than the library it is PTX, which the driver compiles at loading. The source may
 * include the headers of kernels/. MG_INTERNAL, with the kernel's name and the compiler's messages,
 * if the source is wrong. */
mg_status mg_nvrtc_compile(const char *name, const char *source, int major, int minor, void **image,
                           size_t *bytes);

/* The cache key of that: a text of everything that decides the result, which is the source, its
 * headers, the compiler's version and its options. After an error there is nothing to free. */
mg_status mg_nvrtc_key(mg_string_buffer *key, const char *name, const char *source, int major,
                       int minor);

#endif
