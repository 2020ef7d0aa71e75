/* Generated kernels: their source (source.c), its compilation (nvrtc.c, ahead of need in
 * compile_ahead.c), and the cache of the results on disk (cache.c). */
#ifndef MG_DEVICE_CUDA_CODEGEN_CODEGEN_H
#define MG_DEVICE_CUDA_CODEGEN_CODEGEN_H

#include "core/status.h"
#include "core/string_buffer.h"
#include "ops/fused_expr.h"
#include <stddef.h>
#include <stdint.h>

/* ---- source.c: the source of a fused group's kernel ----
 *
 * Sizes, strides and immediates are parameters of the kernel and not part of its source, so that a
 * script needs few kernels. The generated functions are put into the frame of kernels/fused.h. */

/* Threads of a block; and blocks of a kernel with sums that a multiprocessor runs at once. */
enum { MG_FUSED_THREADS = 256, MG_FUSED_FULL = 4 };

/* How an input is indexed as the kernel walks over the outputs. */
enum mg_way {
    MG_WAY_WHOLE,  /* as the outputs: element by element */
    MG_WAY_ONE,    /* a single element */
    MG_WAY_ALONG,  /* by strides, contiguous along the last axis */
    MG_WAY_ACROSS, /* by strides, broadcast along the last axis */
};

/* A max pool in a group: see kernels/fused_pool.h. */
typedef struct mg_fused_pool {
    int spread; /* 1 + the index of a result that becomes the pool's gradient: then the group has
                   one more input, the image; 0: none */
    int pooled; /* 1 + the index of the input that is the image in place of its pool; 0: none */
    int keeps;  /* with `pooled`: the pooled image is one more result */
    int h, w, c, oh, ow, rows, columns, down, across;
} mg_fused_pool;

typedef struct mg_fused_form {
    int rank;        /* of the iteration space; 0: flat, every tensor is walked as one run */
    int vector;      /* elements that a thread loads and stores at once */
    int tensors;     /* how many tensors of each input one launch may take (multi-tensor updates) */
    int summed;      /* 1 + the index of the result whose columns are also summed; 0: none */
    bool wide_index; /* positions need 64 bits */
    uint8_t way[MG_FUSE_MAX_INPUTS]; /* enum mg_way */
    uint8_t out_dtype[MG_FUSE_MAX_OUTPUTS];
    mg_fused_pool pool;
} mg_fused_form;

/* Appends the source of the group; its kernel is called "fused". */
void mg_fused_source(mg_string_buffer *t, const mg_fused *e, const mg_fused_form *form);

/* Appends the function `finish` of kernels/reduce.h: a group of one input and one output. */
void mg_fused_finish_source(mg_string_buffer *t, const mg_fused *e);

/* The name of a dtype in kernels/elements.h: "f32", or "bool8", as C has a type bool. */
const char *mg_element_name(mg_dtype t);

/* ---- nvrtc.c ----
 *
 * NVRTC, the CUDA C compiler as a library: it turns generated sources into machine code. */

/* Opens the library; `version` becomes a text such as "13.0". MG_UNSUPPORTED if it is missing. */
mg_status mg_nvrtc_open(char version[16]);

/* *image: the compiled source, a block from mg_alloc, for GPUs of compute capability major.minor.
 * For a GPU newer than the library it is PTX, which the driver compiles at loading. The source may
 * include the headers of kernels/. MG_INTERNAL, with the kernel's name and the compiler's messages,
 * if the source is wrong. */
mg_status mg_nvrtc_compile(const char *name, const char *source, int major, int minor, void **image,
                           size_t *bytes);

/* The cache key of a compilation: a text of everything that determines the result: the source, its
 * headers, the compiler's version and its options. After an error there is nothing to free. */
mg_status mg_nvrtc_key(mg_string_buffer *key, const char *name, const char *source, int major,
                       int minor);

/* ---- compile_ahead.c: compiling generated kernels in parallel ----
 *
 * An image is the machine code of one kernel. A program requests its images one by one while its
 * steps are prepared, and needs them only when it is complete, so all of them are compiled then, by
 * several threads. Devices and programs of the process share images with the same source; an image
 * in the disk cache is not compiled at all. */

typedef struct mg_cuda_image mg_cuda_image;

/* *image: the image of kernel `name` of a source, for GPUs of compute capability major.minor,
 * possibly not compiled yet. The caller holds a reference until mg_cuda_image_drop. MG_UNSUPPORTED
 * without NVRTC. */
mg_status mg_cuda_image_want(const char *name, const char *source, int major, int minor,
                             mg_cuda_image **image);
void mg_cuda_image_drop(mg_cuda_image *image); /* NULL: nothing happens */

/* Compiles the images that are not compiled yet, with at most `threads` threads, and waits for all
 * of them. The error is that of the first image that failed, with its kernel's name. */
mg_status mg_cuda_images_make(mg_cuda_image *const *images, int n, int threads);

/* The machine code of a compiled image, for cuModuleLoadData. */
const void *mg_cuda_image_data(const mg_cuda_image *image);
const char *mg_cuda_image_name(const mg_cuda_image *image);

/* Replaces an image from the disk cache that the driver refuses to load by a newly compiled one.
 * Does nothing for an image that this process has compiled. */
mg_status mg_cuda_image_again(mg_cuda_image **image);

/* ---- cache.c: compiled kernels and tuned choices, kept on disk between processes ----
 *
 * An entry is a file <folder>/<kind>-<hash of the key>; the folder is MGPU_CACHE, or else
 * ~/.cache/mgpulua. It carries its whole key and a checksum, so an entry that is damaged, cut off,
 * or another key's with the same hash counts as missing and is replaced. Entries are written to a
 * temporary file and renamed, so that no reader sees half of one. Failing to write is no error. */

/* The entry's data, a block from mg_alloc, and its length; NULL if there is no intact entry. */
void *mg_cuda_cache_read(const char *kind, const char *key, size_t *bytes);
void mg_cuda_cache_write(const char *kind, const char *key, const void *data, size_t bytes);

/* Removes the oldest entries until the rest have at most `most` bytes. Called with 512 MB after
 * every 256th write. */
void mg_cuda_cache_trim(int64_t most);

/* The FNV-1a hash of n bytes, continuing from `hash` (0 begins a new one). */
uint64_t mg_cuda_hash(uint64_t hash, const void *data, size_t n);

#endif
