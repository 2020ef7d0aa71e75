/* Separable resampling by tables, and general affine maps. */
#include "data/transforms/resample.h"
#include "core/alloc.h"
#include "data/transforms/mix_rows.h"
#include <assert.h>
#include <string.h>

/* Copies a pixel of any dtype. The sizes of common pixels are constants, so that the copy is a few
 * instructions. */
static inline void copy_pixel(char *dst, const char *src, size_t size) {
    switch (size) {
    case 1: *dst = *src; break;
    case 3: memcpy(dst, src, 3); break;
    case 4: memcpy(dst, src, 4); break;
    case 12: memcpy(dst, src, 12); break;
    default: memcpy(dst, src, size);
    }
}

static void fill_pixels(char *dst, const char *pixel, size_t size, int64_t n) {
    for (int64_t i = 0; i < n; i++) copy_pixel(dst + (size_t)i * size, pixel, size);
}

/* ---- copies ---- */

/* Copies a row by its table. Runs of neighbors, as in a crop or a shift, are copied at once. */
static void copy_row(char *dst, const char *src, const mg_axis *columns, const char *constant,
                     size_t size) {
    const int32_t *index = columns->index;
    for (int64_t i = 0; i < columns->n;) {
        int64_t n = 1;
        while (index[i] >= 0 && i + n < columns->n && index[i + n] == index[i] + n) n++;
        if (n > 1)
            memcpy(dst + (size_t)i * size, src + (size_t)index[i] * size, (size_t)n * size);
        else
            copy_pixel(dst + (size_t)i * size,
                       index[i] < 0 ? constant : src + (size_t)index[i] * size, size);
        i += n;
    }
}

static mg_status copy_pixels(const mg_pixels *src, const mg_axis *rows, const mg_axis *columns,
                             double value, mg_pixels *dst) {
    const size_t size = (size_t)src->channels * mg_dtype_size(src->dtype);
    char *constant = mg_alloc(size);
    if (!constant) return MG_OOM;
    mg_pixels_constant(constant, src->dtype, src->channels, value);
    for (int64_t r = 0; r < rows->n; r++) {
        char *to = (char *)dst->data + (size_t)(r * columns->n) * size;
        const int32_t from = rows->index[r];
        if (from < 0)
            fill_pixels(to, constant, size, columns->n);
        else
            copy_row(to, (const char *)src->data + (size_t)(from * src->width) * size, columns,
                     constant, size);
    }
    mg_free(constant);
    return MG_OK;
}

/* ---- mixing ---- */

static void load_u8(float *restrict line, const uint8_t *restrict a, int64_t n) {
    for (int64_t i = 0; i < n; i++) line[i] = (float)a[i];
}

static inline bool is_u8_or_f32(mg_dtype t) {
    return t == MG_U8 || t == MG_F32;
}

static mg_status resample_with(mg_mix_rows *mix, const mg_pixels *src, const mg_axis *rows,
                               const mg_axis *columns, double constant, mg_pixels *dst) {
    if (rows->taps == 1 && columns->taps == 1 && src->dtype == dst->dtype)
        return copy_pixels(src, rows, columns, constant, dst);
    assert(is_u8_or_f32(src->dtype) && is_u8_or_f32(dst->dtype));
    mg_mixing m = {src, dst, rows, columns, .constant = (float)constant};
    mg_axis_span(columns, &m.first, &m.n);
    const int64_t c = src->channels, n = columns->n * columns->taps;
    const int64_t floats = (m.n + columns->n) * c + 2 * MG_MIXING_MORE;
    m.place = mg_alloc((size_t)n * sizeof *m.place + (size_t)floats * sizeof *m.line);
    if (!m.place) return MG_OOM;
    for (int64_t i = 0; i < n; i++)
        m.place[i] = columns->index[i] < 0 ? -1 : (columns->index[i] - m.first) * c;
    m.line = (float *)(void *)(m.place + n);
    m.mixed = m.line + m.n * c + MG_MIXING_MORE;
    mix(&m);
    mg_free(m.place);
    return MG_OK;
}

mg_status mg_resample(const mg_pixels *src, const mg_axis *rows, const mg_axis *columns,
                      double constant, mg_pixels *dst) {
    return resample_with(mg_mix_rows_chosen(), src, rows, columns, constant, dst);
}

mg_status mg_resample_baseline(const mg_pixels *src, const mg_axis *rows, const mg_axis *columns,
                               double constant, mg_pixels *dst) {
    return resample_with(mg_mix_rows_baseline, src, rows, columns, constant, dst);
}

/* ---- affine maps ---- */

enum { CHUNK = 128 }; /* output pixels whose coordinates are computed at once */

/* Where the pixels of a chunk come from. */
typedef struct places {
    int64_t corner[4][CHUNK]; /* pixel numbers: top left, top right, bottom left, bottom right */
    float down[CHUNK], right[CHUNK];
    bool inside[CHUNK];
} places;

static inline int64_t at_most(int64_t v, int64_t most) {
    return v < 0 ? 0 : v < most ? v : most;
}

static void find_places(places *p, const mg_pixels *src, const mg_affine *a, int64_t row,
                        int64_t column, int n) {
    const int64_t h = src->height, w = src->width;
    const double half = a->method == MG_NEAREST ? 0.5 : 0;
    for (int i = 0; i < n; i++) {
        const double r = (double)row, c = (double)(column + i);
        double y = a->map[0] * r + a->map[1] * c + a->map[2];
        double x = a->map[3] * r + a->map[4] * c + a->map[5];
        const bool in_y = mg_fill_coordinate(&y, h, a->fill);
        p->inside[i] = mg_fill_coordinate(&x, w, a->fill) && in_y;
        if (!p->inside[i]) y = x = 0;
        const double top = floor(y + half), left = floor(x + half);
        const int64_t y0 = at_most((int64_t)top, h - 1), y1 = at_most((int64_t)top + 1, h - 1);
        const int64_t x0 = at_most((int64_t)left, w - 1), x1 = at_most((int64_t)left + 1, w - 1);
        p->corner[0][i] = y0 * w + x0, p->corner[1][i] = y0 * w + x1;
        p->corner[2][i] = y1 * w + x0, p->corner[3][i] = y1 * w + x1;
        p->down[i] = (float)(y - top), p->right[i] = (float)(x - left);
    }
}

#define GATHER(T, name)                                                                            \
    static inline void gather_##name(float *restrict dst, const T *restrict src, const places *p,  \
                                     int n, float constant, const int64_t c) {                     \
        for (int i = 0; i < n; i++, dst += c) {                                                    \
            if (!p->inside[i]) {                                                                   \
                for (int64_t k = 0; k < c; k++) dst[k] = constant;                                 \
                continue;                                                                          \
            }                                                                                      \
            const T *tl = src + p->corner[0][i] * c, *tr = src + p->corner[1][i] * c;              \
            const T *bl = src + p->corner[2][i] * c, *br = src + p->corner[3][i] * c;              \
            const float d = p->down[i], r = p->right[i];                                           \
            for (int64_t k = 0; k < c; k++) {                                                      \
                const float top = (1 - r) * (float)tl[k] + r * (float)tr[k];                       \
                const float bottom = (1 - r) * (float)bl[k] + r * (float)br[k];                    \
                dst[k] = (1 - d) * top + d * bottom;                                               \
            }                                                                                      \
        }                                                                                          \
    }
GATHER(uint8_t, u8)
GATHER(float, f32)

static void gather(float *dst, const mg_pixels *src, const places *p, int n, float constant) {
    const int64_t c = src->channels;
    if (src->dtype == MG_U8 && c == 3)
        gather_u8(dst, src->data, p, n, constant, 3);
    else if (src->dtype == MG_U8 && c == 1)
        gather_u8(dst, src->data, p, n, constant, 1);
    else if (src->dtype == MG_U8)
        gather_u8(dst, src->data, p, n, constant, c);
    else if (c == 3)
        gather_f32(dst, src->data, p, n, constant, 3);
    else
        gather_f32(dst, src->data, p, n, constant, c);
}

static void gather_copies(char *dst, const mg_pixels *src, const places *p, int n,
                          const char *constant, size_t size) {
    for (int i = 0; i < n; i++)
        copy_pixel(dst + (size_t)i * size,
                   p->inside[i] ? (const char *)src->data + (size_t)p->corner[0][i] * size
                                : constant,
                   size);
}

mg_status mg_resample_affine(const mg_pixels *src, const mg_affine *a, mg_pixels *dst) {
    const int64_t c = src->channels;
    const bool copies = a->method == MG_NEAREST && src->dtype == dst->dtype;
    const size_t size = (size_t)c * mg_dtype_size(dst->dtype);
    assert(copies || (is_u8_or_f32(src->dtype) && is_u8_or_f32(dst->dtype)));
    places p;
    char *constant = mg_alloc((size_t)c * sizeof(double));
    float *line = mg_alloc((size_t)(CHUNK * c) * sizeof *line);
    if (!constant || !line) goto done;
    mg_pixels_constant(constant, dst->dtype, c, a->constant);
    for (int64_t row = 0; row < dst->height; row++) {
        for (int64_t column = 0; column < dst->width; column += CHUNK) {
            const int64_t left = dst->width - column;
            const int n = left < CHUNK ? (int)left : CHUNK;
            char *to = (char *)dst->data + (size_t)(row * dst->width + column) * size;
            find_places(&p, src, a, row, column, n);
            if (copies) {
                gather_copies(to, src, &p, n, constant, size);
                continue;
            }
            if (a->method == MG_NEAREST) {
                memset(p.down, 0, sizeof p.down);
                memset(p.right, 0, sizeof p.right);
            }
            gather(line, src, &p, n, (float)a->constant);
            mg_pixels_convert(to, dst->dtype, line, MG_F32, n * c);
        }
    }
done:;
    const bool made = constant && line;
    mg_free(line);
    mg_free(constant);
    return made ? MG_OK : MG_OOM;
}

/* ---- conversions ---- */

void mg_pixels_convert(void *dst, mg_dtype to, const void *src, mg_dtype from, int64_t n) {
    if (to == from) {
        memcpy(dst, src, (size_t)n * mg_dtype_size(to));
    } else if (from == MG_U8 && to == MG_F32) {
        load_u8(dst, src, n);
    } else if (from == MG_F32 && to == MG_U8) {
        mg_to_bytes(dst, src, n);
    } else {
        double v[CHUNK];
        const char *p = src;
        char *q = dst;
        for (int64_t i = 0; i < n; i += CHUNK) {
            const size_t m = (size_t)(n - i < CHUNK ? n - i : CHUNK);
            mg_to_double(v, p + (size_t)i * mg_dtype_size(from), from, m);
            for (size_t k = 0; to == MG_U8 && k < m; k++) v[k] = mg_to_byte((float)v[k]);
            mg_from_double(q + (size_t)i * mg_dtype_size(to), v, to, m);
        }
    }
}

void mg_pixels_channels_last(void *dst, const void *src, int64_t channels, int64_t pixels,
                             size_t size) {
    char *to = dst;
    const char *from = src;
    for (int64_t i = 0; i < pixels; i++)
        for (int64_t k = 0; k < channels; k++, to += size)
            memcpy(to, from + (size_t)(k * pixels + i) * size, size);
}

void mg_pixels_channels_first(void *dst, const void *src, int64_t channels, int64_t pixels,
                              size_t size) {
    mg_pixels_channels_last(dst, src, pixels, channels, size);
}

void mg_pixels_constant(void *pixel, mg_dtype dtype, int64_t channels, double constant) {
    char *p = pixel;
    const double v = dtype == MG_U8 ? mg_to_byte((float)constant) : constant;
    for (int64_t k = 0; k < channels; k++)
        mg_from_double(p + (size_t)k * mg_dtype_size(dtype), &v, dtype, 1);
}
