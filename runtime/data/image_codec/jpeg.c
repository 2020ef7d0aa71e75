/* JPEG with libjpeg-turbo, through its TurboJPEG interface, which catches the errors of libjpeg.
 *
 * What libjpeg calls a warning (data that are truncated or damaged, where it would go on with gray)
 * is an error here. */
#include "core/alloc.h"
#include "data/image_codec/codec.h"
#include <turbojpeg.h>

/* The most pixels that a byte can stand for: a block of 8 x 8 has at least one bit, and another
 * component of the image may have 4 x 4 times as many pixels in its blocks. */
enum { PIXELS_PER_BYTE = 64 * 8 * 16 };

static mg_status fail_jpeg(tjhandle handle, mg_status code) {
    return mg_fail(code, "JPEG: %s", handle ? tjGetErrorStr2(handle) : tjGetErrorStr());
}

static int pixel_format(int channels) {
    return channels == 1 ? TJPF_GRAY : channels == 3 ? TJPF_RGB : TJPF_RGBA;
}

static mg_status decode(tjhandle handle, const uint8_t *bytes, size_t n, int channels,
                        mg_image *image) {
    int width = 0, height = 0, sampling = 0, colors = 0; /* a file of tables alone sets none */
    if (tjDecompressHeader3(handle, bytes, n, &width, &height, &sampling, &colors) != 0)
        return fail_jpeg(handle, MG_DATA);
    if (width < 1 || height < 1)
        return mg_fail(MG_DATA, "JPEG: the file is truncated, or has no image");
    if (colors == TJCS_CMYK || colors == TJCS_YCCK)
        return mg_fail(MG_UNSUPPORTED, "JPEG: the image is in CMYK colors: save it as RGB");
    const int own = colors == TJCS_GRAY ? 1 : 3;
    MG_TRY(mg_image_take(image, height, width, channels ? channels : own, n, PIXELS_PER_BYTE));
    /* LIMITSCANS: a small progressive file could otherwise keep the decoder busy for hours */
    if (tjDecompress2(handle, bytes, n, image->pixels, width, 0, height,
                      pixel_format(image->channels),
                      TJFLAG_STOPONWARNING | TJFLAG_LIMITSCANS | TJFLAG_ACCURATEDCT) != 0)
        return fail_jpeg(handle, MG_DATA);
    return MG_OK;
}

mg_status mg_jpeg_decode(const uint8_t *bytes, size_t n, int channels, mg_image *image) {
    tjhandle handle = tjInitDecompress();
    const mg_status status =
        handle ? decode(handle, bytes, n, channels, image) : fail_jpeg(NULL, MG_OOM);
    if (handle) tjDestroy(handle);
    if (status == MG_OK) return MG_OK;
    mg_free(image->pixels);
    *image = (mg_image){0};
    return status;
}

static mg_status encode(tjhandle handle, const mg_image *image, int quality, mg_image_file *file) {
    const int sampling = image->channels == 1 ? TJSAMP_GRAY : TJSAMP_444;
    unsigned long size = tjBufSize(image->width, image->height, sampling);
    file->bytes = mg_alloc(size);
    if (!file->bytes) return MG_OOM;
    file->room = size;
    if (tjCompress2(handle, image->pixels, image->width, 0, image->height,
                    pixel_format(image->channels), &file->bytes, &size, sampling, quality,
                    TJFLAG_NOREALLOC | TJFLAG_ACCURATEDCT) != 0)
        return fail_jpeg(handle, MG_INTERNAL);
    file->n = size;
    return MG_OK;
}

mg_status mg_jpeg_encode(const mg_image *image, int quality, mg_image_file *file) {
    if (image->channels == 4)
        return mg_fail(MG_USAGE, "a JPEG image has no alpha: give 3 channels, or save a PNG");
    tjhandle handle = tjInitCompress();
    const mg_status status =
        handle ? encode(handle, image, quality, file) : fail_jpeg(NULL, MG_OOM);
    if (handle) tjDestroy(handle);
    if (status == MG_OK) return MG_OK;
    mg_free(file->bytes);
    *file = (mg_image_file){0};
    return status;
}
