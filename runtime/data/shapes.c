/* Shapes: each is a signed distance to its outline, negative inside, in coordinates in which its
 * radius is 1. A pixel takes the colour of the shape or of the background, or a mixture within one
 * pixel of the outline; then noise is added.
 *
 * An image depends on the seed, its number and its label alone (drawing_rng.h). Only + - * / and
 * sqrt are used, which are exact to rounding everywhere, so every machine draws the same bytes. */
#include "data/drawing_rng.h"
#include "data/drawings.h"
#include <math.h>

/* The first random block for the shape (0), and for the noise of pixels (NOISE_BLOCK). */
enum { STREAM = 0x73686100, NOISE_BLOCK = 64 };

/* Colours of shape and background differ by at least this, summed over red, green and blue. */
static const float LEAST_CONTRAST = 280;

/* ---- outlines ---- */

static float length(float u, float v) {
    return sqrtf(u * u + v * v);
}

/* A rectangle around the origin, `a` wide and `b` high on each side of it. */
static float box(float u, float v, float a, float b) {
    return fmaxf(fabsf(u) - a, fabsf(v) - b);
}

/* With one corner at the top, v pointing down. */
static float triangle(float u, float v) {
    const float slanted = 0.894427f * fabsf(u) - 0.447214f * v - 0.447214f;
    return fmaxf(slanted, v - 0.8f);
}

/* Two of the four quarters of a square, opposite to each other. */
static float checkerboard(float u, float v) {
    const float nearest = fminf(fabsf(u), fabsf(v));
    return fmaxf(box(u, v, 0.95f, 0.95f), u * v > 0 ? -nearest : nearest);
}

/* The distance of (u, v) to the outline of the class, in units of its radius. */
static float outline(int label, float u, float v) {
    switch (label) {
    case 0: return length(u, v) - 0.9f;
    case 1: return box(u, v, 0.8f, 0.8f);
    case 2: return triangle(u, v);
    case 3: return fabsf(length(u, v) - 0.75f) - 0.2f;
    case 4: return fminf(box(u, v, 1, 0.3f), box(u, v, 0.3f, 1));
    case 5: return fabsf(box(u, v, 0.7f, 0.7f)) - 0.2f;
    case 6: return box(u, fabsf(v) - 0.55f, 0.95f, 0.25f);
    case 7: return box(fabsf(u) - 0.55f, v, 0.25f, 0.95f);
    case 8: return checkerboard(u, v);
    default: return fmaxf(length(u, v) - 0.95f, 0.75f - length(u - 0.5f, v));
    }
}

/* ---- images ---- */

typedef struct placement {
    float x, y;         /* the centre, in pixels */
    float radius;       /* in pixels */
    float cosine, sine; /* of the tilt */
} placement;

static placement place_shape(mg_drawing_rng *r, int size) {
    placement p;
    const float middle = 0.5f * (float)(size - 1);
    p.radius = mg_drawing_uniform(r, 0.24f, 0.4f) * (float)size;
    const float room = 0.5f * (float)size - p.radius;
    p.x = middle + mg_drawing_uniform(r, -room, room);
    p.y = middle + mg_drawing_uniform(r, -room, room);
    const float slope = mg_drawing_uniform(r, -0.25f, 0.25f); /* its tangent */
    p.cosine = 1 / sqrtf(1 + slope * slope);
    p.sine = slope * p.cosine;
    return p;
}

/* Two colours {red, green, blue} with enough contrast. */
static void choose_colours(mg_drawing_rng *r, float ground[3], float ink[3]) {
    float contrast = 0;
    for (int c = 0; c < 3; c++) ground[c] = mg_drawing_uniform(r, 0, 255);
    for (int c = 0; c < 3; c++) {
        ink[c] = mg_drawing_uniform(r, 0, 255);
        contrast += fabsf(ink[c] - ground[c]);
    }
    if (contrast >= LEAST_CONTRAST) return;
    for (int c = 0; c < 3; c++) ink[c] = ground[c] < 128 ? ground[c] + 120 : ground[c] - 120;
}

static uint8_t byte_of(float v) {
    return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

static void draw_shape(mg_drawing_rng *r, int label, int size, uint8_t *image) {
    float ground[3], ink[3];
    mg_drawing_seek(r, 0);
    const placement p = place_shape(r, size);
    choose_colours(r, ground, ink);
    const float noise = mg_drawing_uniform(r, 0, 24);
    mg_drawing_seek(r, NOISE_BLOCK);
    for (int y = 0; y < size; y++)
        for (int x = 0; x < size; x++) {
            const float dx = ((float)x - p.x) / p.radius, dy = ((float)y - p.y) / p.radius;
            const float u = p.cosine * dx + p.sine * dy, v = p.cosine * dy - p.sine * dx;
            const float inside = 0.5f - p.radius * outline(label, u, v);
            const float share = inside < 0 ? 0 : inside > 1 ? 1 : inside;
            for (int c = 0; c < 3; c++)
                *image++ = byte_of(ground[c] + share * (ink[c] - ground[c]) +
                                   mg_drawing_uniform(r, -noise, noise));
        }
}

mg_status mg_shapes_draw(int64_t n, int size, uint64_t seed, uint8_t *images, int32_t *labels) {
    mg_drawing_rng r = mg_drawing_rng_of(seed, STREAM);
    MG_TRY(mg_drawing_labels(&r, n, labels));
    for (int64_t i = 0; i < n; i++) {
        r.ordinal = (uint64_t)i;
        draw_shape(&r, labels[i], size, images + i * size * size * 3);
    }
    return MG_OK;
}
