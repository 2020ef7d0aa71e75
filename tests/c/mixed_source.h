/* Fixture: a source with a field of each sort, and the elements of streams as text. */
#ifndef TESTS_C_MIXED_SOURCE_H
#define TESTS_C_MIXED_SOURCE_H

#include "stream_rows.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* With cycle 0, row i is the int32 i alone; else it is the int32 i, i % cycle + 1 float32 numbers
 * i, and the text "row i". */
typedef struct mixed_source {
    mg_source base;
    int cycle;           /* 1: all rows have one float32 */
    atomic_llong broken; /* this row and those behind it cannot be read */
    atomic_int slow;     /* the row after which reading takes a while, to mix the threads up */
    atomic_int reads;    /* rows read */
} mixed_source;

enum { NUMBER, LIST, TEXT, N_FIELDS };

static inline mg_status read_mixed(mg_source *base, int64_t row, mg_cell cell[]) {
    mixed_source *s = (mixed_source *)base;
    atomic_fetch_add(&s->reads, 1);
    if (row % 7 == atomic_load(&s->slow)) usleep(300);
    const int32_t number = (int32_t)row;
    memcpy(cell[NUMBER].data, &number, sizeof number);
    if (s->cycle == 0) return MG_OK;
    const int64_t n = row % s->cycle + 1;
    float *list = cell[LIST].data = mg_alloc((size_t)n * sizeof *list);
    if (!list) return MG_OOM;
    cell[LIST].shape = MG_SHAPE(n);
    for (int64_t i = 0; i < n; i++) list[i] = (float)row;
    char *text = cell[TEXT].data = mg_alloc(20);
    if (!text) return MG_OOM;
    cell[TEXT].shape = MG_SHAPE(snprintf(text, 20, "row %lld", (long long)row));
    /* The blocks are the caller's, also after this failure. */
    if (row >= atomic_load(&s->broken)) return mg_fail(MG_DATA, "mixed: row %lld", (long long)row);
    return MG_OK;
}

static inline void free_mixed(mg_source *s) {
    mg_free(s);
}

static const mg_source_api mixed_api = {.name = "mixed", .read = read_mixed, .free = free_mixed};

static inline mg_source *mixed(int64_t n_rows, int cycle) {
    mixed_source *s = mg_source_alloc(&mixed_api, sizeof *s, N_FIELDS);
    assert_non_null(s);
    s->base.n_rows = n_rows;
    s->base.n_fields = cycle ? N_FIELDS : 1;
    s->base.field[NUMBER] = (mg_field){.dtype = MG_I32};
    s->base.field[LIST] = (mg_field){.dtype = MG_F32, .shape = MG_SHAPE(-1)};
    s->base.field[TEXT] = (mg_field){.dtype = MG_U8, .shape = MG_SHAPE(-1), .text = true};
    s->cycle = cycle;
    atomic_init(&s->broken, INT64_MAX);
    atomic_init(&s->slow, -1);
    return &s->base;
}

static inline mg_stream *open_stream(mg_source *source, const mg_stage *stages, int n_stages,
                                     int dense, int64_t depth, int threads) {
    mg_stream_spec spec = spec_of(source, stages, n_stages);
    spec.dense = dense;
    spec.depth = depth;
    spec.threads = threads;
    mg_stream *s = mg_stream_new(&spec);
    assert_non_null(s);
    return s;
}

/* Writes all that an element holds to `out`, as text. Returns how much. */
static inline size_t print_element(const mg_element *e, char *out, size_t room) {
    size_t n = 0;
    for (int64_t i = 0; i < e->n_parts * e->n_fields; i++) {
        const mg_field_value *v = &e->value[i];
        const int k = (int)(i % e->n_fields);
        n += (size_t)snprintf(out + n, room - n, "%s", MG_SHAPE_TEXT(&v->shape));
        const int64_t count = mg_shape_count(&v->shape);
        for (int64_t c = 0; c < count && n < room; c++)
            if (e->field[k].text)
                n += (size_t)snprintf(out + n, room - n, " '%.*s'", (int)v->cell[c].shape.dim[0],
                                      (char *)v->cell[c].data);
            else if (e->field[k].dtype == MG_I32)
                n += (size_t)snprintf(out + n, room - n, " %d", ((int32_t *)v->buffer->data)[c]);
            else
                n += (size_t)snprintf(out + n, room - n, " %g",
                                      (double)((float *)v->buffer->data)[c]);
        n += (size_t)snprintf(out + n, room - n, "; ");
    }
    assert_true(n < room);
    return n;
}

/* All elements of a stream as one text. */
static inline char *print_stream(mg_stream *s) {
    enum { ROOM = 1 << 20 };
    char *out = malloc(ROOM);
    size_t n = 0;
    out[0] = 0;
    for (mg_element *e; mg_stream_next(s, &e) == MG_OK && e; mg_element_free(e)) {
        n += print_element(e, out + n, ROOM - n);
        n += (size_t)snprintf(out + n, ROOM - n, "\n");
    }
    return out;
}

/* Asserts what a chain of stages over `source` gives, with and without threads; releases it. */
static inline void check_stream(mg_source *source, const mg_stage *stages, int n_stages, int dense,
                                const char *expected) {
    static const int ways[][2] = {{0, 1}, {1, 1}, {3, 2}, {5, 4}}; /* depth, threads */
    for (int i = 0; i < 4; i++) {
        mg_stream *s = open_stream(source, stages, n_stages, dense, ways[i][0], ways[i][1]);
        char *out = print_stream(s);
        assert_string_equal(out, expected);
        free(out);
        mg_stream_free(s);
    }
    mg_source_release(source);
}

#endif
