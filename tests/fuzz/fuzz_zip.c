/* Fuzzer of the zip reader. Run by `make fuzz`. */
#include "file.h"

#include "io/zip.h"

/* Reads every entry to its end, where the checksum is compared. */
static void read_entries(mg_zip *z) {
    size_t n, got;
    char chunk[4096];
    const mg_zip_entry *e = mg_zip_entries(z, &n);
    for (size_t i = 0; i < n; i++) {
        if (mg_zip_find(z, e[i].name) != &e[i]) abort();
        int64_t total = 0;
        mg_status status = mg_zip_start(z, &e[i]);
        for (got = 1; status == MG_OK && got; total += (int64_t)got)
            status = mg_zip_read(z, chunk, sizeof chunk, &got);
        if (status == MG_OK && total != e[i].size) abort();
    }
}

static void read_archive(const char *path) {
    mg_zip *z = mg_zip_open(path);
    if (z) read_entries(z);
    mg_zip_close(z);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    return fuzz_file(bytes, n, read_archive);
}
