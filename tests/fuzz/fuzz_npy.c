/* Fuzzer of stores, with NumPy's files as first inputs. Run by `make fuzz`. */
#include "file.h"

#include "io/store.h"

static void read_store(const char *path) {
    mg_store_file *f = mg_store_open(path, true);
    if (f) mg_store_read(f);
    mg_store_close(f);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    return fuzz_file(bytes, n, read_store);
}
