/* Fuzzer of the reader of ONNX models. Run by `make fuzz`. */
#include "file.h"

#include "io/store.h"

static void read_model(const char *path) {
    mg_store_file *f = mg_store_open_onnx(path);
    if (f) mg_store_read(f);
    mg_store_close(f);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    return fuzz_file(bytes, n, read_model);
}
