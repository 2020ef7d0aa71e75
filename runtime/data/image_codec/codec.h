/* What the files of mgpu-image.so share. */
#ifndef MG_DATA_IMAGE_CODEC_CODEC_H
#define MG_DATA_IMAGE_CODEC_CODEC_H

#include "data/image.h"

/* png.c and jpeg.c: see mg_image_codecs. */
mg_image_decoder mg_png_decode, mg_jpeg_decode;
mg_status mg_png_encode(const mg_image *image, mg_image_file *file);
mg_status mg_jpeg_encode(const mg_image *image, int quality, mg_image_file *file);

#endif
