/* Digits: each is a list of polylines in a unit box. For an image, the box gets a random size,
 * slant, tilt and position, the corners are moved at random, and the lines are drawn with a pen of
 * random width; then noise is added.
 *
 * An image depends on the seed, its number and its label alone (drawing_rng.h).
 * Only + - * / and sqrt are used, which are exact to rounding everywhere, so every machine draws
 * the same bytes. */
#include "data/drawing_rng.h"
#include "data/drawings.h"
#include <math.h>
#include <string.h>

/* The first random block for the shape (0), for moving the corners (SHAKE_BLOCK), and for the noise
 * of pixels (NOISE_BLOCK). */
enum { SIDE = MG_DIGIT_SIDE, STREAM = 0x64696700, SHAKE_BLOCK = 16, NOISE_BLOCK = 64 };

/* The limits of the table below: corners of a digit, and numbers of a row. */
enum { MAX_POINTS = 14, CORNERS = 2 * MAX_POINTS + 1 };
/* Corner by corner x, y, in percent of the digit's box, x to the right and y down; -1 ends the
 * list. Each digit is one line of up to MAX_POINTS corners. */
static const int8_t strokes[10][CORNERS] = {
    {50, 0, 20, 15, 10, 50, 20, 85, 50, 100, 80, 85, 90, 50, 80, 15, 50, 0, -1},
    {30, 20, 55, 0, 55, 100, -1},
    {10, 25, 30, 3, 60, 0, 83, 20, 80, 45, 10, 100, 90, 100, -1},
    {15, 10, 45, 0, 80, 10, 80, 35, 40, 48, 80, 60, 88, 78, 70, 96, 40, 100, 10, 88, -1},
    {70, 100, 70, 0, 60, 5, 10, 65, 12, 70, 95, 70, -1},
    {85, 0, 20, 0, 17, 45, 50, 38, 83, 50, 90, 70, 75, 95, 40, 100, 10, 90, -1},
    {75, 0, 40, 18, 18, 50, 13, 75, 30, 97, 60, 100, 85, 85, 85, 65, 65, 50, 35, 52, 15, 70, -1},
    {10, 0, 90, 0, 40, 100, -1},
    {50, 47, 23, 35, 23, 13,  50, 0,  77, 13, 77, 35, 50, 47,
     17, 65, 17, 86, 50, 100, 83, 86, 83, 65, 50, 47, -1},
    {85, 35, 65, 52, 35, 50, 15, 33, 20, 12, 45, 0, 75, 6, 85, 30, 80, 65, 60, 100, -1},
};

typedef struct point {
    float x, y;
} point;

/* Writes the corners of the digit, in pixels, to out; returns their number. */
static int place_corners(mg_drawing_rng *d, int label, point *out) {
    mg_drawing_seek(d, 0);
    const float width = mg_drawing_uniform(d, 0.95f, 1.6f),
                height = mg_drawing_uniform(d, 1.5f, 2.1f);
    const float slant = mg_drawing_uniform(d, -0.35f, 0.35f),
                tilt = mg_drawing_uniform(d, -0.15f, 0.15f);
    const float x0 = 14 + mg_drawing_uniform(d, -2.5f, 2.5f),
                y0 = 14 + mg_drawing_uniform(d, -2.5f, 2.5f);
    int n = 0;
    mg_drawing_seek(d, SHAKE_BLOCK);
    for (const int8_t *p = strokes[label]; *p >= 0; p += 2) {
        const float x = (float)p[0] * 0.1f - 5 + mg_drawing_uniform(d, -0.45f, 0.45f);
        const float y = (float)p[1] * 0.1f - 5 + mg_drawing_uniform(d, -0.45f, 0.45f);
        out[n++] = (point){x0 + width * x - slant * height * y, y0 + height * y + tilt * width * x};
    }
    return n;
}

/* The pixels from min(a, b) - reach to max(a, b) + reach that lie in the image. */
static void pixel_range(float a, float b, float reach, int *from, int *to) {
    const float low = (a < b ? a : b) - reach, high = (a > b ? a : b) + reach;
    *from = low < 0 ? 0 : (int)low;
    *to = high > SIDE - 1 ? SIDE - 1 : (int)high + 1;
    if (*to > SIDE - 1) *to = SIDE - 1;
}

/* The distance from (x, y) to the segment from a to b; t is the position of the nearest point on
 * it. */
static float distance_to_segment(float x, float y, point a, point b) {
    const float dx = b.x - a.x, dy = b.y - a.y, length = dx * dx + dy * dy;
    float t = length > 0 ? ((x - a.x) * dx + (y - a.y) * dy) / length : 0;
    t = t < 0 ? 0 : t > 1 ? 1 : t;
    const float ex = x - a.x - t * dx, ey = y - a.y - t * dy;
    return sqrtf(ex * ex + ey * ey);
}

/* Ink is 1 within the pen's width of the line and falls to 0 over one pixel. Lines do not add up.
 */
static void draw_line(float *ink, point a, point b, float pen) {
    int x0, x1, y0, y1;
    pixel_range(a.x, b.x, pen + 1, &x0, &x1);
    pixel_range(a.y, b.y, pen + 1, &y0, &y1);
    for (int y = y0; y <= y1; y++)
        for (int x = x0; x <= x1; x++) {
            float v = pen + 0.5f - distance_to_segment((float)x, (float)y, a, b);
            v = v < 0 ? 0 : v > 1 ? 1 : v;
            if (v > ink[y * SIDE + x]) ink[y * SIDE + x] = v;
        }
}

/* One image: lines, then noise over all pixels. */
static void draw_digit(mg_drawing_rng *d, int label, uint8_t *image) {
    float ink[SIDE * SIDE] = {0};
    point corners[MAX_POINTS];
    const int n = place_corners(d, label, corners);
    const float pen = mg_drawing_uniform(d, 0.6f, 1.5f), strength = mg_drawing_uniform(d, 190, 256),
                noise = mg_drawing_uniform(d, 0, 24);
    for (int i = 0; i + 1 < n; i++) draw_line(ink, corners[i], corners[i + 1], pen);
    mg_drawing_seek(d, NOISE_BLOCK);
    for (int i = 0; i < SIDE * SIDE; i++) {
        const float v = strength * ink[i] + mg_drawing_uniform(d, -noise, noise);
        image[i] = (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
    }
}

mg_status mg_digits_draw(int64_t n, uint64_t seed, uint8_t *images, int32_t *labels) {
    mg_drawing_rng d = mg_drawing_rng_of(seed, STREAM);
    MG_TRY(mg_drawing_labels(&d, n, labels));
    for (int64_t i = 0; i < n; i++) {
        d.ordinal = (uint64_t)i;
        draw_digit(&d, labels[i], images + i * SIDE * SIDE);
    }
    return MG_OK;
}
