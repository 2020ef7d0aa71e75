/* Fixture: a source of a table and a column, streams of it, and their rows. */
#ifndef TESTS_C_STREAM_ROWS_H
#define TESTS_C_STREAM_ROWS_H

#include "core/alloc.h"
#include "data/sources/sources.h"
#include "data/stream.h"
#include "device/buffer.h"
#include "device/device.h"
#include "stages.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

/* The size of the tensors in the streams below. */
enum { ROWS = 20, COLUMNS = 3 };
enum { MOST_FIELDS = 8 }; /* of the sources of these tests */

/* Row i is {3i + 0.5, 3i + 1.5, 3i + 2.5} in a float64 table, and i in an int32 column. Owned. */
static inline mg_tensor *numbers(mg_dtype dtype, int64_t rows) {
    static int32_t whole[ROWS * COLUMNS];
    static double fraction[ROWS * COLUMNS];
    for (int i = 0; i < ROWS * COLUMNS; i++) whole[i] = i, fraction[i] = i + 0.5;
    /* Both tensors from the same memory in every call. */
    const mg_shape column = MG_SHAPE(rows), table = MG_SHAPE(rows, COLUMNS);
    return mg_tensor_from_host(dtype == MG_I32 ? (void *)whole : fraction, dtype,
                               dtype == MG_I32 ? &column : &table, mg_device_find("ref:0"));
}

/* A source of the table and the column. Owned. */
static inline mg_source *rows_source(void) {
    mg_tensor *t[] = {numbers(MG_F64, ROWS), numbers(MG_I32, ROWS)};
    mg_source *s = mg_tensors_source(t, 2);
    assert_non_null(s);
    /* The source keeps its own references to the tensors. */
    mg_tensor_release(t[0]), mg_tensor_release(t[1]);
    return s;
}

/* What a stream of this source is made from; batches lie on ref:0. */
static inline mg_stream_spec spec_of(mg_source *source, const mg_stage *stages, int n_stages) {
    mg_stream_spec spec = {.source = source, .stages = stages, .n_stages = n_stages, .threads = 1};
    spec.host = mg_device_find("ref:0");
    static mg_device *devices[MOST_FIELDS];
    for (int k = 0; k < MOST_FIELDS; k++) devices[k] = spec.host;
    spec.device = devices;
    return spec;
}

/* A stream over the table and the column. dense: how many batch axes lie in one buffer; depth: how
 * many elements a thread prepares, 0 for no thread. Owned. */
static inline mg_stream *stream_of(const mg_stage *stages, int n_stages, int dense, int64_t depth) {
    mg_stream_spec spec = spec_of(rows_source(), stages, n_stages);
    spec.dense = dense;
    spec.depth = depth;
    mg_stream *s = mg_stream_new(&spec);
    mg_source_release(spec.source); /* the stream keeps its own reference */
    assert_non_null(s);
    return s;
}

/* The row numbers of an element, from its int32 column; asserts that the table has the same rows.
 * Returns how many. */
static inline int rows_of(const mg_element *e, int32_t *rows) {
    int n = 0;
    /* A part is a buffer of each tensor. */
    for (int64_t part = 0; part < e->n_parts; part++) {
        const mg_field_value *table = &e->value[part * 2], *column = table + 1;
        const double *x = table->buffer->data;
        const int32_t *y = column->buffer->data;
        const int64_t count = mg_shape_count(&column->shape);
        assert_int_equal(mg_shape_count(&table->shape), count * COLUMNS);
        for (int64_t i = 0; i < count; i++) {
            /* The table's row with the number y[i]. */
            for (int c = 0; c < COLUMNS; c++)
                assert_true(x[i * COLUMNS + c] == y[i] * COLUMNS + c + 0.5);
            rows[n++] = y[i];
        }
    }
    return n;
}

/* The row numbers of at most `limit` elements of the stream. Returns how many. */
static inline int read_rows(mg_stream *s, int32_t *rows, int limit) {
    int n = 0;
    for (int i = 0; i < limit; i++) {
        mg_element *e;
        assert_int_equal(mg_stream_next(s, &e), MG_OK);
        if (!e) return n;
        n += rows_of(e, rows + n);
        mg_element_free(e);
    }
    return n;
}

/* Teardown of the group: fails if a block of memory or a tensor is left. */
static inline int nothing_is_left(void **state) {
    (void)state;
    mg_devices_close();
    return mg_alloc_get_stats().live_blocks == 0 && mg_tensor_live_count() == 0 ? 0 : -1;
}

#endif
