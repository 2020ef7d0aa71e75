/* What the fuzzers of files share: any bytes must be read or refused, without leaking memory; the
 * sanitizers find everything else. Readers take a path, so the bytes go through a file in memory.
 * To be included before all other headers. */
#ifndef TESTS_FUZZ_FILE_H
#define TESTS_FUZZ_FILE_H

#define _GNU_SOURCE
#include "core/alloc.h"
#include "device/device.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static inline int fuzz_file(const uint8_t *bytes, size_t n, void (*read_file)(const char *path)) {
    char path[64];
    mg_device_set_default(mg_device_find("ref:0"));
    const int64_t blocks = mg_alloc_get_stats().live_blocks;
    const int fd = memfd_create("fuzz", 0);
    if (fd < 0 || (n && write(fd, bytes, n) != (ssize_t)n)) abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    read_file(path);
    close(fd);
    if (mg_alloc_get_stats().live_blocks != blocks) abort();
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

#endif
