/* Memory of the cpu devices: large blocks that are freed are kept and given again.
 *
 * Results of several megabytes come and go with every step, in the same sizes. The C library would
 * give their pages back and clear new ones each time, which took longer than element-wise steps
 * themselves. Kept are KEPT bytes at most, the oldest go first; a block is given again for its own
 * size only. */
#include "core/alloc.h"
#include "device/cpu/cpu.h"
#include <pthread.h>
#include <string.h>

#ifdef __SANITIZE_ADDRESS__
enum {
    LEAST = 128 << 10,
    KEPT = 0,
    BLOCKS = 64
}; /* so that it sees what is used after it is freed */
#else
enum { LEAST = 128 << 10, KEPT = 256 << 20, BLOCKS = 64 };
#endif

typedef struct block {
    void *data;
    size_t bytes;
} block;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static block kept[BLOCKS]; /* the oldest first; all below under the lock */
static int n_kept;
static size_t kept_bytes;

static void *take(int i) {
    void *data = kept[i].data;
    kept_bytes -= kept[i].bytes;
    memmove(&kept[i], &kept[i + 1], (size_t)(--n_kept - i) * sizeof *kept);
    return data;
}

static void *take_of_size(size_t bytes) {
    void *data = NULL;
    pthread_mutex_lock(&lock);
    for (int i = n_kept - 1; i >= 0 && !data; i--) /* the newest may still lie in the caches */
        if (kept[i].bytes == bytes) data = take(i);
    pthread_mutex_unlock(&lock);
    return data;
}

bool mg_cpu_free_kept(void) {
    pthread_mutex_lock(&lock);
    const bool any = n_kept > 0;
    while (n_kept) mg_free(take(0));
    pthread_mutex_unlock(&lock);
    return any;
}

void *mg_cpu_alloc(mg_device *d, size_t bytes) {
    (void)d;
    void *data = bytes < LEAST ? NULL : take_of_size(bytes);
    if (!data) data = mg_alloc(bytes);
    return data || !mg_cpu_free_kept() ? data : mg_alloc(bytes);
}

void mg_cpu_free(mg_device *d, void *data, size_t bytes) {
    (void)d;
    if (bytes < LEAST || bytes > KEPT) {
        mg_free(data);
        return;
    }
    pthread_mutex_lock(&lock);
    while (n_kept == BLOCKS || (n_kept && kept_bytes + bytes > KEPT)) mg_free(take(0));
    kept[n_kept++] = (block){data, bytes};
    kept_bytes += bytes;
    pthread_mutex_unlock(&lock);
}
