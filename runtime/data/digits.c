/* Synthetic digits: strokes, moved about and thickened at random, with a little noise.
 *
 * A glyph is a few polylines in the unit square (y grows downwards). Its points go through one
 * random affine map; each segment then inks the pixels near it. */
#include "data/digits.h"
#include "core/rng.h"
#include <math.h>
#include <string.h>

enum { STREAM = 0x64696769, MAX_POINTS = 24 };
enum { SHAPE_DRAWS, NOISE_DRAWS, LABEL_DRAWS }; /* the ordinals of one seed */

typedef struct point {
    double x, y;
} point;

/* x, y pairs; a negative x lifts the pen. */
static const double glyphs[10][2 * MAX_POINTS] = {
    {.50, .02, .25, .10, .12, .32, .10, .55, .16, .80, .32, .96, .52, .98, .74, .92,
     .87, .70, .90, .45, .84, .20, .70, .06, .50, .02, -1},
    {.25, .22, .55, .02, .55, .98, -1},
    {.14, .24, .28, .06, .52, .02, .76, .08, .86, .26, .78, .46, .50, .70, .14, .96, .90, .96, -1},
    {.16, .10, .42, .02, .70, .06, .82, .24, .72, .42, .46, .48, -1, 0, .46, .48,
     .76, .56, .88, .74, .76, .92, .46, .98, .14, .90, -1},
    {.66, .98, .66, .02, .10, .68, .92, .68, -1},
    {.84, .04, .26, .04, .20, .44, .48, .38, .76, .44, .88, .66, .78, .90, .48, .98, .14, .90, -1},
    {.76, .04, .46, .12, .22, .40, .14, .68, .26, .92, .52, .98, .76, .90, .86, .70, .74, .52,
     .50, .46, .26, .54, .16, .68, -1},
    {.10, .06, .90, .06, .62, .50, .42, .98, -1},
    {.50, .48, .24, .38, .20, .18, .36, .04, .62, .04, .80, .18, .76, .38, .50, .48,
     .20, .60, .12, .78, .28, .96, .50, .98, .72, .96, .88, .78, .80, .60, .50, .48, -1},
    {.84, .32, .72, .50, .48, .54, .24, .48, .14, .28, .26, .08, .52, .02, .76, .10,
     .84, .32, .82, .62, .72, .84, .54, .98, -1}};

/* ---- random numbers of one image ---- */

static double between(uint32_t word, double low, double high) {
    return low + (high - low) * mg_uniform_of(word);
}

static void words(uint32_t out[4], uint64_t index, uint64_t ordinal, uint64_t seed) {
    mg_philox(out, index, ordinal, (uint32_t)seed, (uint32_t)(seed >> 32) ^ STREAM);
}

/* The ten of a row, shuffled. */
static void shuffle_ten(int32_t ten[10], int64_t row, uint64_t seed) {
    uint32_t w[4];
    for (int i = 0; i < 10; i++) ten[i] = i;
    for (int i = 9; i > 0; i--) {
        if ((9 - i) % 4 == 0) words(w, (uint64_t)row * 3 + (uint64_t)(9 - i) / 4, LABEL_DRAWS, seed);
        const int j = (int)(((uint64_t)w[(9 - i) % 4] * (uint64_t)(i + 1)) >> 32);
        const int32_t kept = ten[i];
        ten[i] = ten[j], ten[j] = kept;
    }
}

/* ---- drawing ---- */

typedef struct pen {
    double xx, xy, yx, yy, x0, y0; /* glyph -> pixels */
    double radius, ink;
} pen;

static pen choose_pen(int64_t image, uint64_t seed) {
    uint32_t a[4], b[4];
    words(a, 2 * (uint64_t)image, SHAPE_DRAWS, seed);
    words(b, 2 * (uint64_t)image + 1, SHAPE_DRAWS, seed);
    const double width = between(a[0], 9, 15), height = between(a[1], 16, 21);
    const double turn = between(a[2], -0.2, 0.2), slant = between(a[3], -0.15, 0.35);
    const double cx = between(b[0], 11.5, 15.5), cy = between(b[1], 12, 15);
    pen p = {.radius = between(b[2], 0.7, 1.7), .ink = between(b[3], 180, 255)};
    p.xx = width * cos(turn), p.yx = width * sin(turn);
    p.xy = -height * (sin(turn) + slant * cos(turn));
    p.yy = height * (cos(turn) - slant * sin(turn));
    p.x0 = cx - 0.5 * (p.xx + p.xy), p.y0 = cy - 0.5 * (p.yx + p.yy);
    return p;
}

static point on_paper(const pen *p, const double *xy) {
    return (point){p->x0 + p->xx * xy[0] + p->xy * xy[1], p->y0 + p->yx * xy[0] + p->yy * xy[1]};
}

static double distance(point a, point b, double x, double y) {
    const double dx = b.x - a.x, dy = b.y - a.y, length = dx * dx + dy * dy;
    double t = length > 0 ? ((x - a.x) * dx + (y - a.y) * dy) / length : 0;
    t = t < 0 ? 0 : t > 1 ? 1 : t;
    const double ex = a.x + t * dx - x, ey = a.y + t * dy - y;
    return sqrt(ex * ex + ey * ey);
}

static int clamp(double v) {
    return v < 0 ? 0 : v > MG_DIGIT_SIZE - 1 ? MG_DIGIT_SIZE - 1 : (int)v;
}

static void ink_segment(uint8_t *image, const pen *p, point a, point b) {
    const double reach = p->radius + 1;
    const int left = clamp(fmin(a.x, b.x) - reach), right = clamp(fmax(a.x, b.x) + reach + 1);
    const int top = clamp(fmin(a.y, b.y) - reach), bottom = clamp(fmax(a.y, b.y) + reach + 1);
    for (int y = top; y <= bottom; y++)
        for (int x = left; x <= right; x++) {
            const double cover = p->radius + 0.5 - distance(a, b, x, y);
            if (cover <= 0) continue;
            const uint8_t ink = (uint8_t)(p->ink * (cover > 1 ? 1 : cover));
            uint8_t *pixel = &image[y * MG_DIGIT_SIZE + x];
            if (ink > *pixel) *pixel = ink;
        }
}

static void add_noise(uint8_t *image, int64_t number, uint64_t seed) {
    uint32_t w[4];
    for (int i = 0; i < MG_DIGIT_PIXELS; i++) {
        if (i % 16 == 0)
            words(w, (uint64_t)number * (MG_DIGIT_PIXELS / 16) + (uint64_t)i / 16, NOISE_DRAWS,
                  seed);
        const int grain = (int)((w[i / 4 % 4] >> (8 * (i % 4))) & 0xff);
        const int v = image[i] + (grain * 48 >> 8) - 24; /* paper: half of it stays 0 */
        image[i] = (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
    }
}

static void draw(uint8_t *image, int digit, int64_t number, uint64_t seed) {
    const pen p = choose_pen(number, seed);
    const double *xy = glyphs[digit];
    memset(image, 0, MG_DIGIT_PIXELS);
    for (int i = 0; i + 1 < MAX_POINTS && (xy[2 * i] >= 0 || xy[2 * i + 2] > 0); i++)
        if (xy[2 * i] >= 0 && xy[2 * i + 2] >= 0)
            ink_segment(image, &p, on_paper(&p, xy + 2 * i), on_paper(&p, xy + 2 * i + 2));
    add_noise(image, number, seed);
}

void mg_digits_draw(uint8_t *pixels, int32_t *labels, int64_t n, uint64_t seed) {
    int32_t ten[10];
    for (int64_t i = 0; i < n; i++) {
        if (i % 10 == 0) shuffle_ten(ten, i / 10, seed);
        labels[i] = ten[i % 10];
        draw(pixels + i * MG_DIGIT_PIXELS, labels[i], i, seed);
    }
}
