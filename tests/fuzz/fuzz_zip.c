/* Fuzzer of the zip reader: any bytes must be read or refused, without leaking memory. The bytes go
 * through a file in memory. Run by `make fuzz`. */
#define _GNU_SOURCE
#include "core/alloc.h"
#include "io/zip.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

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

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    char path[64];
    const int64_t blocks = mg_alloc_get_stats().live_blocks;
    const int fd = memfd_create("fuzz", 0);
    if (fd < 0 || write(fd, bytes, n) != (ssize_t)n) abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    mg_zip *z = mg_zip_open(path);
    if (z) read_entries(z);
    mg_zip_close(z);
    close(fd);
    if (mg_alloc_get_stats().live_blocks != blocks) abort();
    return 0;
}
