/* Fuzzer of CSV files: any bytes must either become a source, whose rows can be read, or be refused
 * with an error, without leaking memory; the sanitizers find everything else. The first byte
 * chooses the format. The rest goes through a file in memory, since the reader takes a path. Run by
 * `make fuzz`. */
#define _GNU_SOURCE
#include "core/alloc.h"
#include "data/sources/csv.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include "../c/free_cells.h"

enum { MOST_FIELDS = 1 };

static const char *const NO_VALUE[] = {"", "NA"};
static const char *const NAMES[] = {"a", "b"};

/* Reads the first and last row, and frees the source. */
static void read_and_free(mg_source *s) {
    const int64_t rows[] = {0, s->n_rows - 1};
    for (int i = 0; i < 2; i++) {
        double room[MOST_FIELDS][64];
        mg_cell cell[MOST_FIELDS] = {{.data = NULL}};
        for (int k = 0; k < s->n_fields; k++)
            if (!mg_field_varies(&s->field[k])) cell[k] = (mg_cell){s->field[k].shape, room[k]};
        if (mg_source_read(s, (mg_row_key){0, rows[i]}, cell) != MG_OK) abort();
        free_cells(s, cell);
    }
    mg_source_release(s);
}

static void read_table(mg_csv_table *t, bool given) {
    mg_csv_missing missing[64] = {{.has_number = true, .number = 1, .text = "none"}};
    int columns[64];
    mg_class_names *classes = NULL;
    if (t->n_columns > 64) return;
    for (int i = 0; i < t->n_columns; i++) columns[i] = i;
    const mg_csv_field all[] = {
        {.dtype = MG_F64, .matrix = true, .columns = columns, .n_columns = t->n_columns},
        {.as = MG_CSV_STRINGS, .columns = columns, .n_columns = 1},
        {.as = MG_CSV_CLASSES, .columns = columns, .n_columns = 1},
        {.dtype = MG_I64, .columns = columns, .n_columns = 1},
        {.as = MG_CSV_CLASSES,
         .columns = columns,
         .n_columns = 1,
         .classes = NAMES,
         .n_classes = given ? 2 : 0}};
    for (int i = 0; i < 5; i++) {
        mg_source *s = mg_csv_source(t, missing, &all[i], 1, &classes);
        if (s) read_and_free(s);
        mg_class_names_free(classes);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    char path[64];
    const uint8_t how = n ? bytes[0] : 0;
    const int64_t blocks = mg_alloc_get_stats().live_blocks;
    const int fd = memfd_create("fuzz", 0);
    if (fd < 0 || (n && write(fd, bytes + 1, n - 1) != (ssize_t)n - 1)) abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    const char *paths[] = {path, path};
    mg_csv_table t = {.paths = paths,
                      .n_paths = 1 + (how & 1),
                      .no_value = NO_VALUE,
                      .n_no_value = 2,
                      .header = how >> 1 & 1 ? MG_CSV_NO_HEADER : MG_CSV_FIND_HEADER,
                      .format = {.delimiter = how >> 2 & 1 ? '\t' : ',',
                                 .quote = how >> 3 & 1 ? 0 : '"',
                                 .comment = how >> 4 & 1 ? '#' : 0,
                                 .trim = how >> 5 & 1,
                                 .skip = how >> 6 & 1}};
    if (mg_csv_scan(&t) == MG_OK) read_table(&t, how >> 7 & 1);
    mg_csv_table_clear(&t);
    close(fd);
    if (mg_alloc_get_stats().live_blocks != blocks) abort();
    return 0;
}
