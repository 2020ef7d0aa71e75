/* Convolutions for one dtype as products of matrices: see conv.cu. A row or column of a matrix is a
 * pixel, or a cell of a kernel with a channel. */

#ifndef MG_CONV_SPLIT
#define MG_CONV_SPLIT
/* What is left of *i, which becomes *i / d. */
DEVICE int64_t mg_conv_split(uint32_t *i, mg_divisor d) {
    const uint32_t whole = *i, quotient = mg_divide(whole, d);
    *i = quotient;
    return whole - quotient * d.n;
}
#endif

/* x at tap (i, j) of output pixel o of an image, channel c of a group; 0 in the padding. */
DEVICE REAL NAME(conv_x)(const conv_params *p, int64_t o, int64_t tap, int group) {
    uint32_t row = (uint32_t)tap, n = (uint32_t)o;
    const int64_t c = mg_conv_split(&row, p->by_c), column = mg_conv_split(&row, p->by_kw);
    const int64_t ox = mg_conv_split(&n, p->by_ow), oy = mg_conv_split(&n, p->by_oh);
    const int64_t y = oy * p->down + (int64_t)row * p->spread_y - p->top;
    const int64_t x = ox * p->across + column * p->spread_x - p->left;
    if (y < 0 || y >= p->h || x < 0 || x >= p->wide) return 0;
    return LOAD(p->x, ((n * p->h + y) * p->wide + x) * p->c * p->groups + group * p->c + c);
}

/* dy where tap (i, j) meets pixel `at` of the image, kernel k of a group; 0 where none does. */
DEVICE REAL NAME(conv_dy)(const conv_params *p, int64_t at, int64_t tap, int group) {
    uint32_t row = (uint32_t)tap, n = (uint32_t)at;
    const int64_t k = mg_conv_split(&row, p->by_k), column = mg_conv_split(&row, p->by_kw);
    const int64_t ix = mg_conv_split(&n, p->by_wide), iy = mg_conv_split(&n, p->by_h);
    const int64_t y = iy + p->top - (int64_t)row * p->spread_y;
    const int64_t x = ix + p->left - column * p->spread_x;
    if (y < 0 || x < 0) return 0;
    uint32_t oy = (uint32_t)y, ox = (uint32_t)x;
    if (mg_conv_split(&oy, p->by_down) || mg_conv_split(&ox, p->by_across)) return 0;
    if (oy >= p->oh || ox >= p->ow) return 0;
    return LOAD(p->y, ((n * p->oh + oy) * p->ow + ox) * p->k * p->groups + group * p->k + k);
}

#define ROW0 (blockIdx.x / across % down * MG_TILE)
#define COLUMN0 (blockIdx.x % across * MG_TILE)
#define TILES(rows, columns)                                                                       \
    const int64_t down = ((rows) + MG_TILE - 1) / MG_TILE;                                         \
    const int64_t across = ((columns) + MG_TILE - 1) / MG_TILE;                                    \
    const int group = (int)(blockIdx.x / (down * across) % p.groups);                              \
    const int64_t row0 = ROW0, column0 = COLUMN0

/* w of a group: {kh, kw, c, k}, k all kernels */
#define W_AT(tap, j) LOAD(p.w, (tap)*p.k *p.groups + group * p.k + (j))

#define A_AT(o, tap) NAME(conv_x)(&p, o, tap, group)
#define PUT_AT(o, j, v)                                                                            \
    do {                                                                                           \
        const int64_t kernel = group * p.k + (j);                                                  \
        REAL y = v + (p.bias ? (REAL)LOAD(p.bias, kernel) : 0);                                    \
        if (p.relu && y < 0) y = 0;                                                                \
        STORE(p.out, (o)*p.k *p.groups + kernel, y);                                               \
    } while (0)
KERNEL(NAME(conv), conv_params) {
    const int64_t pixels = p.n * p.oh * p.ow, taps = (int64_t)p.kh * p.kw * p.c;
    TILES(pixels, p.k);
    TILE_PRODUCT(REAL, pixels, p.k, 0, taps, row0, column0, 1, A_AT, 1, W_AT, PUT_AT);
}
#undef A_AT
#undef PUT_AT

#define A_AT(at, tap) NAME(conv_dy)(&p, at, tap, group)
#define B_AT(tap, j)                                                                               \
    LOAD(p.w, (((tap) / p.k) * p.c + (j)) * p.k * p.groups + group * p.k + (tap) % p.k)
#define PUT_AT(at, j, v) STORE(p.out, (at)*p.c *p.groups + group * p.c + (j), v)
KERNEL(NAME(conv_grad_input), conv_params) {
    const int64_t pixels = p.n * p.h * p.wide, taps = (int64_t)p.kh * p.kw * p.k;
    TILES(pixels, p.c);
    TILE_PRODUCT(REAL, pixels, p.c, 0, taps, row0, column0, 1, A_AT, 0, B_AT, PUT_AT);
}
#undef A_AT
#undef B_AT
#undef PUT_AT

/* The pixels are split among blocks, whose sums are added up in order. */
#define A_AT(tap, o) NAME(conv_x)(&p, o, tap, group)
#define B_AT(o, j) LOAD(p.y, (o)*p.k *p.groups + group * p.k + (j))
#define PUT_AT(tap, j, v)                                                                          \
    ((REAL *)p.partials)[((split * taps) + (tap)) * p.k * p.groups + group * p.k + (j)] = v
KERNEL(NAME(conv_grad_weight), conv_params) {
    const int64_t pixels = p.n * p.oh * p.ow, taps = (int64_t)p.kh * p.kw * p.c;
    TILES(taps, p.k);
    const int64_t split = blockIdx.x / (down * across) / p.groups;
    const int64_t from = pixels * split / p.splits, to = pixels * (split + 1) / p.splits;
    TILE_PRODUCT(REAL, taps, p.k, from, to, row0, column0, 0, A_AT, 1, B_AT, PUT_AT);
}
#undef A_AT
#undef B_AT
#undef PUT_AT

#undef W_AT
#undef ROW0
#undef COLUMN0
#undef TILES
