/* mgpu-image.so: the table of its functions, and the check of sizes. */
#include "core/alloc.h"
#include "data/image_codec/codec.h"

mg_status mg_image_take(mg_image *image, int64_t height, int64_t width, int channels, size_t n,
                        int64_t per_byte) {
    if (height < 1 || width < 1)
        return mg_fail(MG_DATA, "the image has no pixels: its size is %lld x %lld",
                       (long long)width, (long long)height);
    if (height > MG_IMAGE_SIDE || width > MG_IMAGE_SIDE ||
        height * width * channels << image->wide > MG_IMAGE_BYTES)
        return mg_fail(MG_UNSUPPORTED,
                       "the image is %lld x %lld, beyond the limits of %d a side and %s of pixels",
                       (long long)width, (long long)height, MG_IMAGE_SIDE,
                       MG_SIZE_TEXT(MG_IMAGE_BYTES));
    if (height * width / per_byte > (int64_t)n)
        return mg_fail(MG_DATA, "%zu bytes are too few for an image of %lld x %lld", n,
                       (long long)width, (long long)height);
    image->height = (int)height, image->width = (int)width, image->channels = channels;
    image->pixels = mg_alloc((size_t)(height * width * channels << image->wide));
    return image->pixels ? MG_OK : MG_OOM;
}

extern const mg_image_codecs mg_image_plugin;
const mg_image_codecs mg_image_plugin = {mg_png_decode, mg_jpeg_decode, mg_png_encode,
                                         mg_jpeg_encode};
