/* Fuzzer of the reader of ONNX models: any bytes must be read or refused, without leaking memory.
 * The bytes go through a file in memory. Run by `make fuzz`. */
#define _GNU_SOURCE
#include "core/alloc.h"
#include "device/device.h"
#include "io/store.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    char path[64];
    mg_device_set_default(mg_device_find("ref:0"));
    const int64_t blocks = mg_alloc_get_stats().live_blocks;
    const int fd = memfd_create("fuzz", 0);
    if (fd < 0 || write(fd, bytes, n) != (ssize_t)n) abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    mg_store_file *f = mg_store_open_onnx(path);
    if (f) mg_store_read(f);
    mg_store_close(f);
    close(fd);
    if (mg_alloc_get_stats().live_blocks != blocks) abort();
    return 0;
}
