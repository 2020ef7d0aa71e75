/* PNG with libpng.
 *
 * libpng reports errors with longjmp. So everything that must survive one is in a `codec`, which
 * the caller of the function with setjmp owns, and those functions have no local variables that
 * change after setjmp. libpng's memory comes from the library's allocator.
 *
 * Pixels are read as Pillow and TensorFlow do: gamma and color profiles are ignored, 16 bits are
 * rounded to 8 unless they are wanted, and smaller depths are scaled up. Alpha is dropped, not
 * blended, if fewer than 4 channels are wanted. Gray is 0.299 red + 0.587 green + 0.114 blue, as in
 * JPEG. */
#include "core/alloc.h"
#include "data/image_codec/codec.h"
#include <png.h>
#include <setjmp.h>
#include <stdbool.h>
#include <string.h>

/* The maximum number of pixels that a byte can encode: deflate compresses to no less than 1/1032,
 * and a pixel has at least one bit. */
enum { PIXELS_PER_BYTE = 1032 * 8 };

typedef struct codec {
    png_struct *png; /* owned */
    png_info *info;  /* owned */
    mg_status status;
    png_byte **rows; /* owned: the address of each row of the image */
    /* decoding */
    const uint8_t *bytes;
    size_t n, at;
    /* encoding */
    mg_image_file *file;
} codec;

static size_t row_bytes(const mg_image *image) {
    return (size_t)image->width * (size_t)image->channels << image->wide;
}

/* ---- what libpng calls ---- */

static void on_error(png_struct *png, const char *message) {
    codec *c = png_get_error_ptr(png);
    if (c->status == MG_OK)
        c->status = mg_fail(c->file ? MG_INTERNAL : MG_DATA, "PNG: %s", message);
    png_longjmp(png, 1);
}

static void on_warning(png_struct *png, const char *message) {
    (void)png, (void)message;
}

static void *take_memory(png_struct *png, png_alloc_size_t size) {
    void *block = mg_alloc(size);
    codec *c = png_get_mem_ptr(png);
    if (!block && c->status == MG_OK) c->status = MG_OOM;
    return block;
}

static void give_memory(png_struct *png, void *block) {
    (void)png;
    mg_free(block);
}

static void on_read(png_struct *png, png_byte *dst, size_t n) {
    codec *c = png_get_io_ptr(png);
    if (n > c->n - c->at) {
        c->status = mg_fail(MG_DATA, "PNG: the file is truncated: it ends after %zu bytes", c->n);
        png_longjmp(png, 1);
    }
    memcpy(dst, c->bytes + c->at, n);
    c->at += n;
}

static void on_write(png_struct *png, png_byte *src, size_t n) {
    codec *c = png_get_io_ptr(png);
    mg_image_file *f = c->file;
    if (n > f->room - f->n) {
        const size_t room = 2 * f->room + n + 4096;
        uint8_t *grown = mg_realloc(f->bytes, room);
        if (!grown) {
            c->status = MG_OOM;
            png_longjmp(png, 1);
        }
        f->bytes = grown;
        f->room = room;
    }
    memcpy(f->bytes + f->n, src, n);
    f->n += n;
}

static void on_flush(png_struct *png) {
    (void)png;
}

/* ---- reading: each returns false after an error ---- */

/* Makes libpng give pixels with these channels, of 16 bits in the machine's byte order if `wide`,
 * else of 8. */
static void set_transformations(codec *c, int channels, bool wide) {
    const int type = png_get_color_type(c->png, c->info);
    const bool color = type & PNG_COLOR_MASK_COLOR;
    const bool alpha = type & PNG_COLOR_MASK_ALPHA || png_get_valid(c->png, c->info, PNG_INFO_tRNS);
    png_set_expand(c->png);
    if (wide) {
        png_set_expand_16(c->png);
        png_set_swap(c->png);
    } else {
        png_set_scale_16(c->png);
    }
    if (alpha && channels < 4) png_set_strip_alpha(c->png);
    if (!alpha && channels == 4) png_set_add_alpha(c->png, wide ? 65535 : 255, PNG_FILLER_AFTER);
    if (color && channels == 1)
        png_set_rgb_to_gray_fixed(c->png, PNG_ERROR_ACTION_NONE, 29900, 58700);
    if (!color && channels > 1) png_set_gray_to_rgb(c->png);
    png_set_interlace_handling(c->png);
    png_read_update_info(c->png, c->info);
}

/* The channels of the file. */
static int own_channels(const codec *c) {
    const int type = png_get_color_type(c->png, c->info);
    if (type & PNG_COLOR_MASK_ALPHA || png_get_valid(c->png, c->info, PNG_INFO_tRNS)) return 4;
    return type & PNG_COLOR_MASK_COLOR ? 3 : 1;
}

static bool read_header(codec *c) {
    if (setjmp(png_jmpbuf(c->png))) return false;
    png_set_read_fn(c->png, c, on_read);
    png_set_user_limits(c->png, MG_IMAGE_SIDE, MG_IMAGE_SIDE);
    png_set_keep_unknown_chunks(c->png, PNG_HANDLE_CHUNK_NEVER, NULL, -1); /* PLTE, tRNS stay */
    png_set_crc_action(c->png, PNG_CRC_ERROR_QUIT, PNG_CRC_ERROR_QUIT);
    png_set_benign_errors(c->png, 0);
    png_read_info(c->png, c->info);
    return true;
}

static bool read_pixels(codec *c, const mg_image *image) {
    if (setjmp(png_jmpbuf(c->png))) return false;
    set_transformations(c, image->channels, image->wide);
    if (png_get_rowbytes(c->png, c->info) != row_bytes(image))
        png_error(c->png, "an unknown kind of pixels");
    png_read_image(c->png, c->rows);
    png_read_end(c->png, NULL);
    return true;
}

/* Sets c->rows. */
static mg_status list_rows(codec *c, const mg_image *image) {
    c->rows = mg_alloc((size_t)image->height * sizeof *c->rows);
    if (!c->rows) return MG_OOM;
    for (int i = 0; i < image->height; i++)
        c->rows[i] = image->pixels + (size_t)i * row_bytes(image);
    return MG_OK;
}

static mg_status decode(codec *c, int channels, mg_image *image) {
    if (!read_header(c)) return c->status;
    MG_TRY(mg_image_take(image, png_get_image_height(c->png, c->info),
                         png_get_image_width(c->png, c->info),
                         channels ? channels : own_channels(c), c->n, PIXELS_PER_BYTE));
    MG_TRY(list_rows(c, image));
    return read_pixels(c, image) ? MG_OK : c->status;
}

mg_status mg_png_decode(const uint8_t *bytes, size_t n, int channels, const mg_wanted *wanted,
                        mg_image *image) {
    (void)wanted;
    codec c = {.bytes = bytes, .n = n};
    c.png = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, &c, on_error, on_warning, &c,
                                     take_memory, give_memory);
    c.info = c.png ? png_create_info_struct(c.png) : NULL;
    mg_status status = c.info ? decode(&c, channels, image) : MG_OOM;
    png_destroy_read_struct(&c.png, &c.info, NULL);
    mg_free(c.rows);
    return status == MG_OK ? MG_OK : mg_image_failed(image, status);
}

/* ---- writing ---- */

static bool write_all(codec *c, const mg_image *image) {
    if (setjmp(png_jmpbuf(c->png))) return false;
    const int type = image->channels == 1   ? PNG_COLOR_TYPE_GRAY
                     : image->channels == 3 ? PNG_COLOR_TYPE_RGB
                                            : PNG_COLOR_TYPE_RGBA;
    png_set_write_fn(c->png, c, on_write, on_flush);
    png_set_IHDR(c->png, c->info, (png_uint_32)image->width, (png_uint_32)image->height,
                 image->wide ? 16 : 8, type, PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_BASE,
                 PNG_FILTER_TYPE_BASE);
    png_write_info(c->png, c->info);
    if (image->wide) png_set_swap(c->png);
    png_write_image(c->png, c->rows);
    png_write_end(c->png, NULL);
    return true;
}

mg_status mg_png_encode(const mg_image *image, mg_image_file *file) {
    codec c = {.file = file};
    c.png = png_create_write_struct_2(PNG_LIBPNG_VER_STRING, &c, on_error, on_warning, &c,
                                      take_memory, give_memory);
    c.info = c.png ? png_create_info_struct(c.png) : NULL;
    mg_status status = c.info ? list_rows(&c, image) : MG_OOM;
    if (status == MG_OK && !write_all(&c, image)) status = c.status;
    png_destroy_write_struct(&c.png, &c.info);
    mg_free(c.rows);
    if (status != MG_OK) {
        mg_free(file->bytes);
        *file = (mg_image_file){0};
    }
    return status;
}
