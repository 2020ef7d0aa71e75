/* Images when memory is short: each allocation of decoding and encoding fails once. */
#include "core/alloc.h"
#include "core/plugin.h"
#include "data/image.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include "core/status.h"
#include "jpeg_files.h"

#define FOLDER "tests/golden/images/"
#define FORMATS "tests/golden/image_formats/"
enum { MOST_CALLS = 200 };

static void skip_without_plugin(void) {
    const char *why;
    if (!mg_plugin_symbol("image", MG_IMAGE_SYMBOL, &why)) skip();
}

static void test_decoding_without_memory(void **state) {
    static const char *const paths[] = {FOLDER "rgb.png",         FOLDER "palette_alpha.png",
                                        FOLDER "interlaced.png",  FOLDER "rgb.jpg",
                                        FORMATS "cmyk.jpg",       FORMATS "rle8.bmp",
                                        FORMATS "interlaced.gif", FORMATS "lossy.webp"};
    (void)state;
    skip_without_plugin();
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        mg_image image;
        int64_t n = 0;
        mg_status status = mg_image_load(paths[i], (mg_image_form){.channels = 0}, NULL, &image);
        if (status == MG_UNSUPPORTED) continue; /* its plug-in was not built */
        mg_free(image.pixels);
        status = MG_OOM;
        while (status != MG_OK && ++n < MOST_CALLS) {
            const int64_t blocks = mg_alloc_get_stats().live_blocks;
            mg_alloc_fail_after(n);
            status = mg_image_load(paths[i], (mg_image_form){.channels = 0}, NULL, &image);
            mg_alloc_fail_after(0);
            if (status == MG_OK) break;
            assert_int_equal(status, MG_OOM);
            assert_null(image.pixels);
            assert_int_equal(mg_alloc_get_stats().live_blocks, blocks);
        }
        assert_true(n > 2);
        assert_int_equal(status, MG_OK);
        assert_int_equal(image.height, i < 4 ? 11 : 7);
        mg_free(image.pixels);
    }
}

static void test_encoding_without_memory(void **state) {
    uint8_t pixels[6] = {0, 50, 100, 150, 200, 250};
    const mg_image image = {1, 2, 3, pixels, false};
    (void)state;
    skip_without_plugin();
    for (int quality = 0; quality <= 90; quality += 90) {
        mg_image_file file;
        int64_t n = 0;
        mg_status status = MG_OOM;
        while (status != MG_OK && ++n < MOST_CALLS) {
            const int64_t blocks = mg_alloc_get_stats().live_blocks;
            mg_alloc_fail_after(n);
            status = quality ? mg_image_encode_jpeg(&image, quality, &file)
                             : mg_image_encode_png(&image, &file);
            mg_alloc_fail_after(0);
            if (status == MG_OK) break;
            assert_int_equal(status, MG_OOM);
            assert_null(file.bytes);
            assert_int_equal(mg_alloc_get_stats().live_blocks, blocks);
        }
        assert_true(n > 1);
        assert_int_equal(status, MG_OK);
        mg_free(file.bytes);
    }
}

/* A small file could make the decoder go through any number of scans of the same pixels. */
static void test_a_jpeg_of_many_scans(void **state) {
    enum { SCANS = 600 };
    const jpeg_kind kind = {.name = "apart", .h = 1, .v = 1, .apart = true};
    size_t n, first = 0, second = 0;
    mg_image image = {0};
    (void)state;
    skip_without_plugin();
    uint8_t *bytes = jpeg_test_file(&kind, 8, 8, &n);
    for (size_t i = 0; i + 1 < n && !second; i++) /* the marker that begins a scan */
        if (bytes[i] == 0xff && bytes[i + 1] == 0xda) *(first ? &second : &first) = i;
    const size_t scan = second - first;
    uint8_t *long_file = malloc(n + SCANS * scan);
    assert_int_equal(mg_image_decode(bytes, n, (mg_image_form){.channels = 0}, NULL, &image),
                     MG_OK);
    mg_free(image.pixels);
    memcpy(long_file, bytes, first);
    for (size_t i = 0; i < SCANS; i++) memcpy(long_file + first + i * scan, bytes + first, scan);
    memcpy(long_file + first + SCANS * scan, bytes + first, n - first);
    assert_int_equal(
        mg_image_decode(long_file, n + SCANS * scan, (mg_image_form){.channels = 0}, NULL, &image),
        MG_DATA);
    assert_non_null(strstr(mg_error_message(), "JPEG: the image has more than 500 scans"));
    assert_null(image.pixels);
    free(long_file);
    free(bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decoding_without_memory),
        cmocka_unit_test(test_encoding_without_memory),
        cmocka_unit_test(test_a_jpeg_of_many_scans),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
