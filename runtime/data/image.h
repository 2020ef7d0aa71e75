/* Images: PNG and JPEG files as 8-bit or 16-bit pixels. The formats are read and written by libpng
 * and libjpeg-turbo in a plug-in, mgpu-image.so, which is opened when it is first needed: the
 * library itself depends on neither.
 *
 * Files are treated as hostile. The size that a header claims is checked against fixed limits and
 * against the number of bytes that follow before memory is allocated, and any damage that the
 * format's library reports is MG_DATA. */
#ifndef MG_DATA_IMAGE_H
#define MG_DATA_IMAGE_H

#include "core/dtype.h"
#include "data/region.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    MG_IMAGE_SIDE = 65500,   /* the largest width and height, which is JPEG's limit */
    MG_IMAGE_BYTES = 1 << 28 /* the maximum bytes of an image's pixels, and of a file */
};

/* Rows from the top, each of width * channels samples. channels: 1 gray, 3 red green blue, 4 with
 * alpha. */
typedef struct mg_image {
    int height, width, channels;
    uint8_t *pixels; /* owned, for mg_free */
    bool wide;       /* samples are uint16_t in the machine's byte order, else uint8_t */
} mg_image;

/* The form in which an image is wanted. */
typedef struct mg_image_form {
    int channels; /* 1, 3 or 4; 0: the file's own (a palette counts as 3, alpha makes 4) */
    bool wide;    /* 16 bits; a sample v of a file with 8 bits becomes 257 v. Else 16 bits of a file
                   * are rounded to 8 */
} mg_image_form;

/* The number of samples. */
static inline size_t mg_image_samples(const mg_image *image) {
    return (size_t)image->height * (size_t)image->width * (size_t)image->channels;
}

/* Bytes of a file; owned, for mg_free. */
typedef struct mg_image_file {
    uint8_t *bytes;
    size_t n, room;
} mg_image_file;

/* Decodes a PNG or JPEG file, recognised by its first bytes. MG_DATA: damaged, truncated, or
 * another format; MG_UNSUPPORTED: too large, in CMYK colors, or the plug-in is missing; MG_OOM.
 *
 * wanted: NULL, or the region of the image that will be used. Pixels in it equal those of the whole
 * image, and the failures are the same, wherever the damage is. For a JPEG file hardly any other
 * pixels are computed; a PNG file is decoded as a whole. */
mg_status mg_image_decode(const uint8_t *bytes, size_t n, mg_image_form form,
                          const mg_wanted *wanted, mg_image *image);
/* The same for a file; messages begin with its path. MG_IO. */
mg_status mg_image_load(const char *path, mg_image_form form, const mg_wanted *wanted,
                        mg_image *image);

/* Makes the samples of a wide image int32, or float32 from 0 to 1. Owned (mg_free); NULL: MG_OOM.
 * The image loses its pixels in either case. */
void *mg_image_take_values(mg_image *image, mg_dtype dtype);

/* Sets the size and the channels from a file's header, without pixels; only the header is read.
 * Messages begin with the path. MG_DATA and MG_UNSUPPORTED as mg_image_decode, MG_IO. */
mg_status mg_image_probe(const char *path, mg_image *image);

/* Encodes an image. PNG is lossless. JPEG has a quality from 1 to 100, colors at full resolution,
 * 8 bits and no alpha. MG_USAGE, MG_UNSUPPORTED: the plug-in is missing; MG_OOM. */
mg_status mg_image_encode_png(const mg_image *image, mg_image_file *file);
mg_status mg_image_encode_jpeg(const mg_image *image, int quality, mg_image_file *file);

/* The table that the plug-in exports as MG_IMAGE_SYMBOL. The caller passes an empty file ({0}), or
 * an image that is empty but for `wide`, and on failure it has no pixels. JPEG has 8 bits: they
 * fill the first half of the pixels of a wide image. */
typedef struct mg_image_codecs {
    mg_status (*decode_png)(const uint8_t *bytes, size_t n, int channels, mg_image *image);
    mg_status (*decode_jpeg)(const uint8_t *bytes, size_t n, int channels, const mg_wanted *wanted,
                             mg_image *image);
    mg_status (*encode_png)(const mg_image *image, mg_image_file *file);
    mg_status (*encode_jpeg)(const mg_image *image, int quality, mg_image_file *file);
} mg_image_codecs;
#define MG_IMAGE_SYMBOL "mg_image_plugin"

#endif
