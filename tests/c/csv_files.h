/* What the tests of CSV files share: the usual format, and tables over the two files. */
#ifndef TESTS_C_CSV_FILES_H
#define TESTS_C_CSV_FILES_H

#include "data/sources/csv.h"
#include "two_files.h"
#include <string.h>

static const mg_csv_format RFC = {.delimiter = ',', .quote = '"'};
static const char *const NO_VALUE[] = {"", "NA"};

static inline void write_text(const char *text) {
    write_to(path, text, strlen(text));
}

static const char *const one_path[] = {path}, *const two_paths[] = {path, other};

static inline mg_csv_table table_of(int n_paths) {
    return (mg_csv_table){.format = RFC,
                          .paths = n_paths == 1 ? one_path : two_paths,
                          .n_paths = n_paths,
                          .no_value = NO_VALUE,
                          .n_no_value = 2};
}

#endif
