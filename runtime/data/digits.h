/* Digits drawn by code: a data set that is always there. */
#ifndef MG_DATA_DIGITS_H
#define MG_DATA_DIGITS_H

#include <stdint.h>

enum { MG_DIGIT_SIZE = 28, MG_DIGIT_PIXELS = MG_DIGIT_SIZE * MG_DIGIT_SIZE };

/* Draws n digits: pixels[n * MG_DIGIT_PIXELS], 0 = paper, and labels[n]. Image i is a function of
 * seed and i alone; every ten in a row are the ten digits in some order. */
void mg_digits_draw(uint8_t *pixels, int32_t *labels, int64_t n, uint64_t seed);

#endif
