/* BMP files.
 *
 * A file has two headers: of the file, which tells where the pixels begin, and of the image, in one
 * of several lengths. Then come color masks or a palette, and the rows of pixels, from the bottom
 * or the top, each filled up to a multiple of 4 bytes. Pixels are indices of 1 to 8 bits into the
 * palette, plain or run-length encoded, or colors of 16 to 32 bits, in which masks tell the bits of
 * red, green, blue and alpha. Without an alpha mask the fourth byte means nothing. */
#include "core/alloc.h"
#include "data/image.h"
#include <string.h>

enum {
    FILE_HEADER = 14,
    CORE_HEADER = 12, /* with sizes of 16 bits, and 3 bytes for a color of the palette */
    INFO_HEADER = 40,
    /* What one byte of run-length encoded pixels may stand for: the end of a row leaves the rest of
     * it as it is. */
    PIXELS_PER_BYTE = 32768
};

typedef enum compression { PLAIN, RLE8, RLE4, MASKS, ALPHA_MASKS = 6 } compression;

typedef struct reader {
    const uint8_t *bytes;
    size_t n, pixels; /* where the pixels begin */
    uint32_t header;  /* bytes of the image's header */
    int64_t height, width;
    bool from_top;
    uint32_t bits; /* of a pixel */
    compression compression;
    uint32_t n_colors, mask[4]; /* red, green, blue, alpha */
    uint8_t palette[256][4];
    uint8_t *row; /* owned: a row as red, green, blue and alpha */
} reader;

static uint32_t number(const uint8_t *p, int n) {
    uint32_t value = 0;
    while (n-- > 0) value = value << 8 | p[n];
    return value;
}

static mg_status fail_truncated(const reader *r) {
    return mg_fail(MG_DATA, "BMP: the file is truncated: it ends after %zu bytes", r->n);
}

/* ---- headers ---- */

static mg_status read_sizes(reader *r) {
    const uint8_t *info = r->bytes + FILE_HEADER;
    r->pixels = number(r->bytes + 10, 4);
    r->header = number(info, 4);
    if (r->n < FILE_HEADER + (size_t)r->header) return fail_truncated(r);
    const int size = r->header == CORE_HEADER ? 2 : 4;
    r->width = (int32_t)number(info + 4, size);
    r->height = (int32_t)number(info + 4 + size, size);
    r->from_top = r->height < 0;
    if (r->from_top) r->height = -r->height;
    r->bits = number(info + 6 + 2 * size, 2);
    if (r->header == CORE_HEADER) return MG_OK;
    r->compression = (compression)number(info + 16, 4);
    r->n_colors = number(info + 32, 4);
    return MG_OK;
}

/* Whether these bits can be stored in this way. */
static bool is_known(const reader *r) {
    switch (r->compression) {
    case PLAIN:
        return r->bits == 1 || r->bits == 2 || r->bits == 4 || r->bits == 8 || r->bits == 16 ||
               r->bits == 24 || r->bits == 32;
    case RLE8: return r->bits == 8 && !r->from_top;
    case RLE4: return r->bits == 4 && !r->from_top;
    case MASKS:
    case ALPHA_MASKS: return r->bits == 16 || r->bits == 32;
    default: return false;
    }
}

/* The masks are in a long header, or follow a short one. */
static mg_status read_masks(reader *r) {
    static const uint32_t of_16_bits[] = {0x7c00, 0x3e0, 0x1f, 0};
    static const uint32_t of_32_bits[] = {0xff0000, 0xff00, 0xff, 0};
    memcpy(r->mask, r->bits == 16 ? of_16_bits : of_32_bits, sizeof r->mask);
    if (r->compression == PLAIN) return MG_OK;
    const bool has_alpha = r->header >= 56 || r->compression == ALPHA_MASKS;
    const int n = has_alpha ? 4 : 3;
    if (r->n < FILE_HEADER + INFO_HEADER + (size_t)n * 4) return fail_truncated(r);
    for (int c = 0; c < n; c++)
        r->mask[c] = number(r->bytes + FILE_HEADER + INFO_HEADER + 4 * c, 4);
    for (int c = 0; c < 4; c++) {
        const uint32_t bits = r->mask[c] ? r->mask[c] >> __builtin_ctz(r->mask[c]) : 0;
        if (bits & (bits + 1) || (r->bits == 16 && r->mask[c] >> 16))
            return mg_fail(MG_UNSUPPORTED, "BMP: the bits of a color are not side by side");
    }
    return MG_OK;
}

static mg_status read_palette(reader *r) {
    const uint32_t most = 1u << r->bits;
    const size_t size = r->header == CORE_HEADER ? 3 : 4;
    const uint8_t *from = r->bytes + FILE_HEADER + r->header;
    if (!r->n_colors || r->n_colors > most) r->n_colors = most;
    if (FILE_HEADER + (size_t)r->header + r->n_colors * size > r->n) return fail_truncated(r);
    for (uint32_t i = 0; i < r->n_colors; i++, from += size) {
        const uint8_t color[4] = {from[2], from[1], from[0], 255};
        memcpy(r->palette[i], color, sizeof color);
    }
    return MG_OK;
}

/* ---- rows ---- */

static mg_status fail_index(const reader *r, unsigned index) {
    return mg_fail(MG_DATA, "BMP: a pixel has color %u of a palette of %u", index, r->n_colors);
}

static mg_status unpack_indices(const reader *r, const uint8_t *from) {
    const uint32_t per_byte = 8 / r->bits;
    for (uint32_t i = 0; i < r->width; i++) {
        const uint32_t shift = 8 - r->bits * (i % per_byte + 1);
        const uint32_t index = from[i / per_byte] >> shift & ((1u << r->bits) - 1);
        if (index >= r->n_colors) return fail_index(r, index);
        memcpy(r->row + (size_t)i * 4, r->palette[index], 4);
    }
    return MG_OK;
}

/* Scales a color to 8 bits, rounding down, as Pillow does. An absent alpha is opaque. */
static uint8_t masked(uint32_t pixel, uint32_t mask, bool is_alpha) {
    if (!mask) return is_alpha ? 255 : 0;
    const int shift = __builtin_ctz(mask);
    return (uint8_t)((uint64_t)(pixel >> shift & mask >> shift) * 255 / (mask >> shift));
}

static void unpack_colors(const reader *r, const uint8_t *from) {
    const int size = (int)r->bits / 8;
    uint8_t *to = r->row;
    for (int64_t i = 0; i < r->width; i++, from += size, to += 4) {
        const uint32_t pixel = number(from, size);
        for (int c = 0; c < 4; c++) to[c] = masked(pixel, r->mask[c], c == 3);
    }
}

/* Puts r->row in its place; row 0 is the first of the file. */
static void put_row(const reader *r, const mg_image *image, int64_t row) {
    const int64_t place = r->from_top ? row : r->height - 1 - row;
    mg_image_put(image->pixels + place * image->width * image->channels, image->channels, r->row,
                 image->width);
}

static mg_status read_plain(const reader *r, const mg_image *image) {
    const size_t stride = ((size_t)r->width * r->bits + 31) / 32 * 4;
    if (r->pixels > r->n || (r->n - r->pixels) / stride < (size_t)r->height)
        return fail_truncated(r);
    for (int64_t row = 0; row < r->height; row++) {
        const uint8_t *from = r->bytes + r->pixels + (size_t)row * stride;
        if (r->bits <= 8)
            MG_TRY(unpack_indices(r, from));
        else
            unpack_colors(r, from);
        put_row(r, image, row);
    }
    return MG_OK;
}

/* ---- run-length encoded rows ---- */

/* The position in the file, and the pixel that is next. */
typedef struct runs {
    size_t at;
    int64_t row, column;
} runs;

/* Sets a pixel; those beyond the end of a row are left out, as some programs fill bytes up. */
static mg_status put_index(const reader *r, runs *s, unsigned index) {
    if (index >= r->n_colors) return fail_index(r, index);
    if (s->column < r->width) memcpy(r->row + s->column * 4, r->palette[index], 4);
    s->column++;
    return MG_OK;
}

/* The i-th index in bytes that hold one or two each. */
static unsigned index_at(const reader *r, const uint8_t *bytes, unsigned i) {
    if (r->bits == 8) return bytes[i];
    return i % 2 ? bytes[i / 2] & 15 : bytes[i / 2] >> 4;
}

/* Fills the row with color 0, which pixels have that are skipped. */
static void clear_row(const reader *r) {
    for (int64_t i = 0; i < r->width; i++) memcpy(r->row + i * 4, r->palette[0], 4);
}

static void end_row(const reader *r, const mg_image *image, runs *s) {
    put_row(r, image, s->row++);
    clear_row(r);
}

/* `count` indices that are repeated from one byte, or follow and end at an even position. */
static mg_status read_run(const reader *r, runs *s, unsigned count, bool repeated) {
    const size_t size = repeated ? 1 : (count * r->bits + 15) / 16 * 2;
    if (s->row >= r->height) return mg_fail(MG_DATA, "BMP: there are more pixels than rows");
    if (r->n - s->at < size) return fail_truncated(r);
    const uint8_t *bytes = r->bytes + s->at;
    s->at += size;
    for (unsigned i = 0; i < count; i++)
        MG_TRY(put_index(r, s,
                         index_at(r, bytes,
                                  repeated && r->bits == 8 ? 0
                                  : repeated               ? i % 2
                                                           : i)));
    return MG_OK;
}

/* Goes right and up by two bytes. */
static mg_status read_jump(const reader *r, const mg_image *image, runs *s) {
    if (r->n - s->at < 2) return fail_truncated(r);
    s->column += r->bytes[s->at];
    for (int up = r->bytes[s->at + 1]; up > 0 && s->row < r->height; up--) end_row(r, image, s);
    s->at += 2;
    return MG_OK;
}

static mg_status read_runs(const reader *r, const mg_image *image) {
    runs s = {.at = r->pixels};
    clear_row(r);
    for (;;) {
        if (s.at > r->n || r->n - s.at < 2) return fail_truncated(r);
        const unsigned first = r->bytes[s.at], second = r->bytes[s.at + 1];
        s.at += first ? 1 : 2;
        if (first) {
            MG_TRY(read_run(r, &s, first, true));
        } else if (second == 0) { /* the end of the row */
            if (s.row < r->height) end_row(r, image, &s);
            s.column = 0;
        } else if (second == 1) { /* the end of the image */
            break;
        } else if (second == 2) {
            MG_TRY(read_jump(r, image, &s));
        } else {
            MG_TRY(read_run(r, &s, second, false));
        }
    }
    while (s.row < r->height) end_row(r, image, &s);
    return MG_OK;
}

/* ---- the file ---- */

static mg_status decode(reader *r, int channels, mg_image *image) {
    MG_TRY(read_sizes(r));
    if (!is_known(r))
        return mg_fail(
            MG_UNSUPPORTED,
            "BMP: pixels of %u bits with compression %u are not known: save the image as "
            "PNG",
            r->bits, (unsigned)r->compression);
    MG_TRY(r->bits <= 8 ? read_palette(r) : read_masks(r));
    const bool encoded = r->compression == RLE8 || r->compression == RLE4;
    MG_TRY(mg_image_take(image, r->height, r->width,
                         channels     ? channels
                         : r->mask[3] ? 4
                                      : 3,
                         r->n, encoded ? PIXELS_PER_BYTE : 8));
    r->row = mg_alloc((size_t)r->width * 4);
    if (!r->row) return MG_OOM;
    return encoded ? read_runs(r, image) : read_plain(r, image);
}

mg_status mg_bmp_decode(const uint8_t *bytes, size_t n, int channels, const mg_wanted *wanted,
                        mg_image *image) {
    (void)wanted;
    reader r = {.bytes = bytes, .n = n};
    const mg_status status = decode(&r, channels, image);
    mg_free(r.row);
    return status == MG_OK ? MG_OK : mg_image_failed(image, status);
}
