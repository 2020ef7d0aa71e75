/* Fuzzer of images: any bytes must be decoded or refused, without leaking memory. The plug-in's
 * functions are linked in, so that the sanitizers see them. Run by `make fuzz`. */
#include "core/alloc.h"
#include "data/image_codec/codec.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    static const int channels[] = {0, 1, 3, 4};
    const int64_t blocks = mg_alloc_get_stats().live_blocks;
    mg_image image = {0};
    const int wanted = channels[n % 4];
    if (n && bytes[0] == 0xff)
        mg_jpeg_decode(bytes, n, wanted, &image);
    else
        mg_png_decode(bytes, n, wanted, &image);
    mg_free(image.pixels);
    if (mg_alloc_get_stats().live_blocks != blocks) abort();
    return 0;
}
