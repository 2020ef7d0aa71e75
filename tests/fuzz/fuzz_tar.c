/* Fuzzer of tar archives (io/tar) and CIFAR's files in them (data/cifar). Run by `make fuzz`. */
#include "file.h"

#include "data/cifar.h"

static void read_images(const char *path) {
    static const mg_cifar_format format = {.labels = 1, .classes = {10}};
    static const char *const names[] = {"a", "b"};
    mg_cifar c = {0};
    (void)mg_cifar_read_archive(&c, &format, path, names, 2);
    mg_cifar_free(&c);
    (void)mg_cifar_read(&c, &format, path);
    mg_cifar_free(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    return fuzz_file(bytes, n, read_images);
}
