/* What the files of mgpu-image.so share. */
#ifndef MG_DATA_IMAGE_CODEC_CODEC_H
#define MG_DATA_IMAGE_CODEC_CODEC_H

#include "data/image.h"

/* png.c and jpeg.c: see mg_image_codecs. */
mg_status mg_png_decode(const uint8_t *bytes, size_t n, int channels, mg_image *image);
mg_status mg_png_encode(const mg_image *image, mg_image_file *file);
mg_status mg_jpeg_decode(const uint8_t *bytes, size_t n, int channels, const mg_wanted *wanted,
                         mg_image *image);
mg_status mg_jpeg_encode(const mg_image *image, int quality, mg_image_file *file);

/* Sets the image's size and allocates its pixels, 8 or 16 bits a sample, if the size is within the
 * limits and n bytes of a file can hold that many pixels. per_byte: the maximum number of pixels
 * that a byte of the format can encode. MG_DATA, MG_UNSUPPORTED, MG_OOM. */
mg_status mg_image_take(mg_image *image, int64_t height, int64_t width, int channels, size_t n,
                        int64_t per_byte);

#endif
