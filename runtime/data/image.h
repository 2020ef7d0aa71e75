/* Images: PNG, JPEG, BMP, GIF and WebP files as 8-bit or 16-bit pixels; PNG and JPEG files are also
 * written. Libraries read the formats in plug-ins, which are opened when they are first needed, so
 * that this library depends on none of them: libpng and libjpeg-turbo in mgpu-image.so, giflib in
 * mgpu-gif.so, libwebp in mgpu-webp.so. BMP files are read by image_bmp.c.
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

/* The formats of files. */
typedef enum mg_image_kind {
    MG_PNG,
    MG_JPEG,
    MG_BMP,
    MG_GIF,
    MG_WEBP,
    MG_N_IMAGE_KINDS
} mg_image_kind;

/* The kind of a file that begins with these bytes, of which MG_IMAGE_HEAD are enough.
 * MG_N_IMAGE_KINDS: none, with MG_DATA as the error. */
enum { MG_IMAGE_HEAD = 18 };
mg_image_kind mg_image_kind_of(const uint8_t *head, size_t n);

/* Decodes a file, recognised by its first bytes: of a GIF file the first image. MG_DATA: damaged,
 * truncated, or another format; MG_UNSUPPORTED: too large, a rare kind of the format, or the
 * plug-in is missing; MG_OOM.
 *
 * wanted: NULL, or the region of the image that will be used. Pixels in it equal those of the whole
 * image, and the failures are the same, wherever the damage is. For a JPEG file hardly any other
 * pixels are computed; files of other kinds are decoded as a whole. */
mg_status mg_image_decode(const uint8_t *bytes, size_t n, mg_image_form form,
                          const mg_wanted *wanted, mg_image *image);
/* The same for a file; messages begin with its path. MG_IO. */
mg_status mg_image_load(const char *path, mg_image_form form, const mg_wanted *wanted,
                        mg_image *image);

/* Makes the samples of a wide image int32, or float32 from 0 to 1. Owned (mg_free); NULL: MG_OOM.
 * The image loses its pixels in either case. */
void *mg_image_take_values(mg_image *image, mg_dtype dtype);

/* Sets the size and the channels from a file's header, without pixels; only the header is read. The
 * alpha of BMP and GIF files does not count.
 * Messages begin with the path. MG_DATA and MG_UNSUPPORTED as mg_image_decode, MG_IO. */
mg_status mg_image_probe(const char *path, mg_image *image);

/* Encodes an image. PNG is lossless. JPEG has a quality from 1 to 100, colors at full resolution,
 * 8 bits and no alpha. MG_USAGE, MG_UNSUPPORTED: the plug-in is missing; MG_OOM. */
mg_status mg_image_encode_png(const mg_image *image, mg_image_file *file);
mg_status mg_image_encode_jpeg(const mg_image *image, int quality, mg_image_file *file);

/* Decodes a file of one kind. The caller passes an image that is empty but for `wide`, and on
 * failure it has no pixels. PNG alone has 16 bits: of other kinds, 8 bits fill the first half of
 * the pixels of a wide image. */
typedef mg_status mg_image_decoder(const uint8_t *bytes, size_t n, int channels,
                                   const mg_wanted *wanted, mg_image *image);
mg_image_decoder mg_bmp_decode; /* image_bmp.c */

/* The table that a plug-in exports as MG_IMAGE_SYMBOL; NULL for what it has not. The caller of an
 * encoder passes an empty file ({0}), and on failure it is empty again. */
typedef struct mg_image_codecs {
    mg_image_decoder *decode[MG_N_IMAGE_KINDS];
    mg_status (*encode_png)(const mg_image *image, mg_image_file *file);
    mg_status (*encode_jpeg)(const mg_image *image, int quality, mg_image_file *file);
} mg_image_codecs;
#define MG_IMAGE_SYMBOL "mg_image_plugin"

/* ---- for the decoders ---- */

/* Sets the image's size and allocates its pixels, 8 or 16 bits a sample, if the size is within the
 * limits and n bytes of a file can hold that many pixels. per_byte: the maximum number of pixels
 * that a byte of the format can encode. MG_DATA, MG_UNSUPPORTED, MG_OOM. */
mg_status mg_image_take(mg_image *image, int64_t height, int64_t width, int channels, size_t n,
                        int64_t per_byte);
/* Writes n pixels of 4 bytes, red green blue alpha, as pixels of so many channels of 8 bits; also
 * in place. */
void mg_image_put(uint8_t *dst, int channels, const uint8_t *rgba, int64_t n);
/* Frees the pixels of a failed decoder's image. Returns the status. */
mg_status mg_image_failed(mg_image *image, mg_status status);

#endif
