/* The disk cache: compiled kernels and tuned choices, kept between processes.
 *
 * An entry is a file <folder>/<kind>-<hash of the key>; the folder is MGPU_CACHE, or else
 * ~/.cache/mgpulua. It carries its whole key and a checksum, so an entry that is damaged, cut off,
 * or another key's with the same hash counts as missing and is replaced. Entries are written to a
 * temporary file and renamed, so that no reader sees half of one. Failing to write is no error. */
#ifndef MG_DEVICE_CUDA_CODEGEN_CACHE_H
#define MG_DEVICE_CUDA_CODEGEN_CACHE_H

#include <stddef.h>
#include <stdint.h>

/* The entry's data, a block from mg_alloc, and its length; NULL if there is no intact entry. */
void *mg_cuda_cache_read(const char *kind, const char *key, size_t *bytes);
void mg_cuda_cache_write(const char *kind, const char *key, const void *data, size_t bytes);

/* Removes the oldest entries until the rest have at most `most` bytes. Writing calls it now and
 * then, with 512 MB. */
void mg_cuda_cache_trim(int64_t most);

/* The FNV-1a hash of n bytes, continuing from `hash` (0 begins a new one). */
uint64_t mg_cuda_hash(uint64_t hash, const void *data, size_t n);

#endif
