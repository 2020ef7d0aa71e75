/* Fuzzer of image headers: any bytes must be taken for an image of a possible size or refused,
 * without leaking memory. The bytes go through a file in memory, since the reader takes a path. Run
 * by `make fuzz`. */
#define _GNU_SOURCE
#include "core/alloc.h"
#include "data/image.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    char path[64];
    mg_image image;
    const int64_t blocks = mg_alloc_get_stats().live_blocks;
    const int fd = memfd_create("fuzz", 0);
    if (fd < 0 || (n && write(fd, bytes, n) != (ssize_t)n)) abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    const mg_status status = mg_image_probe(path, &image);
    if (status == MG_OK && (image.height < 1 || image.width < 1 || image.height > MG_IMAGE_SIDE ||
                            image.width > MG_IMAGE_SIDE || image.channels == 2 || image.pixels))
        abort();
    close(fd);
    if (mg_alloc_get_stats().live_blocks != blocks) abort();
    return 0;
}
