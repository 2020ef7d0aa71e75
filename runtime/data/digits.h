/* Digits drawn by code: data to learn from where there is no file. */
#ifndef MG_DATA_DIGITS_H
#define MG_DATA_DIGITS_H

#include "core/status.h"
#include <stdint.h>

enum { MG_DIGIT_SIDE = 28 };

/* Fills n images (n * 28 * 28 bytes, ink is bright) and their labels 0..9, every label as often as
 * every other (to one), in random order: a function of n and the seed alone. MG_OOM. */
mg_status mg_digits_draw(int64_t n, uint64_t seed, uint8_t *images, int32_t *labels);

#endif
