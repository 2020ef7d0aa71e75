/* The transform of ds:augment where Lua does not reach: images of sizes that vary, memory that runs
 * out; and the eigenvalues that whitening needs. The pixels are tested in tests/lua/data. */
#include "core/alloc.h"
#include "data/transforms/augment.h"
#include "data/transforms/eigen.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

static uint8_t bytes[64 * 64 * 3];
static const mg_field ANY = {.dtype = MG_U8, .shape = {.rank = 3, .dim = {-1, -1, 3}}};

static mg_transform *made(const mg_augment_spec *spec) {
    mg_transform *t = mg_augment_new(spec);
    assert_non_null(t);
    return t;
}

/* Applies the spec to an image of the field ANY; the caller frees out->data. */
static mg_status apply(const mg_augment_spec *spec, int64_t height, int64_t width, mg_cell *out) {
    mg_transform *t = mg_augment_new(spec);
    *out = (mg_cell){0};
    if (!t) return MG_OOM;
    const mg_cell in = {.shape = MG_SHAPE(height, width, 3), .data = bytes};
    const mg_row_key key = {.epoch = 1, .row = 2};
    const mg_status status = t->api->apply(t, key, &ANY, &in, out);
    mg_transform_release(t);
    return status;
}

static void a_size_that_varies_stays_so_until_a_step_fixes_it(void **state) {
    (void)state;
    const struct {
        mg_augment_spec spec;
        int64_t height, width;
    } cases[] = {
        {{.dtype = -1}, -1, -1},
        {{.dtype = -1, .resize_height = 5, .resize_width = 7}, 5, 7},
        {{.dtype = -1, .resize_shorter = 5}, -1, -1},
        {{.dtype = -1, .resize_shorter = 5, .center_height = 4, .center_width = 3}, 4, 3},
        {{.dtype = -1, .crop_height = 2, .crop_width = 9}, 2, 9},
        {{.dtype = -1, .horizontal_flip = 1, .rotation = {true, 3, 3}}, -1, -1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mg_field out;
        mg_cell cell;
        mg_transform *t = made(&cases[i].spec);
        assert_int_equal(t->api->infer(t, &ANY, &out), MG_OK);
        assert_int_equal(out.shape.dim[0], cases[i].height);
        assert_int_equal(out.shape.dim[1], cases[i].width);
        mg_transform_release(t);
        assert_int_equal(apply(&cases[i].spec, 20, 10, &cell), MG_OK);
        const mg_shape *s = &cell.shape;
        const int64_t shorter = cases[i].spec.resize_shorter;
        const int64_t h = cases[i].height > 0 ? cases[i].height : shorter ? 2 * shorter : 20;
        const int64_t w = cases[i].width > 0 ? cases[i].width : shorter ? shorter : 10;
        assert_int_equal(s->dim[0], h);
        assert_int_equal(s->dim[1], w);
        mg_free(cell.data);
    }
}

static void an_image_that_is_too_small_or_empty_is_an_error(void **state) {
    (void)state;
    mg_cell cell;
    const mg_augment_spec crop = {.dtype = -1, .crop_height = 12, .crop_width = 12};
    assert_int_equal(apply(&crop, 20, 10, &cell), MG_DATA);
    assert_non_null(
        strstr(mg_error_message(), "random_crop wants 12 columns, but the image has 10"));
    mg_free(cell.data);
    assert_int_equal(apply(&crop, 0, 10, &cell), MG_DATA);
    assert_non_null(strstr(mg_error_message(), "has no pixels"));
    mg_free(cell.data);
    const mg_field text = {.dtype = MG_U8, .shape = {.rank = 1, .dim = {-1}}, .text = true};
    mg_field out;
    mg_transform *t = made(&crop);
    assert_int_equal(t->api->infer(t, &text, &out), MG_USAGE);
    assert_non_null(strstr(mg_error_message(), "decode the images first"));
    mg_transform_release(t);
}

static void a_random_resized_crop_without_area_is_an_error(void **state) {
    (void)state;
    const mg_augment_spec spec = {.dtype = -1, .zoomed_height = 3, .zoomed_width = 3};
    assert_null(mg_augment_new(&spec));
    assert_int_equal(mg_error_code(), MG_USAGE);
}

/* Everything that takes memory. */
static const double MEAN[3] = {1, 2, 3}, STD[3] = {4, 5, 6};
static const float WHITENING[48 * 48] = {1};
static const mg_augment_spec LARGE = {
    .dtype = MG_F16,
    .channels_first = false,
    .resize_shorter = 9,
    .antialias = true,
    .crop_height = 4,
    .crop_width = 4,
    .padding_rows = 2,
    .rotation = {true, -30, 30},
    .horizontal_flip = 0.5,
    .brightness = {true, -3, 3},
    .contrast = {true, 0.5, 1.5},
    .standardize = MG_STANDARDIZE_TF,
    .n_mean = 3,
    .n_std = 3,
    .mean = MEAN,
    .std = STD,
    .n_whitening = 48,
    .whitening = WHITENING,
    .cutout_height = 2,
    .cutout_width = 2,
};

static void memory_that_runs_out_is_reported_and_nothing_leaks(void **state) {
    (void)state;
    mg_augment_spec spec = LARGE;
    for (int first = 0; first < 2; first++) {
        spec.zoomed_height = spec.zoomed_width = first ? 4 : 0;
        spec.area = spec.aspect = (mg_range){true, 0.5, 1};
        const int64_t live = mg_alloc_get_stats().live_bytes;
        mg_status status = MG_OOM;
        mg_cell cell;
        int n = 1;
        for (; status != MG_OK && n < 100; n++) {
            mg_alloc_fail_after(n);
            status = apply(&spec, 20, 30, &cell);
            mg_alloc_fail_after(0);
            assert_true(status == MG_OK || status == MG_OOM);
            mg_free(cell.data);
            cell.data = NULL;
            assert_int_equal(mg_alloc_get_stats().live_bytes, live);
        }
        assert_in_range(n, 10, 99);
    }
}

static void random_sizes_stay_within_memory(void **state) {
    (void)state;
    for (int i = 0; i < 400; i++) {
        mg_augment_spec spec = {.dtype = i % 3 ? -1 : MG_F32,
                                .seed = (uint64_t)i,
                                .fill = (mg_fill)(i % 4),
                                .interpolation = i % 5 ? MG_BILINEAR : MG_NEAREST,
                                .resize_kind = i % 6,
                                .antialias = i % 2,
                                .horizontal_flip = 0.5,
                                .vertical_flip = 0.5,
                                .area = {true, 0.05, 1},
                                .aspect = {true, 0.3, 3}};
        if (i % 2) spec.resize_height = 1 + i % 13, spec.resize_width = 1 + i % 17;
        if (i % 7 == 0) spec.zoomed_height = 1 + i % 5, spec.zoomed_width = 3;
        if (i % 3) spec.rotation = (mg_range){true, -360, 360};
        if (i % 4) spec.zoom_rows = spec.zoom_columns = (mg_range){true, 0.001, 1000};
        spec.width_shift = (mg_shift){.kind = MG_SHIFT_REAL, .n_choices = 2, .lo = -1e5, .hi = 1e5};
        spec.height_shift =
            (mg_shift){.kind = MG_SHIFT_REAL, .fraction = true, .n_choices = 2, .lo = -1, .hi = 1};
        mg_cell cell;
        assert_int_equal(apply(&spec, 1 + i % 31, 1 + i % 29, &cell), MG_OK);
        mg_free(cell.data);
    }
}

/* ---- eigenvalues ---- */

static void a_matrix_is_the_sum_of_its_eigenvectors(void **state) {
    (void)state;
    enum { N = 20 };
    double a[N * N], copy[N * N], values[N], vectors[N * N];
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            a[i * N + j] = copy[i * N + j] = cos(i + j) + (i == j) * (i % 3);
    assert_int_equal(mg_eigen_symmetric(a, N, values, vectors, NULL), MG_OK);
    for (int i = 0; i < N; i++) {
        assert_true(i == 0 || values[i] <= values[i - 1]);
        for (int j = 0; j < N; j++) {
            double sum = 0, product = 0;
            for (int k = 0; k < N; k++) {
                sum += values[k] * vectors[k * N + i] * vectors[k * N + j];
                product += vectors[i * N + k] * vectors[j * N + k];
            }
            /* some hundred roundings of numbers around 1 */
            assert_true(fabs(sum - copy[i * N + j]) < 1e-12);
            assert_true(fabs(product - (i == j)) < 1e-12);
        }
    }
}

static bool always(void) {
    return true;
}

static void eigenvalues_of_no_numbers_are_refused_and_it_can_be_stopped(void **state) {
    (void)state;
    double a[4] = {1, NAN, NAN, 1}, b[4] = {1, 2, 2, 1}, values[2], vectors[4];
    assert_int_equal(mg_eigen_symmetric(a, 2, values, vectors, NULL), MG_NONFINITE);
    assert_int_equal(mg_eigen_symmetric(b, 2, values, vectors, always), MG_INTERRUPTED);
}

int main(void) {
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)(i * 7);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_size_that_varies_stays_so_until_a_step_fixes_it),
        cmocka_unit_test(an_image_that_is_too_small_or_empty_is_an_error),
        cmocka_unit_test(a_random_resized_crop_without_area_is_an_error),
        cmocka_unit_test(memory_that_runs_out_is_reported_and_nothing_leaks),
        cmocka_unit_test(random_sizes_stay_within_memory),
        cmocka_unit_test(a_matrix_is_the_sum_of_its_eigenvectors),
        cmocka_unit_test(eigenvalues_of_no_numbers_are_refused_and_it_can_be_stopped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
