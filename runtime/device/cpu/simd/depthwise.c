/* Depthwise convolutions, and the gradient of their filters.
 *
 * A tile of neighbouring results is computed at a time, one vector of channels after the other. Its
 * sums, or its part of dy, stay in registers while all taps are added. A pixel that several taps of
 * a group read is loaded once for all of them. */
#include "device/cpu/simd/depthwise.h"
#include "device/cpu/simd/elements.h"
#include "device/cpu/simd/lanes.h"
#include "device/cpu/simd/simd.h"

/* TILE: the most results of a tile; together with the weights of a group and a pixel they fit into
 * 16 registers. CHANNELS: all tiles of a run are computed for so many channels before the next
 * channels, so that their weights stay in the L1 cache and neighbouring cache lines are read
 * together. */
enum { TILE = 8, CHANNELS = 128, WIDTH = MG_DEPTHWISE_WIDTH };

/* Keeps a pixel in a register: gcc would load it again for each tap. */
#if MG_VECTOR >= 32
#define KEEP(v) __asm__("" : "+v"(v))
#else
#define KEEP(v) (void)(v)
#endif

#define EACH_SIZE(CASE) CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7) CASE(8)

/* Results of the tile that begins with result i, so that tiles are as even as can be: 26 results
 * are 7, 7, 6 and 6. */
static int64_t tile_size(const mg_depthwise_run *r, int64_t i) {
    const int64_t left = r->results - i, tiles = (left + TILE - 1) / TILE;
    return (left + tiles - 1) / tiles;
}

static int64_t channels_end(int64_t c, int64_t channels) {
    return channels - c < CHANNELS ? channels : c + CHANNELS;
}

/* The operands of a run's results. */
typedef struct sum_operands {
    const float *w, *bias;
    bool relu;
    void *y;
} sum_operands;

/* Copies n sums of each tap, from `from` on, to `kept`, or back. */
static void keep_sums(const mg_depthwise_run *r, float *sums, int64_t from, int64_t n,
                      float kept[MG_DEPTHWISE_TAPS][LANES], bool back) {
    const mg_depthwise_group *g = r->groups;
    for (int width = WIDTH, tap = 0; width > 0; width--)
        for (int k = r->count[width]; k > 0; k--, g++)
            for (int t = 0; t < width; t++, tap++) {
                float *at = sums + g->weight + t * g->apart + from;
                memcpy(back ? at : kept[tap], back ? kept[tap] : at, (size_t)n * sizeof *at);
            }
}

/* ---- the loops, for each type ---- */

#define ELEMENT float
#define DTYPE MG_F32
#define NAME(x) x##_f32
#include "device/cpu/simd/depthwise_loops.h"
#undef ELEMENT
#undef DTYPE
#undef NAME

/* Halves are converted wherever they are read, which is faster than copies of them as floats. */
#define ELEMENT uint16_t
#if MG_CONVERTS_F16
#define DTYPE MG_F16
#define NAME(x) x##_f16
#include "device/cpu/simd/depthwise_loops.h"
#undef DTYPE
#undef NAME
#endif

#define DTYPE MG_BF16
#define NAME(x) x##_bf16
#include "device/cpu/simd/depthwise_loops.h"
