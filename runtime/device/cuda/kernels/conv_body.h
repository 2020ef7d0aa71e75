/* Convolutions of one dtype as matrix products in tiles (implicit GEMM).
 *
 * The matrices are never stored: TILE_PRODUCT (tile.h) reads their elements through the functions
 * below, which turn a row and column into image coordinates. With o a pixel of the result, "at" a
 * pixel of the image, and a tap one cell of a kernel with one channel, the products are
 *
 *     conv              y{o, k}   = sum over taps   of x{o, tap}  * w{tap, k}
 *     conv_grad_input   dx{at, c} = sum over taps   of dy{at, tap} * w{tap, c}
 *     conv_grad_weight  dw{tap, k} = sum over pixels of x{o, tap} * dy{o, k}
 *
 * A block makes one tile of MG_TILE x MG_TILE results of one group. */

#ifndef MG_CONV_SPLIT
#define MG_CONV_SPLIT
/* Divides *i by d in place and returns the remainder: peels off the innermost coordinate. */
DEVICE int64_t mg_conv_split(uint32_t *i, mg_divisor d) {
    const uint32_t whole = *i, quotient = mg_divide(whole, d);
    *i = quotient;
    return whole - quotient * d.n;
}
#endif

/* The element of x that `tap` reads for output pixel o (over all images); 0 in the padding. */
DEVICE REAL NAME(conv_x)(const conv_params *p, int64_t o, int64_t tap, int group) {
    uint32_t row = (uint32_t)tap, n = (uint32_t)o;
    const int64_t c = mg_conv_split(&row, p->by_c), column = mg_conv_split(&row, p->by_kw);
    const int64_t ox = mg_conv_split(&n, p->by_ow), oy = mg_conv_split(&n, p->by_oh);
    const int64_t y = oy * p->down + (int64_t)row * p->spread_y - p->top;
    const int64_t x = ox * p->across + column * p->spread_x - p->left;
    if (y < 0 || y >= p->h || x < 0 || x >= p->wide) return 0;
    return LOAD(p->x, ((n * p->h + y) * p->wide + x) * p->c * p->groups + group * p->c + c);
}

/* The element of dy whose result read image pixel `at` through `tap`; 0 if there is none, because
 * it lies outside the result or because the stride skips the pixel. Here a tap is a cell of a
 * kernel with an output channel k. */
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

/* Block number to tile: TILES sets the group and the tile's first row and column. Blocks count the
 * tiles across first, then down, then the groups (and splits, for conv_grad_weight). */
#define ROW0 (blockIdx.x / across % down * MG_TILE)
#define COLUMN0 (blockIdx.x % across * MG_TILE)
#define TILES(rows, columns)                                                                       \
    const int64_t down = ((rows) + MG_TILE - 1) / MG_TILE;                                         \
    const int64_t across = ((columns) + MG_TILE - 1) / MG_TILE;                                    \
    const int group = (int)(blockIdx.x / (down * across) % p.groups);                              \
    const int64_t row0 = ROW0, column0 = COLUMN0

/* The weight at a tap for kernel j of the group. In memory a row has the kernels of all groups. */
#define W_AT(tap, j) LOAD(p.w, (tap)*p.k *p.groups + group * p.k + (j))

/* y = conv(x, w), then + bias and relu if requested. relu keeps NaN: NaN < 0 is false. */
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

/* dx: the gradient of the image, from dy and w. */
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

/* dw: the gradient of the weights, from x and dy. The sum runs over all pixels, of which there are
 * many, while dw has few tiles; so the pixels are split into p.splits ranges, each with its own
 * blocks and partial sums, which add_parts (finish.cu) adds in a fixed order. */
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
