/* Images: PNG and JPEG files as 8-bit pixels. The formats are read and written by libpng and
 * libjpeg-turbo in a plug-in, mgpu-image.so, which is opened when it is first needed: the library
 * itself depends on neither.
 *
 * Files are treated as hostile. The size that a header claims is checked against fixed limits and
 * against the number of bytes that follow before memory is allocated, and any damage that the
 * format's library reports is MG_DATA. */
#ifndef MG_DATA_IMAGE_H
#define MG_DATA_IMAGE_H

#include "data/region.h"
#include <stddef.h>
#include <stdint.h>

enum {
    MG_IMAGE_SIDE = 65500,   /* the largest width and height, which is JPEG's limit */
    MG_IMAGE_BYTES = 1 << 28 /* the maximum bytes of an image's pixels, and of a file */
};

/* Rows from the top, each of width * channels bytes. channels: 1 gray, 3 red green blue, 4 with
 * alpha. */
typedef struct mg_image {
    int height, width, channels;
    uint8_t *pixels; /* owned, for mg_free */
} mg_image;

/* Bytes of a file; owned, for mg_free. */
typedef struct mg_image_file {
    uint8_t *bytes;
    size_t n, room;
} mg_image_file;

/* Decodes a PNG or JPEG file, recognised by its first bytes. channels: 1, 3 or 4, or 0 for the
 * file's own (a palette counts as 3, alpha makes 4). MG_DATA: damaged, truncated, or another
 * format; MG_UNSUPPORTED: too large, in CMYK colors, or the plug-in is missing; MG_OOM.
 *
 * wanted: NULL, or the region of the image that will be used. Pixels in it equal those of the whole
 * image, and the failures are the same, wherever the damage is. For a JPEG file hardly any other
 * pixels are computed; a PNG file is decoded as a whole. */
mg_status mg_image_decode(const uint8_t *bytes, size_t n, int channels, const mg_wanted *wanted,
                          mg_image *image);
/* The same for a file; messages begin with its path. MG_IO. */
mg_status mg_image_load(const char *path, int channels, const mg_wanted *wanted, mg_image *image);

/* Sets the size and the channels from a file's header, without pixels; only the header is read.
 * Messages begin with the path. MG_DATA and MG_UNSUPPORTED as mg_image_decode, MG_IO. */
mg_status mg_image_probe(const char *path, mg_image *image);

/* Encodes an image. PNG is lossless. JPEG has a quality from 1 to 100, colors at full resolution,
 * and no alpha. MG_USAGE, MG_UNSUPPORTED: the plug-in is missing; MG_OOM. */
mg_status mg_image_encode_png(const mg_image *image, mg_image_file *file);
mg_status mg_image_encode_jpeg(const mg_image *image, int quality, mg_image_file *file);

/* The table that the plug-in exports as MG_IMAGE_SYMBOL. The caller passes an empty image or file
 * ({0}), and on failure it is empty again. */
typedef struct mg_image_codecs {
    mg_status (*decode_png)(const uint8_t *bytes, size_t n, int channels, mg_image *image);
    mg_status (*decode_jpeg)(const uint8_t *bytes, size_t n, int channels, const mg_wanted *wanted,
                             mg_image *image);
    mg_status (*encode_png)(const mg_image *image, mg_image_file *file);
    mg_status (*encode_jpeg)(const mg_image *image, int quality, mg_image_file *file);
} mg_image_codecs;
#define MG_IMAGE_SYMBOL "mg_image_plugin"

#endif
