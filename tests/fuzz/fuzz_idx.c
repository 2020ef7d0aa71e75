/* Fuzzer of the IDX reader (MNIST's file format). Run by `make fuzz`. */
#include "file.h"

#include "data/idx.h"

static void read_tensor(const char *path) {
    mg_tensor_release(mg_idx_load(path));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    return fuzz_file(bytes, n, read_tensor);
}
