/* Fuzzer of WebP files. Run by `make fuzz`. */
#include "decoder.h"
#include <webp/decode.h>

extern const mg_image_codecs mg_image_plugin;

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    int width = 0, height = 0;
    if (mg_image_kind_of(bytes, n) != MG_WEBP) return 0;
    WebPGetInfo(bytes, n, &width, &height);
    fuzz_decoder(mg_image_plugin.decode[MG_WEBP], bytes, n, (int64_t)width * height);
    return 0;
}
