/* Fuzzer of images: any bytes must be decoded or refused, without leaking memory. The plug-in's
 * functions are linked in, so that the sanitizers see them. Run by `make fuzz`. */
#include "core/alloc.h"
#include "data/image_codec/codec.h"
#include <stdlib.h>

/* Inputs of this size can hold, at PNG's best compression, an image of 33 MB. The limit and a small
 * quarantine of freed blocks keep the process within the memory that `make fuzz` allows. */
enum { MOST_BYTES = 1024 };
const char *__asan_default_options(void);
const char *__asan_default_options(void) {
    return "quarantine_size_mb=16";
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    if (n > MOST_BYTES) return 0;
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
