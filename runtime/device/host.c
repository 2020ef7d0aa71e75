/* Device functions for kinds whose memory is the host's: all but compile and run. */
#include "device/host.h"
#include "core/alloc.h"
#include "core/threads.h"
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Such devices are threads of the same machine, so any number of them may be named. */
int mg_host_count(void) {
    return MG_MAX_DEVICES;
}

/* Every ordinal describes the whole machine, because each plan decides how the machine is shared.
 * The cores are counted once, because counting reads about ten files, and loading a model describes
 * its device for each tensor. */
mg_status mg_host_describe(int ordinal, mg_device_info *info) {
    static atomic_int cores;
    (void)ordinal;
    if (!atomic_load(&cores)) atomic_store(&cores, mg_core_count());
    snprintf(info->text, sizeof info->text, "%d cores", atomic_load(&cores));
    info->memory_bytes = (int64_t)sysconf(_SC_PHYS_PAGES) * (int64_t)sysconf(_SC_PAGESIZE);
    return MG_OK;
}

mg_status mg_host_alloc(mg_device *d, size_t bytes, void **data) {
    (void)d;
    *data = mg_alloc(bytes);
    return *data ? MG_OK : MG_OOM;
}

void mg_host_free(mg_device *d, void *data, size_t bytes) {
    (void)d, (void)bytes;
    mg_free(data);
}

mg_status mg_host_copy(mg_device *d, void *dst, const void *src, size_t bytes) {
    (void)d;
    memcpy(dst, src, bytes);
    return MG_OK;
}

/* Programs have finished when run returns. */
mg_status mg_host_sync(mg_device *d) {
    (void)d;
    return MG_OK;
}
