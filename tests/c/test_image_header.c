/* Headers of PNG and JPEG files (mg_image_probe), which are read without libpng and libjpeg: all
 * valid forms, headers cut after each byte, every kind of JPEG marker, and failing file calls. Also
 * the limits on an image's size (mg_image_take). */
#include "core/alloc.h"
#include "core/io.h"
#include "core/plugin.h"
#include "data/image.h"
#include "data/image_codec/codec.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include <cmocka.h>

enum { PNG_HEAD = 33 };

static char path[] = "/tmp/mgpu-test-header-XXXXXX";

static void write_bytes(const void *bytes, size_t n) {
    FILE *f = fopen(path, "wb");
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

/* The file's header is refused with this code and text. */
static void refused(mg_status code, const char *text) {
    mg_image image;
    assert_int_equal(mg_image_probe(path, &image), code);
    assert_non_null(strstr(mg_error_message(), text));
    assert_non_null(strstr(mg_error_message(), path));
}

static void accepted(int height, int width, int channels) {
    mg_image image;
    if (mg_image_probe(path, &image) != MG_OK) fail_msg("%s", mg_error_message());
    assert_int_equal(image.height, height);
    assert_int_equal(image.width, width);
    assert_int_equal(image.channels, channels);
}

/* ---- PNG ---- */

static void put32(uint8_t *p, uint32_t v) {
    for (int i = 0; i < 4; i++) p[i] = (uint8_t)(v >> (24 - 8 * i));
}

/* The header of a PNG file, with the right checksum. */
static void write_png(uint32_t height, uint32_t width, uint8_t color, uint8_t head[PNG_HEAD]) {
    memcpy(head, "\x89PNG\r\n\x1a\n\0\0\0\rIHDR", 16);
    put32(head + 16, width);
    put32(head + 20, height);
    memcpy(head + 24, (const uint8_t[]){8, color, 0, 0, 0}, 5);
    put32(head + 29, (uint32_t)crc32(0, head + 12, 17));
    write_bytes(head, PNG_HEAD);
}

static void png_headers(void **state) {
    (void)state;
    static const int channels[][2] = {{0, 1}, {2, 3}, {3, 3}, {4, 4}, {6, 4}};
    uint8_t head[PNG_HEAD];
    for (size_t i = 0; i < sizeof channels / sizeof channels[0]; i++) {
        write_png(3, 5, (uint8_t)channels[i][0], head);
        accepted(3, 5, channels[i][1]);
    }
    for (size_t n = 0; n < PNG_HEAD; n++) {
        write_bytes(head, n);
        refused(MG_DATA,
                n < 8 ? "not a PNG, JPEG, BMP, GIF or WebP" : "the file ends within the header");
    }
    for (size_t at = 0; at < PNG_HEAD; at++) {
        head[at] ^= 1;
        write_bytes(head, PNG_HEAD);
        refused(MG_DATA,
                at < 8 ? "not a PNG, JPEG, BMP, GIF or WebP" : "PNG: the header is damaged");
        head[at] ^= 1;
    }
    static const uint32_t sides[][2] = {
        {0, 5}, {3, 0}, {MG_IMAGE_SIDE + 1, 5}, {3, MG_IMAGE_SIDE + 1}, {UINT32_MAX, UINT32_MAX}};
    for (size_t i = 0; i < sizeof sides / sizeof sides[0]; i++) {
        write_png(sides[i][0], sides[i][1], 2, head);
        refused(MG_DATA, "the header says");
    }
    write_png(MG_IMAGE_SIDE, MG_IMAGE_SIDE, 2, head);
    accepted(MG_IMAGE_SIDE, MG_IMAGE_SIDE, 3);
}

/* ---- JPEG ---- */

/* What may come before the frame: a comment of 3 bytes, a table, fill bytes, restarts, TEM. */
static const uint8_t before[] = {0xff, 0xfe, 0,    5,    'a',  'b',  'c',  0xff, 0xc4, 0,    2,
                                 0xff, 0xcc, 0,    2,    0xff, 0xff, 0xff, 0xff, 0xd0, 0xff, 0xd7,
                                 0xff, 0x01, 0xff, 0xc8, 0,    2,    0xff, 0xe0, 0,    2};

/* A JPEG file up to the frame's size, 3 x 5 pixels; *n is its size. */
static void make_jpeg(uint8_t marker, uint8_t components, uint8_t bytes[64], size_t *n) {
    const uint8_t frame[] = {0xff, marker, 0, 17, 8, 0, 3, 0, 5, components};
    memcpy(bytes, "\xff\xd8", 2);
    memcpy(bytes + 2, before, sizeof before);
    memcpy(bytes + 2 + sizeof before, frame, sizeof frame);
    *n = 2 + sizeof before + sizeof frame;
    write_bytes(bytes, *n);
}

static void jpeg_headers(void **state) {
    (void)state;
    uint8_t bytes[64];
    size_t n;
    for (int marker = 0xc0; marker <= 0xcf; marker++) {
        if (marker == 0xc4 || marker == 0xc8 || marker == 0xcc) continue; /* no frames */
        make_jpeg((uint8_t)marker, marker % 2 ? 1 : 3, bytes, &n);
        accepted(3, 5, marker % 2 ? 1 : 3);
    }
    for (size_t cut = 0; cut < n; cut++) {
        write_bytes(bytes, cut);
        refused(MG_DATA,
                cut < 3 ? "not a PNG, JPEG, BMP, GIF or WebP" : "the file ends within the header");
    }
    make_jpeg(0xc0, 4, bytes, &n);
    accepted(3, 5, 3); /* CMYK becomes RGB */
    /* the end, or the pixels, before a frame; no marker; no pixels */
    make_jpeg(0xd9, 3, bytes, &n);
    refused(MG_DATA, "JPEG: the header is damaged, or there is no image");
    make_jpeg(0xda, 3, bytes, &n);
    refused(MG_DATA, "JPEG: the header is damaged, or there is no image");
    make_jpeg(0xc0, 3, bytes, &n);
    bytes[n - 10] = 0xfe;
    write_bytes(bytes, n);
    refused(MG_DATA, "JPEG: the header is damaged, or there is no image");
    make_jpeg(0xc0, 3, bytes, &n);
    bytes[n - 4] = 0;
    write_bytes(bytes, n);
    refused(MG_DATA, "the header says 0 x 5 pixels");
}

/* Segments without end; and a length of 0, which does not lead back. */
static void a_jpeg_header_may_not_go_on_for_ever(void **state) {
    (void)state;
    static uint8_t bytes[1 << 16];
    for (size_t i = 0; i < sizeof bytes; i += 4) memcpy(bytes + i, "\xff\xe0\0\2", 4);
    memcpy(bytes, "\xff\xd8\xff\xe0\0\0", 6);
    memcpy(bytes + 6, "\xff\xe0", 2);
    write_bytes(bytes, sizeof bytes);
    refused(MG_DATA, "JPEG: the header is damaged, or there is no image");
    memset(bytes + 2, 0xff, sizeof bytes - 2);
    write_bytes(bytes, sizeof bytes);
    refused(MG_DATA, "JPEG: the header is damaged, or there is no image");
}

/* ---- both ---- */

static void a_huge_file_is_refused(void **state) {
    (void)state;
    mg_image image;
    uint8_t head[PNG_HEAD];
    write_png(3, 5, 2, head);
    assert_int_equal(truncate(path, (off_t)MG_IMAGE_BYTES + 1), 0);
    refused(MG_UNSUPPORTED, "the file has more than");
    assert_int_equal(mg_image_load(path, (mg_image_form){.channels = 0}, NULL, &image),
                     MG_UNSUPPORTED);
    assert_non_null(strstr(mg_error_message(), "more than the limit of"));
}

static void a_failing_file_call_is_an_error(void **state) {
    (void)state;
    mg_image image;
    uint8_t bytes[64], head[PNG_HEAD];
    size_t n;
    for (int jpeg = 0; jpeg < 2; jpeg++) {
        if (jpeg)
            make_jpeg(0xc0, 3, bytes, &n);
        else
            write_png(3, 5, 2, head);
        mg_status status = MG_IO;
        int64_t calls = 0;
        while (status != MG_OK) {
            mg_io_fail_after(++calls, EIO);
            status = mg_image_probe(path, &image);
            mg_io_fail_stop();
            assert_true(status == MG_OK || status == MG_IO);
            assert_int_equal(mg_io_open_count(), 0);
        }
        assert_true(calls > 3);
    }
}

/* Memory is allocated for an image only if its file is long enough for so many pixels. */
static void sizes_of_images_have_limits(void **state) {
    (void)state;
    const char *why;
    mg_image image = {0};
    mg_status (*take)(mg_image *, int64_t, int64_t, int, size_t, int64_t);
    void *symbol = mg_plugin_symbol("image", "mg_image_take", &why);
    if (!symbol) skip();
    memcpy(&take, &symbol, sizeof take);
    static const struct {
        int64_t height, width;
        size_t n;
        mg_status status;
    } cases[] = {{0, 5, 100, MG_DATA},
                 {5, 0, 100, MG_DATA},
                 {-1, 5, 100, MG_DATA},
                 {MG_IMAGE_SIDE + 1, 1, 100000, MG_UNSUPPORTED},
                 {1, MG_IMAGE_SIDE + 1, 100000, MG_UNSUPPORTED},
                 {MG_IMAGE_SIDE, MG_IMAGE_SIDE, SIZE_MAX / 2, MG_UNSUPPORTED},
                 {1000, 1000, 999, MG_DATA},
                 {10, 10, 1, MG_OK}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const mg_status status = take(&image, cases[i].height, cases[i].width, 3, cases[i].n, 100);
        assert_int_equal(status, cases[i].status);
    }
    mg_free(image.pixels);
}

static int make_file(void **state) {
    (void)state;
    const int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int remove_file(void **state) {
    (void)state;
    unlink(path);
    return mg_alloc_get_stats().live_blocks || mg_io_open_count() ? -1 : 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(png_headers),
        cmocka_unit_test(jpeg_headers),
        cmocka_unit_test(a_jpeg_header_may_not_go_on_for_ever),
        cmocka_unit_test(a_huge_file_is_refused),
        cmocka_unit_test(a_failing_file_call_is_an_error),
        cmocka_unit_test(sizes_of_images_have_limits),
    };
    return cmocka_run_group_tests(tests, make_file, remove_file);
}
