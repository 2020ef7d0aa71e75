/* Fuzzer of TFRecord files: any bytes must be read as rows or refused, without leaking memory. The
 * first byte says whether the others are a file, or a message that is put into a record, whose
 * checksums no fuzzer would guess. Run by `make fuzz`. */
#define _GNU_SOURCE
#include "core/alloc.h"
#include "data/sources/tfrecord.h"
#include "io/tfrecord.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "../c/free_cells.h"

enum { FIELDS = 6, SKIP_BAD = 1, MESSAGE = 2 };

static void put(int fd, const void *bytes, size_t n) {
    if (write(fd, bytes, n) != (ssize_t)n) abort();
}

static mg_source *open_source(const char *path, bool skip_bad) {
    static const int32_t minus_one[2] = {-1, -1};
    mg_record_field fields[FIELDS] = {
        {NULL, MG_RECORD_LIST, MG_I64, MG_SHAPE(-1), 0, NULL, 0, 0},
        {NULL, MG_RECORD_LIST, MG_I32, MG_SHAPE(2), 0, NULL, sizeof minus_one, 0},
        {NULL, MG_RECORD_LIST, MG_F32, MG_SHAPE(2, -1), 0, NULL, 0, 0},
        {NULL, MG_RECORD_TEXT, MG_U8, MG_SHAPE(), 0, NULL, 0, 0},
        {NULL, MG_RECORD_RAW, MG_F64, MG_SHAPE(-1, 3), 0, NULL, 0, 0},
        {NULL, MG_RECORD_RAW, MG_BOOL, MG_SHAPE(-1), 0, NULL, 0, 0}};
    const char *const names[FIELDS] = {"i", "n", "f", "b", "r", "b"}, *const paths[] = {path};
    for (int k = 0; k < FIELDS; k++)
        if (!(fields[k].name = mg_strdup(names[k]))) abort();
    if (!(fields[1].fallback = mg_alloc(sizeof minus_one))) abort();
    memcpy(fields[1].fallback, minus_one, sizeof minus_one);
    const mg_tfrecord_spec spec = {
        .paths = paths, .n_paths = 1, .field = fields, .n_fields = FIELDS, .skip_bad = skip_bad};
    return mg_tfrecord_source(&spec);
}

static void read_rows(mg_source *s) {
    for (int64_t row = 0; row < s->n_rows; row++) {
        int32_t fixed[2];
        mg_cell cell[FIELDS] = {[1] = {MG_SHAPE(2), fixed}};
        const mg_status status = mg_source_read(s, (mg_row_key){.row = row}, cell);
        if (status == MG_OK && cell[3].shape.rank != 1) abort();
        free_cells(s, cell);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    char path[64];
    uint8_t head[MG_TFRECORD_HEAD], tail[MG_TFRECORD_TAIL];
    if (!n) return 0;
    const int64_t blocks = mg_alloc_get_stats().live_blocks;
    const int fd = memfd_create("fuzz", 0);
    if (fd < 0) abort();
    mg_tfrecord_frame(bytes + 1, n - 1, head, tail);
    if (bytes[0] & MESSAGE) put(fd, head, sizeof head);
    put(fd, bytes + 1, n - 1);
    if (bytes[0] & MESSAGE) put(fd, tail, sizeof tail);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    mg_source *s = open_source(path, bytes[0] & SKIP_BAD);
    if (s) read_rows(s);
    mg_source_release(s);
    close(fd);
    if (mg_alloc_get_stats().live_blocks != blocks) abort();
    return 0;
}
