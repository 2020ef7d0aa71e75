/* Fuzzer of images: any bytes must be decoded or refused, without leaking memory, and a region of a
 * JPEG image must have the pixels of the whole one, or fail as it does. The plug-in's functions are
 * linked in, so that the sanitizers see them. Run by `make fuzz`. */
#include "core/alloc.h"
#include "data/image_codec/codec.h"
#include <stdlib.h>
#include <string.h>

/* Inputs of this size can hold, at PNG's best compression, an image of 33 MB. The limit and a small
 * quarantine of freed blocks keep the process within the memory that `make fuzz` allows. */
enum { MOST_BYTES = 1024 };
const char *__asan_default_options(void);
const char *__asan_default_options(void) {
    return "quarantine_size_mb=16";
}

/* Requests a region that the last bytes of the input choose. */
typedef struct chosen {
    mg_wanted base;
    const uint8_t *end;
    mg_region region;
} chosen;

/* The part of n positions from `first` on. */
static void choose_part(uint8_t from, uint8_t size, int64_t n, int64_t *first, int64_t *count) {
    *first = from * n / 256;
    *count = 1 + size * (n - *first - 1) / 255;
}

static mg_status choose(const mg_wanted *w, int64_t height, int64_t width, mg_region *r) {
    chosen *c = (chosen *)(uintptr_t)w;
    choose_part(c->end[-1], c->end[-2], height, &r->row, &r->height);
    choose_part(c->end[-3], c->end[-4], width, &r->column, &r->width);
    c->region = *r;
    return MG_OK;
}

static void check_region(const uint8_t *bytes, size_t n, int channels, mg_status expected,
                         const mg_image *whole) {
    if (n < 4) return;
    chosen c = {.base = {choose}, .end = bytes + n};
    const mg_region *r = &c.region;
    mg_image part = {.wide = whole->wide};
    if (mg_jpeg_decode(bytes, n, channels, &c.base, &part) != expected) abort();
    for (int64_t row = r->row; expected == MG_OK && row < r->row + r->height; row++) {
        const int64_t at = (row * whole->width + r->column) * whole->channels;
        const size_t size = (size_t)(r->width * whole->channels);
        if (memcmp(whole->pixels + at, part.pixels + at, size) != 0) abort();
    }
    mg_free(part.pixels);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    if (n > MOST_BYTES) return 0;
    static const int channels[] = {0, 1, 3, 4};
    const int64_t blocks = mg_alloc_get_stats().live_blocks;
    mg_image image = {.wide = n & 4};
    const int wanted = channels[n % 4];
    if (n && bytes[0] == 0xff)
        check_region(bytes, n, wanted, mg_jpeg_decode(bytes, n, wanted, NULL, &image), &image);
    else
        mg_png_decode(bytes, n, wanted, NULL, &image);
    mg_free(image.pixels);
    if (mg_alloc_get_stats().live_blocks != blocks) abort();
    return 0;
}
