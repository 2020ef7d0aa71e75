/* What is kept between processes, as <folder>/<kind>-<hash of the key>: the folder is MGPU_CACHE,
 * or
 * ~/.cache/mgpulua.
 *
 * An entry carries its whole key and a checksum: what is damaged, cut off or another's is not
 * there, and is replaced. Entries appear whole. A cache that cannot be kept is no error. */
#ifndef MG_DEVICE_CUDA_CODEGEN_CACHE_H
#define MG_DEVICE_CUDA_CODEGEN_CACHE_H

#include <stddef.h>
#include <stdint.h>

/* A block from mg_alloc and its length, or NULL if there is no intact entry. */
void *mg_cuda_cache_read(const char *kind, const char *key, size_t *bytes);
void mg_cuda_cache_write(const char *kind, const char *key, const void *data, size_t bytes);

/* Removes the oldest entries until those left have at most `most` bytes. Writing does so now and
 * then, with 512 MB. */
void mg_cuda_cache_trim(int64_t most);

/* FNV-1a of n bytes, continued from `hash` (0: begins). */
uint64_t mg_cuda_hash(uint64_t hash, const void *data, size_t n);

#endif
