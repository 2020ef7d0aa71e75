/* Decoding a region of an image: its pixels are exactly those of the whole image, for every kind of
 * file and for regions at every border, and damage is reported as for the whole image. */
#include "core/alloc.h"
#include "core/plugin.h"
#include "data/image.h"
#include "jpeg_files.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <malloc.h>
#include <string.h>

static const jpeg_kind kinds[] = {
    {"gray", 0, 0, false, false, 0, false, 0},
    {"4:4:4", 1, 1, false, false, 0, false, 0},
    {"4:2:2", 2, 1, false, false, 0, false, 0},
    {"4:2:0", 2, 2, false, false, 0, false, 0},
    {"4:4:0", 1, 2, false, false, 0, false, 0},
    {"4:1:1", 4, 1, false, false, 0, false, 0},
    {"4:1:0", 4, 2, false, false, 0, false, 0},
    {"gray, progressive", 0, 0, true, false, 0, false, 0},
    {"4:4:4, progressive", 1, 1, true, false, 0, false, 0},
    {"4:2:2, progressive", 2, 1, true, false, 0, false, 0},
    {"4:2:0, progressive", 2, 2, true, false, 0, false, 0},
    {"4:4:0, progressive", 1, 2, true, false, 0, false, 0},
    {"RGB", 1, 1, false, true, 0, false, 0},
    {"4:2:0, restarts", 2, 2, false, false, 3, false, 0},
    {"4:4:4, restarts", 1, 1, false, false, 1, false, 0},
    {"CMYK", 1, 1, false, false, 0, false, JCS_CMYK},
    {"CMYK, progressive", 1, 1, true, false, 0, false, JCS_CMYK},
    {"YCCK", 2, 2, false, false, 0, false, JCS_YCCK},
};
enum { N_KINDS = sizeof kinds / sizeof kinds[0] };

static int skip_without_plugin(void **state) {
    const char *why;
    (void)state;
    mallopt(M_PERTURB,
            0x5a); /* else pixels of an image that was freed could pass for decoded ones */
    if (!mg_plugin_symbol("image", MG_IMAGE_SYMBOL, &why)) skip();
    return 0;
}

/* Requests a fixed region, and notes the size of the image. */
typedef struct fixed_region {
    mg_wanted base;
    mg_region region;
    mg_status status;
    int64_t height, width; /* of the image, as passed to tell_region */
} fixed_region;

static mg_status tell_region(const mg_wanted *w, int64_t height, int64_t width, mg_region *r) {
    fixed_region *f = (fixed_region *)(uintptr_t)w;
    f->height = height;
    f->width = width;
    *r = f->region;
    return f->status == MG_OK ? MG_OK : mg_fail(f->status, "no region");
}

static fixed_region wants(mg_region r) {
    return (fixed_region){.base = {tell_region}, .region = r};
}

static void assert_same_region(const jpeg_kind *k, const mg_image *whole, const mg_image *part,
                               const mg_region *r) {
    const int64_t c = whole->channels, w = whole->width;
    assert_int_equal(part->height, whole->height);
    assert_int_equal(part->width, whole->width);
    assert_int_equal(part->channels, whole->channels);
    for (int64_t row = r->row; row < r->row + r->height; row++) {
        const int64_t at = (row * w + r->column) * c;
        if (memcmp(whole->pixels + at, part->pixels + at, (size_t)(r->width * c)) == 0) continue;
        fail_msg("%s, %d x %d, %d channels: row %d of the region %d x %d at (%d, %d) differs",
                 k->name, whole->height, whole->width, whole->channels, (int)row, (int)r->height,
                 (int)r->width, (int)r->row, (int)r->column);
    }
}

static void check_region(const jpeg_kind *k, const uint8_t *bytes, size_t n, const mg_image *whole,
                         mg_region r) {
    fixed_region f = wants(r);
    mg_image part;
    assert_int_equal(
        mg_image_decode(bytes, n, (mg_image_form){.channels = whole->channels}, &f.base, &part),
        MG_OK);
    assert_int_equal(f.height, whole->height);
    assert_int_equal(f.width, whole->width);
    assert_same_region(k, whole, &part, &r);
    mg_free(part.pixels);
}

/* Regions at each border and corner, single pixels, single rows and columns, and some inside. */
static void check_regions(const jpeg_kind *k, int height, int width, int channels) {
    size_t n;
    uint8_t *bytes = jpeg_test_file(k, height, width, &n);
    mg_image whole;
    assert_int_equal(mg_image_decode(bytes, n, (mg_image_form){.channels = channels}, NULL, &whole),
                     MG_OK);
    const int h[] = {1, (height + 1) / 2, height}, w[] = {1, (width + 1) / 2, width};
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++)
            for (int place = 0; place < 9; place++)
                check_region(k, bytes, n, &whole,
                             (mg_region){(height - h[i]) * (place / 3) / 2,
                                         (width - w[j]) * (place % 3) / 2, h[i], w[j]});
    mg_free(whole.pixels);
    free(bytes);
}

static void test_regions_of_every_kind(void **state) {
    static const int sides[] = {1, 7, 8, 9, 15, 16, 17, 33, 50};
    static const int channels[] = {3, 1, 4};
    enum { N = sizeof sides / sizeof sides[0] };
    (void)state;
    for (int k = 0; k < N_KINDS; k++)
        for (int i = 0; i < N; i++)
            for (int j = 0; j < N; j++)
                check_regions(&kinds[k], sides[i], sides[j], channels[(i + j) % 3]);
}

/* Every place of a region in an image of several blocks. */
static void test_every_place(void **state) {
    enum { HEIGHT = 52, WIDTH = 75, ROWS = 11, COLUMNS = 13 };
    (void)state;
    for (int k = 0; k < N_KINDS; k++) {
        size_t n;
        uint8_t *bytes = jpeg_test_file(&kinds[k], HEIGHT, WIDTH, &n);
        mg_image whole;
        assert_int_equal(mg_image_decode(bytes, n, (mg_image_form){.channels = 3}, NULL, &whole),
                         MG_OK);
        for (int row = 0; row <= HEIGHT - ROWS; row++)
            for (int column = 0; column <= WIDTH - COLUMNS; column++)
                if ((row * 7 + column) % 11 == 0)
                    check_region(&kinds[k], bytes, n, &whole,
                                 (mg_region){row, column, ROWS, COLUMNS});
        mg_free(whole.pixels);
        free(bytes);
    }
}

/* What a region's owner fails with is what decoding fails with, and nothing stays behind. */
static void test_failing_owner(void **state) {
    size_t n;
    uint8_t *bytes = jpeg_test_file(&kinds[3], 20, 20, &n);
    fixed_region f = wants((mg_region){0, 0, 1, 1});
    mg_image image;
    (void)state;
    f.status = MG_OOM;
    assert_int_equal(mg_image_decode(bytes, n, (mg_image_form){.channels = 3}, &f.base, &image),
                     MG_OOM);
    assert_null(image.pixels);
    free(bytes);
}

/* ---- damage ---- */

enum { SIDE = 128 };

/* The status of decoding a region of the bytes, and the message in `text`. */
static mg_status status_of(const uint8_t *bytes, size_t n, const mg_wanted *wanted, char *text) {
    mg_image image;
    const mg_status status =
        mg_image_decode(bytes, n, (mg_image_form){.channels = 3}, wanted, &image);
    strcpy(text, status == MG_OK ? "" : mg_error_message());
    mg_free(image.pixels);
    return status;
}

/* A truncated file is refused, also where the region was complete. */
static void test_truncated(void **state) {
    char whole_text[4096], text[4096];
    (void)state;
    for (int k = 0; k < N_KINDS; k++) {
        size_t n;
        uint8_t *bytes = jpeg_test_file(&kinds[k], SIDE, SIDE, &n);
        for (int part = 1; part <= 8; part++) {
            const size_t cut = part < 8 ? n * (size_t)part / 8 : n - 2;
            fixed_region top = wants((mg_region){3, 5, 20, 30});
            assert_int_equal(status_of(bytes, cut, NULL, whole_text), MG_DATA);
            assert_int_equal(status_of(bytes, cut, &top.base, text), MG_DATA);
            assert_string_equal(text, whole_text);
        }
        free(bytes);
    }
}

/* Bytes changed anywhere: the status, the message and the pixels are the same as when the whole
 * image is decoded. */
static void test_changed_bytes(void **state) {
    char whole_text[4096], text[4096];
    int refused = 0, accepted = 0;
    (void)state;
    for (int k = 0; k < N_KINDS; k++) {
        size_t n;
        uint8_t *bytes = jpeg_test_file(&kinds[k], SIDE, SIDE, &n);
        for (size_t at = n / 50; at < n; at += n / 50) {
            const uint8_t before = bytes[at];
            fixed_region f = wants((mg_region){40, 20, 50, 70});
            mg_image whole;
            bytes[at] ^= 0x5a;
            const mg_status status =
                mg_image_decode(bytes, n, (mg_image_form){.channels = 3}, NULL, &whole);
            if (status == MG_OK) {
                check_region(&kinds[k], bytes, n, &whole, f.region);
                accepted++;
            } else {
                strcpy(whole_text, mg_error_message());
                assert_int_equal(status_of(bytes, n, &f.base, text), status);
                assert_string_equal(text, whole_text);
                refused++;
            }
            mg_free(whole.pixels);
            bytes[at] = before;
        }
        free(bytes);
    }
    assert_true(refused > 0 && accepted > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_regions_of_every_kind, skip_without_plugin),
        cmocka_unit_test_setup(test_every_place, skip_without_plugin),
        cmocka_unit_test_setup(test_failing_owner, skip_without_plugin),
        cmocka_unit_test_setup(test_truncated, skip_without_plugin),
        cmocka_unit_test_setup(test_changed_bytes, skip_without_plugin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
