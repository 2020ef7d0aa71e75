/* Fixture: a temporary folder with a file of cached rows, and the sources that are kept there. */
#ifndef TESTS_C_CACHED_ROWS_H
#define TESTS_C_CACHED_ROWS_H

#include "core/io.h"
#include "mixed_source.h"

static char folder[] = "/tmp/mgpu-cached-XXXXXX", path[64];

static inline int make_folder(void **state) {
    (void)state;
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/rows", folder);
    return 0;
}

/* Also fails if a file, a lock or a temporary file is left. */
static inline int remove_folder(void **state) {
    return nothing_is_left(state) || mg_io_open_count() != 0 || rmdir(folder) != 0;
}

static inline int remove_file(void **state) {
    (void)state;
    unlink(path);
    return 0;
}

/* Takes the reference to the source. */
static inline mg_source *cached(mg_source *inner, const char *file) {
    mg_source *s = file ? mg_cache_file_source(inner, file) : mg_cached_source(inner);
    mg_source_release(inner);
    assert_non_null(s);
    return s;
}

/* Rows of a fixed size. */
static inline mg_source *column(int64_t rows) {
    mg_tensor *t[] = {numbers(MG_F64, rows), numbers(MG_I32, rows)};
    mg_source *s = mg_tensors_source(t, 2);
    mg_tensor_release(t[0]), mg_tensor_release(t[1]);
    return s;
}

#define TEST(name) cmocka_unit_test_teardown(name, remove_file)

#endif
