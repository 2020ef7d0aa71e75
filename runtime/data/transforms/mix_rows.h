/* Mixing the pixels of an image from those of another one, by tables of rows and columns. */
#ifndef MG_DATA_TRANSFORMS_MIX_ROWS_H
#define MG_DATA_TRANSFORMS_MIX_ROWS_H

#include "data/transforms/resample.h"

/* The arguments of mg_mix_rows: uint8 or float32 pixels. */
typedef struct mg_mixing {
    const mg_pixels *src;
    mg_pixels *dst;
    const mg_axis *rows, *columns;
    float constant;   /* value where the tables point outside */
    int64_t first, n; /* the columns of src that the table uses (mg_axis_span) */
    int64_t
        *place;   /* {columns->n, columns->taps}: where the column begins in `line`; -1: outside */
    float *line;  /* scratch: room for n pixels and MG_MIXING_MORE floats */
    float *mixed; /* the same for columns->n pixels */
} mg_mixing;
enum { MG_MIXING_MORE = 4 };

typedef void mg_mix_rows(const mg_mixing *m);
/* The version for the instruction set that core/isa.h chooses; and the version for every
 * processor. */
mg_mix_rows *mg_mix_rows_chosen(void);
mg_mix_rows mg_mix_rows_baseline;

/* Rounds, and saturates at 0 and 255. Not a number becomes 0. */
static inline uint8_t mg_to_byte(float v) {
    const float from = v > 0 ? v : 0, both = from < 255 ? from : 255;
    return (uint8_t)(int32_t)(both + 0.5f);
}
void mg_to_bytes(uint8_t *restrict dst, const float *restrict src, int64_t n);

#endif
