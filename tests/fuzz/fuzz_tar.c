/* Fuzzer of tar archives (io/tar) and CIFAR's files in them (data/cifar): any bytes must either be
 * read or be refused with an error, without leaking memory; the sanitizers find everything else.
 * Run by `make fuzz`. */
#define _GNU_SOURCE
#include "core/alloc.h"
#include "data/cifar.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    static const mg_cifar_format format = {.labels = 1, .classes = {10}};
    static const char *const names[] = {"a", "b"};
    char path[64];
    const int64_t blocks = mg_alloc_get_stats().live_blocks;
    const int fd = memfd_create("fuzz", 0);
    if (fd < 0 || write(fd, bytes, n) != (ssize_t)n) abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    mg_cifar c = {0};
    (void)mg_cifar_read_archive(&c, &format, path, names, 2);
    mg_cifar_free(&c);
    (void)mg_cifar_read(&c, &format, path);
    mg_cifar_free(&c);
    close(fd);
    if (mg_alloc_get_stats().live_blocks != blocks) abort();
    return 0;
}
