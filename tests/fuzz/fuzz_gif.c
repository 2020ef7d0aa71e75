/* Fuzzer of GIF files. Run by `make fuzz`. */
#include "decoder.h"

extern const mg_image_codecs mg_image_plugin;

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    if (mg_image_kind_of(bytes, n) != MG_GIF || n < 10) return 0;
    fuzz_decoder(mg_image_plugin.decode[MG_GIF], bytes, n, fuzz_area(bytes + 6, 2));
    return 0;
}
