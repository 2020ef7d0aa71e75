/* mgpu-image.so: the table of its functions. */
#include "data/image_codec/codec.h"

extern const mg_image_codecs mg_image_plugin;
const mg_image_codecs mg_image_plugin = {
    .decode = {[MG_PNG] = mg_png_decode, [MG_JPEG] = mg_jpeg_decode},
    .encode_png = mg_png_encode,
    .encode_jpeg = mg_jpeg_encode};
