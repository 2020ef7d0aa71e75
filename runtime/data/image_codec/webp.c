/* mgpu-webp.so: WebP files, lossy and lossless, with libwebp. Animations are refused. */
#include "core/alloc.h"
#include "data/image.h"
#include <webp/decode.h>

/* An image of one color takes hardly any bytes, whatever its size. */
enum { PIXELS_PER_BYTE = 1 << 20 };

/* Whether the file has fewer bytes than its header says: libwebp does not mind if the last ones are
 * missing. */
static bool is_truncated(const uint8_t *bytes, size_t n) {
    uint32_t size = 0; /* without the 8 bytes "RIFF" and size */
    for (int i = 3; i >= 0; i--) size = size << 8 | bytes[4 + i];
    return n - 8 < size;
}

static mg_status fail(VP8StatusCode code) {
    static const struct {
        VP8StatusCode code;
        mg_status status;
        const char *text;
    } failures[] = {
        /* libwebp 1.5 says so of some damaged files, of which 1.2 says that they are damaged */
        {VP8_STATUS_OUT_OF_MEMORY, MG_DATA,
         "the file is damaged, or libwebp had too little memory"},
        {VP8_STATUS_INVALID_PARAM, MG_UNSUPPORTED,
         "libwebp has another version than when mgpulua was built"},
        {VP8_STATUS_UNSUPPORTED_FEATURE, MG_UNSUPPORTED,
         "libwebp does not know this kind of image"},
        {VP8_STATUS_NOT_ENOUGH_DATA, MG_DATA, "the file is truncated"},
        {VP8_STATUS_OK, MG_DATA, "the file is damaged"}, /* any other code */
    };
    int i = 0;
    while (failures[i].code != code && failures[i].code != VP8_STATUS_OK) i++;
    return mg_fail(failures[i].status, "WebP: %s", failures[i].text);
}

/* Decodes four channels, which are reduced afterwards to those wanted. */
static mg_status decode(const uint8_t *bytes, size_t n, int channels, mg_image *image) {
    WebPDecoderConfig config;
    if (is_truncated(bytes, n))
        return mg_fail(MG_DATA, "WebP: the file is truncated: it ends after %zu bytes", n);
    if (!WebPInitDecoderConfig(&config)) return fail(VP8_STATUS_INVALID_PARAM);
    const VP8StatusCode header = WebPGetFeatures(bytes, n, &config.input);
    if (header != VP8_STATUS_OK) return fail(header);
    if (config.input.has_animation)
        return mg_fail(MG_UNSUPPORTED, "WebP: the file is an animation: save one image of it");
    MG_TRY(mg_image_take(image, config.input.height, config.input.width, 4, n, PIXELS_PER_BYTE));
    config.output.colorspace = MODE_RGBA;
    config.output.is_external_memory = 1;
    config.output.u.RGBA.rgba = image->pixels;
    config.output.u.RGBA.stride = image->width * 4;
    config.output.u.RGBA.size = mg_image_samples(image);
    const VP8StatusCode code = WebPDecode(bytes, n, &config);
    WebPFreeDecBuffer(&config.output);
    if (code != VP8_STATUS_OK) return fail(code);
    image->channels = channels ? channels : config.input.has_alpha ? 4 : 3;
    mg_image_put(image->pixels, image->channels, image->pixels,
                 (int64_t)image->height * image->width);
    return MG_OK;
}

static mg_status webp_decode(const uint8_t *bytes, size_t n, int channels, const mg_wanted *wanted,
                             mg_image *image) {
    (void)wanted;
    const mg_status status = decode(bytes, n, channels, image);
    return status == MG_OK ? MG_OK : mg_image_failed(image, status);
}

extern const mg_image_codecs mg_image_plugin;
const mg_image_codecs mg_image_plugin = {.decode = {[MG_WEBP] = webp_decode}};
