/* Finds the image plug-in, chooses the format, and reads files. */
#include "data/image.h"
#include "core/alloc.h"
#include "core/io.h"
#include "core/plugin.h"
#include <stdatomic.h>
#include <string.h>

/* The plug-in's functions; NULL after MG_UNSUPPORTED. They are looked for once: that takes about as
 * long as decoding a small image. */
static const mg_image_codecs *find_codecs(void) {
    static _Atomic(const mg_image_codecs *) known;
    const char *why = NULL;
    const mg_image_codecs *codecs = atomic_load(&known);
    if (!codecs) codecs = mg_plugin_symbol("image", MG_IMAGE_SYMBOL, &why);
    atomic_store(&known, codecs);
    if (!codecs)
        mg_fail(MG_UNSUPPORTED,
                "cannot read or write images: mgpu-image.so: %s; install libpng-dev and "
                "libjpeg-dev and build again",
                why);
    return codecs;
}

/* From 8 bits, in the first half of the pixels, to 16; backwards, so that no sample is overwritten
 * before it is read. */
static void widen(const mg_image *image) {
    const uint8_t *from = image->pixels;
    uint16_t *to = (uint16_t *)(void *)image->pixels;
    for (size_t i = mg_image_samples(image); i-- > 0;) to[i] = (uint16_t)(257 * from[i]);
}

void *mg_image_take_values(mg_image *image, mg_dtype dtype) {
    const size_t n = mg_image_samples(image);
    const uint16_t *from = (const uint16_t *)(const void *)image->pixels;
    void *values = mg_alloc(n * mg_dtype_size(dtype));
    int32_t *whole = values;
    float *real = values;
    if (values && dtype == MG_I32)
        for (size_t i = 0; i < n; i++) whole[i] = from[i];
    else if (values)
        for (size_t i = 0; i < n; i++) real[i] = (float)from[i] / 65535.0F;
    mg_free(image->pixels);
    image->pixels = NULL;
    return values;
}

mg_status mg_image_decode(const uint8_t *bytes, size_t n, mg_image_form form,
                          const mg_wanted *wanted, mg_image *image) {
    static const uint8_t png[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
    static const uint8_t jpeg[] = {0xff, 0xd8, 0xff};
    const int channels = form.channels;
    *image = (mg_image){.wide = form.wide};
    if (channels != 0 && channels != 1 && channels != 3 && channels != 4)
        return mg_fail(MG_USAGE, "an image has 1, 3 or 4 channels, not %d", channels);
    if (n > MG_IMAGE_BYTES)
        return mg_fail(MG_UNSUPPORTED, "the image has %s, more than the limit of %s",
                       MG_SIZE_TEXT(n), MG_SIZE_TEXT(MG_IMAGE_BYTES));
    const bool is_png = n >= sizeof png && memcmp(bytes, png, sizeof png) == 0;
    const bool is_jpeg = n >= sizeof jpeg && memcmp(bytes, jpeg, sizeof jpeg) == 0;
    if (!is_png && !is_jpeg)
        return mg_fail(MG_DATA, "neither a PNG nor a JPEG image, by its first bytes");
    const mg_image_codecs *codecs = find_codecs();
    if (!codecs) return MG_UNSUPPORTED;
    if (is_png) return codecs->decode_png(bytes, n, channels, image);
    MG_TRY(codecs->decode_jpeg(bytes, n, channels, wanted, image));
    if (image->wide) widen(image);
    return MG_OK;
}

/* Reads the file's bytes, at most one more than the limit, which mg_image_decode then refuses. */
static mg_status read_file(const char *path, mg_image_file *file) {
    int64_t size = 0;
    mg_file *f = mg_io_open(path);
    mg_status status = f ? mg_io_size(f, &size) : mg_error_code();
    if (status == MG_OK) {
        const size_t room = size > MG_IMAGE_BYTES ? MG_IMAGE_BYTES + 1 : (size_t)size;
        file->bytes = mg_alloc(room);
        status = file->bytes ? mg_io_read(f, file->bytes, room, &file->n) : MG_OOM;
    }
    mg_io_close(f);
    return status;
}

mg_status mg_image_load(const char *path, mg_image_form form, const mg_wanted *wanted,
                        mg_image *image) {
    mg_image_file file = {0};
    *image = (mg_image){0};
    mg_status status = read_file(path, &file);
    if (status == MG_OK) {
        status = mg_image_decode(file.bytes, file.n, form, wanted, image);
        if (status != MG_OK) mg_error_prefix(path);
    }
    mg_free(file.bytes);
    return status;
}

mg_status mg_image_encode_png(const mg_image *image, mg_image_file *file) {
    const mg_image_codecs *codecs = find_codecs();
    *file = (mg_image_file){0};
    return codecs ? codecs->encode_png(image, file) : MG_UNSUPPORTED;
}

mg_status mg_image_encode_jpeg(const mg_image *image, int quality, mg_image_file *file) {
    const mg_image_codecs *codecs = find_codecs();
    *file = (mg_image_file){0};
    return codecs ? codecs->encode_jpeg(image, quality, file) : MG_UNSUPPORTED;
}
