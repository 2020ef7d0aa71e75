/* What the fuzzers of image formats share: any bytes must be decoded or refused, without leaking
 * memory. The decoders are linked in, so that the sanitizers see them. */
#ifndef TESTS_FUZZ_DECODER_H
#define TESTS_FUZZ_DECODER_H

#include "core/alloc.h"
#include "data/image.h"
#include <stdlib.h>

/* A small input may claim an image of many pixels: those of the largest are left out, which would
 * take the memory that `make fuzz` allows. */
enum { MOST_BYTES = 1024, MOST_PIXELS = 4 << 20 };
const char *__asan_default_options(void);
const char *__asan_default_options(void) {
    return "quarantine_size_mb=16";
}

static inline void fuzz_decoder(mg_image_decoder *decode, const uint8_t *bytes, size_t n,
                                int64_t pixels) {
    static const int channels[] = {0, 1, 3, 4};
    if (n > MOST_BYTES || pixels > MOST_PIXELS) return;
    const int64_t blocks = mg_alloc_get_stats().live_blocks;
    mg_image image = {.wide = n & 4};
    const mg_status status = decode(bytes, n, channels[n % 4], NULL, &image);
    if ((status == MG_OK) != (image.pixels != NULL)) abort();
    mg_free(image.pixels);
    if (mg_alloc_get_stats().live_blocks != blocks) abort();
}

/* Two little-endian numbers of so many bytes, multiplied. */
static inline int64_t fuzz_area(const uint8_t *p, int size) {
    int64_t side[2] = {0};
    for (int k = 0; k < 2; k++)
        for (int i = size - 1; i >= 0; i--) side[k] = side[k] << 8 | p[k * size + i];
    return side[0] > 65500 || side[1] > 65500 ? 0 : side[0] * side[1];
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

#endif
