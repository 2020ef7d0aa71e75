/* mg_resample: each value is exactly what plain loops compute in the order that resample.h
 * documents, with and without wide vectors, and no byte outside the result is written. */
#include "core/alloc.h"
#include "data/transforms/resample.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

enum { HEIGHT = 23, WIDTH = 37, MOST_CHANNELS = 5, GUARD = 64 };

static uint8_t bytes[HEIGHT * WIDTH * MOST_CHANNELS];
static float floats[HEIGHT * WIDTH * MOST_CHANNELS];

static int fill(void **state) {
    uint32_t r = 1;
    (void)state;
    for (size_t i = 0; i < sizeof bytes; i++) {
        r = r * 1664525 + 1013904223;
        bytes[i] = (uint8_t)(r >> 24);
        floats[i] = (float)(int32_t)r * 3e-7f; /* also below 0 and above 255 */
    }
    return 0;
}

static float value(const mg_pixels *p, int64_t row, int64_t column, int64_t k) {
    const int64_t at = (row * p->width + column) * p->channels + k;
    return p->dtype == MG_U8 ? ((const uint8_t *)p->data)[at] : ((const float *)p->data)[at];
}

/* A value of the line for output row r. */
static float from_rows(const mg_pixels *src, const mg_axis *rows, int64_t r, int64_t column,
                       int64_t k) {
    const int32_t *index = rows->index + r * rows->taps;
    if (rows->taps == 1) return value(src, index[0], column, k);
    const float *w = rows->weight + r * rows->taps;
    float v = w[0] * value(src, index[0], column, k) + w[1] * value(src, index[1], column, k);
    for (int t = 2; t < rows->taps; t++)
        if (w[t] != 0) v += w[t] * value(src, index[t], column, k);
    return v;
}

static float expected(const mg_pixels *src, const mg_axis *rows, const mg_axis *columns,
                      float constant, int64_t r, int64_t i, int64_t k) {
    const int32_t *index = columns->index + i * columns->taps;
    if (index[0] < 0 || rows->index[r * rows->taps] < 0) return constant;
    if (columns->taps == 1) return from_rows(src, rows, r, index[0], k);
    const float *w = columns->weight + i * columns->taps;
    float v =
        w[0] * from_rows(src, rows, r, index[0], k) + w[1] * from_rows(src, rows, r, index[1], k);
    for (int t = 2; t < columns->taps; t++) v += w[t] * from_rows(src, rows, r, index[t], k);
    return v;
}

static uint8_t rounded(float v) {
    return v > 0 ? v < 255 ? (uint8_t)(v + 0.5f) : 255 : 0;
}

typedef mg_status resampler(const mg_pixels *, const mg_axis *, const mg_axis *, double,
                            mg_pixels *);

static void check(resampler *f, const mg_pixels *src, const mg_axis *rows, const mg_axis *columns,
                  mg_dtype dtype) {
    const int64_t n = rows->n * columns->n * src->channels;
    const size_t size = (size_t)n * mg_dtype_size(dtype);
    char *block = malloc(size + GUARD);
    memset(block, 0x5a, size + GUARD);
    mg_pixels dst = {rows->n, columns->n, src->channels, dtype, block};
    assert_int_equal(f(src, rows, columns, 7.25, &dst), MG_OK);
    for (int64_t at = 0; at < n; at++) {
        const int64_t k = at % dst.channels, i = at / dst.channels % dst.width,
                      r = at / dst.channels / dst.width;
        const float v = expected(src, rows, columns, 7.25f, r, i, k);
        if (dtype == MG_U8)
            assert_int_equal((uint8_t)block[at], rounded(v));
        else
            assert_memory_equal(block + at * 4, &v, sizeof v);
    }
    for (int i = 0; i < GUARD; i++) assert_int_equal(block[size + (size_t)i], 0x5a);
    free(block);
}

/* Tables of 1, 2 and many taps, some of which point outside. */
static void make_axis(mg_axis *a, int kind, int64_t in) {
    mg_status status = MG_OK;
    switch (kind) {
    case 0: status = mg_axis_identity(a, in); break;
    case 1: status = mg_axis_resize(a, 3, in - 7, 29, MG_RESIZE_BILINEAR, false); break;
    case 2: status = mg_axis_resize(a, 1, in - 2, 5, MG_RESIZE_LANCZOS3, true); break;
    case 3: status = mg_axis_resize(a, 0, in, 4, MG_RESIZE_AREA, false); break;
    case 4: status = mg_axis_resize(a, in - 1, 1, 19, MG_RESIZE_BILINEAR, false); break;
    default:
        status = mg_axis_resize(a, 0, in, 40, MG_RESIZE_BILINEAR, false);
        if (status == MG_OK) status = mg_axis_crop(a, -3, 46, MG_FILL_CONSTANT);
    }
    assert_int_equal(status, MG_OK);
    if (kind == 2) mg_axis_flip(a);
}

static void every_value_is_that_of_plain_loops(void **state) {
    enum { KINDS = 6 };
    (void)state;
    for (int kind = 0; kind < KINDS * KINDS; kind++) {
        mg_axis rows, columns;
        make_axis(&rows, kind / KINDS, HEIGHT);
        make_axis(&columns, kind % KINDS, WIDTH);
        for (int way = 0; way < 4 * MOST_CHANNELS; way++) {
            const bool from_bytes = way & 1;
            const mg_dtype to = way & 2 ? MG_U8 : MG_F32;
            const mg_pixels src = {HEIGHT, WIDTH, 1 + way / 4, from_bytes ? MG_U8 : MG_F32,
                                   from_bytes ? (void *)bytes : (void *)floats};
            if (kind == 0 && src.dtype == to) continue; /* copied, not mixed */
            check(mg_resample, &src, &rows, &columns, to);
            check(mg_resample_baseline, &src, &rows, &columns, to);
        }
        mg_axis_free(&rows);
        mg_axis_free(&columns);
    }
}

static void values_beyond_bytes_saturate(void **state) {
    float in[40];
    uint8_t out[40], wanted[40];
    const float values[] = {-1e30f, -0.5f, 0.49f, 0.5f, 254.5f, 255.4f, 3e9f, 1e30f};
    (void)state;
    for (int i = 0; i < 40; i++) {
        in[i] = values[i % 8];
        wanted[i] = rounded(in[i]);
    }
    in[5] = in[38] = (float)strtod("nan", NULL);
    wanted[5] = wanted[38] = 0;
    mg_pixels_convert(out, MG_U8, in, MG_F32, 40);
    assert_memory_equal(out, wanted, 40);
}

static void memory_that_runs_out_is_reported(void **state) {
    mg_axis rows, columns;
    float out[HEIGHT * 29];
    const mg_pixels src = {HEIGHT, WIDTH, 1, MG_U8, bytes};
    mg_pixels dst = {HEIGHT, 29, 1, MG_F32, out};
    (void)state;
    make_axis(&rows, 0, HEIGHT);
    make_axis(&columns, 1, WIDTH);
    mg_alloc_fail_after(1);
    assert_int_equal(mg_resample(&src, &rows, &columns, 0, &dst), MG_OOM);
    mg_alloc_fail_after(0);
    mg_axis_free(&rows);
    mg_axis_free(&columns);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(every_value_is_that_of_plain_loops, fill),
        cmocka_unit_test(values_beyond_bytes_saturate),
        cmocka_unit_test(memory_that_runs_out_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
