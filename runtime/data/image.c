/* Finds the plug-ins, chooses the format, and reads files. */
#include "data/image.h"
#include "core/alloc.h"
#include "core/io.h"
#include "core/plugin.h"
#include <stdatomic.h>
#include <string.h>

/* A plug-in, and what it reads. */
typedef struct plugin {
    const char *name, *images, *packages;
    _Atomic(const mg_image_codecs *) codecs; /* NULL until they are found */
} plugin;
static plugin png_and_jpeg = {"image", "PNG or JPEG", "libpng-dev and libjpeg-dev", NULL};
static plugin gif = {"gif", "GIF", "libgif-dev", NULL};
static plugin webp = {"webp", "WebP", "libwebp-dev", NULL};
static plugin *const plugins[MG_N_IMAGE_KINDS] = {
    [MG_PNG] = &png_and_jpeg, [MG_JPEG] = &png_and_jpeg, [MG_GIF] = &gif, [MG_WEBP] = &webp};

/* The plug-in's functions; NULL after MG_UNSUPPORTED. They are looked for once: that takes about as
 * long as decoding a small image. */
static const mg_image_codecs *find_codecs(plugin *p) {
    const char *why = NULL;
    const mg_image_codecs *codecs = atomic_load(&p->codecs);
    if (!codecs) codecs = mg_plugin_symbol(p->name, MG_IMAGE_SYMBOL, &why);
    atomic_store(&p->codecs, codecs);
    if (!codecs)
        mg_fail(MG_UNSUPPORTED,
                "cannot read or write %s images: mgpu-%s.so: %s; install %s and build again",
                p->images, p->name, why, p->packages);
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

/* Gray as Pillow computes it. */
void mg_image_put(uint8_t *dst, int channels, const uint8_t *rgba, int64_t n) {
    for (int64_t i = 0; i < n; i++, rgba += 4, dst += channels) {
        const uint32_t gray = 19595u * rgba[0] + 38470u * rgba[1] + 7471u * rgba[2] + 0x8000u;
        if (channels == 1)
            dst[0] = (uint8_t)(gray >> 16);
        else
            memmove(dst, rgba, (size_t)channels);
    }
}

mg_status mg_image_failed(mg_image *image, mg_status status) {
    mg_free(image->pixels);
    *image = (mg_image){.wide = image->wide};
    return status;
}

mg_status mg_image_decode(const uint8_t *bytes, size_t n, mg_image_form form,
                          const mg_wanted *wanted, mg_image *image) {
    const int channels = form.channels;
    *image = (mg_image){.wide = form.wide};
    if (channels != 0 && channels != 1 && channels != 3 && channels != 4)
        return mg_fail(MG_USAGE, "an image has 1, 3 or 4 channels, not %d", channels);
    if (n > MG_IMAGE_BYTES)
        return mg_fail(MG_UNSUPPORTED, "the image has %s, more than the limit of %s",
                       MG_SIZE_TEXT(n), MG_SIZE_TEXT(MG_IMAGE_BYTES));
    const mg_image_kind kind = mg_image_kind_of(bytes, n);
    if (kind == MG_N_IMAGE_KINDS) return MG_DATA;
    mg_image_decoder *decode = mg_bmp_decode;
    if (plugins[kind]) {
        const mg_image_codecs *codecs = find_codecs(plugins[kind]);
        if (!codecs) return MG_UNSUPPORTED;
        decode = codecs->decode[kind];
    }
    MG_TRY(decode(bytes, n, channels, wanted, image));
    if (image->wide && kind != MG_PNG) widen(image);
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
    const mg_image_codecs *codecs = find_codecs(&png_and_jpeg);
    *file = (mg_image_file){0};
    return codecs ? codecs->encode_png(image, file) : MG_UNSUPPORTED;
}

mg_status mg_image_encode_jpeg(const mg_image *image, int quality, mg_image_file *file) {
    const mg_image_codecs *codecs = find_codecs(&png_and_jpeg);
    *file = (mg_image_file){0};
    return codecs ? codecs->encode_jpeg(image, quality, file) : MG_UNSUPPORTED;
}
