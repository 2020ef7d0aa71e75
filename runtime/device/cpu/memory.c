/* Memory of the cpu devices: freed blocks of 128 KiB and more are kept, up to 256 MiB, and handed
 * out again.
 *
 * Results of several megabytes are allocated and freed in every step, always in the same sizes. The
 * C library would return their pages to the system and get zeroed ones each time, which took longer
 * than the element-wise steps themselves. */
#include "core/alloc.h"
#include "device/cpu/cpu.h"
#include <pthread.h>

#ifdef __SANITIZE_ADDRESS__
enum { LEAST = 128 << 10, KEPT = 0 }; /* nothing is kept: the sanitizer sees use after free */
#else
enum { LEAST = 128 << 10, KEPT = 256 << 20 }; /* bytes: smallest kept block; all kept blocks */
#endif

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static mg_block_cache kept; /* under the lock */

bool mg_cpu_free_kept(void) {
    size_t bytes;
    void *data;
    pthread_mutex_lock(&lock);
    const bool any = kept.n > 0;
    while ((data = mg_block_cache_drop(&kept, &bytes))) mg_free(data);
    pthread_mutex_unlock(&lock);
    return any;
}

/* A kept block that fits, or NULL. */
static void *take_kept(size_t bytes) {
    pthread_mutex_lock(&lock);
    void *data = mg_block_cache_take(&kept, bytes);
    pthread_mutex_unlock(&lock);
    return data;
}

/* If memory is short, the kept blocks are freed before the allocation fails. */
mg_status mg_cpu_alloc(mg_device *d, size_t bytes, void **data) {
    (void)d;
    *data = bytes < LEAST ? NULL : take_kept(bytes);
    if (!*data) *data = mg_alloc(bytes);
    if (!*data && mg_cpu_free_kept()) *data = mg_alloc(bytes);
    return *data ? MG_OK : MG_OOM;
}

/* Keeps the block for reuse. Where the limit would be exceeded, the oldest kept blocks are
 * freed. */
void mg_cpu_free(mg_device *d, void *data, size_t bytes) {
    size_t old_bytes;
    void *old;
    (void)d;
    if (bytes < LEAST || bytes > KEPT) {
        mg_free(data);
        return;
    }
    pthread_mutex_lock(&lock);
    while ((old = mg_block_cache_excess(&kept, bytes, KEPT, &old_bytes))) mg_free(old);
    mg_block_cache_add(&kept, data, bytes);
    pthread_mutex_unlock(&lock);
}
