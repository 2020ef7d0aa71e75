/* Fuzzer of files of cached rows: any bytes must be read or refused, without leaking memory. The
 * hashes are corrected first, so that the code behind their check is reached. Run by `make
 * fuzz`. */
#define _GNU_SOURCE
#include "core/alloc.h"
#include "data/sources/row_file.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

/* The end of the file: n_rows, n_fields, rows_end, table, hash, magic. */
enum { TRAILER = 48, TABLE = 24, HASH = 32, ENTRY = 16 };

/* An int32, float32 numbers and a text in each row, as in tests/c/mixed_source.h. */
static mg_field fields[] = {{.dtype = MG_I32},
                            {.dtype = MG_F32, .shape = {.rank = 1, .dim = {-1}}},
                            {.dtype = MG_U8, .shape = {.rank = 1, .dim = {-1}}, .text = true}};
static const mg_source rows = {.n_fields = 3, .field = fields};

static int64_t number_at(const uint8_t *bytes, size_t at) {
    int64_t number;
    memcpy(&number, bytes + at, sizeof number);
    return number;
}

/* Sets the hash of each row that lies in the file, and the hash of the trailer. */
static void repair_hashes(uint8_t *bytes, size_t n) {
    if (n < TRAILER) return;
    uint8_t *end = bytes + n - TRAILER;
    const uint64_t table = (uint64_t)number_at(end, TABLE), left = n - TRAILER;
    if (table > left) return;
    for (uint64_t at = table; at + 2 * ENTRY <= left; at += ENTRY) {
        const uint64_t from = (uint64_t)number_at(bytes, at),
                       to = (uint64_t)number_at(bytes, at + ENTRY);
        const uint64_t hash = from <= to && to <= table ? XXH3_64bits(bytes + from, to - from) : 0;
        memcpy(bytes + at + 8, &hash, sizeof hash);
    }
    XXH3_state_t state;
    memset(end + HASH, 0, 8);
    XXH3_64bits_reset(&state);
    XXH3_64bits_update(&state, bytes + table, left - table);
    XXH3_64bits_update(&state, end, TRAILER);
    const uint64_t hash = XXH3_64bits_digest(&state);
    memcpy(end + HASH, &hash, sizeof hash);
}

static void read_rows(const char *path, int64_t n_rows) {
    mg_source like = rows;
    like.n_rows = n_rows;
    mg_row_file *f = mg_row_file_open(path, &like);
    for (int64_t row = 0; f && row < n_rows; row++) {
        int32_t number;
        mg_cell cell[3] = {{.data = &number}};
        (void)mg_row_file_read(f, &like, row, cell);
        mg_free(cell[1].data), mg_free(cell[2].data);
    }
    mg_row_file_close(f);
}

int LLVMFuzzerTestOneInput(const uint8_t *given, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *given, size_t n) {
    char path[64];
    const int64_t blocks = mg_alloc_get_stats().live_blocks;
    uint8_t *bytes = malloc(n + 1);
    memcpy(bytes, given, n);
    repair_hashes(bytes, n);
    const int fd = memfd_create("fuzz", 0);
    if (fd < 0 || write(fd, bytes, n) != (ssize_t)n) abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    read_rows(path, n < TRAILER ? 0 : number_at(bytes, n - TRAILER));
    close(fd);
    free(bytes);
    if (mg_alloc_get_stats().live_blocks != blocks) abort();
    return 0;
}
