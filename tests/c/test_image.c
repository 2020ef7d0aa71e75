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

#define FOLDER "tests/golden/images/"
enum { MOST_CALLS = 200 };

static void skip_without_plugin(void) {
    const char *why;
    if (!mg_plugin_symbol("image", MG_IMAGE_SYMBOL, &why)) skip();
}

static void test_decoding_without_memory(void **state) {
    static const char *const paths[] = {FOLDER "rgb.png", FOLDER "palette_alpha.png",
                                        FOLDER "interlaced.png", FOLDER "rgb.jpg"};
    (void)state;
    skip_without_plugin();
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        mg_image image;
        int64_t n = 0;
        mg_status status = MG_OOM;
        while (status != MG_OK && ++n < MOST_CALLS) {
            const int64_t blocks = mg_alloc_get_stats().live_blocks;
            mg_alloc_fail_after(n);
            status = mg_image_load(paths[i], 0, NULL, &image);
            mg_alloc_fail_after(0);
            if (status == MG_OK) break;
            assert_int_equal(status, MG_OOM);
            assert_null(image.pixels);
            assert_int_equal(mg_alloc_get_stats().live_blocks, blocks);
        }
        assert_true(n > 2);
        assert_int_equal(status, MG_OK);
        assert_int_equal(image.height, 11);
        mg_free(image.pixels);
    }
}

static void test_encoding_without_memory(void **state) {
    uint8_t pixels[6] = {0, 50, 100, 150, 200, 250};
    const mg_image image = {1, 2, 3, pixels};
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decoding_without_memory),
        cmocka_unit_test(test_encoding_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
