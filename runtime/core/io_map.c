/* Files mapped into memory. */
#include "core/io_file.h"
#include <sys/mman.h>

mg_status mg_io_map(mg_file *f, size_t bytes, const void **data) {
    *data = NULL;
    if (bytes == 0) return MG_OK;
    void *mapped =
        mg_io_fault(NULL) ? MAP_FAILED : mmap(NULL, bytes, PROT_READ, MAP_SHARED, f->fd, 0);
    if (mapped == MAP_FAILED) return mg_io_fail_call("map", f->path);
    *data = mapped;
    return MG_OK;
}

void mg_io_unmap(const void *data, size_t bytes) {
    if (data) munmap((void *)data, bytes);
}
