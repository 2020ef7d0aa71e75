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

mg_status mg_image_decode(const uint8_t *bytes, size_t n, int channels, const mg_wanted *wanted,
                          mg_image *image) {
    static const uint8_t png[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
    static const uint8_t jpeg[] = {0xff, 0xd8, 0xff};
    *image = (mg_image){0};
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
    return is_png ? codecs->decode_png(bytes, n, channels, image)
                  : codecs->decode_jpeg(bytes, n, channels, wanted, image);
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

mg_status mg_image_load(const char *path, int channels, const mg_wanted *wanted, mg_image *image) {
    mg_image_file file = {0};
    *image = (mg_image){0};
    mg_status status = read_file(path, &file);
    if (status == MG_OK) {
        status = mg_image_decode(file.bytes, file.n, channels, wanted, image);
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
