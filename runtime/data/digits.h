/* A synthetic data set of handwritten-looking digits, drawn by code: for tests and examples on
 * machines without MNIST. */
#ifndef MG_DATA_DIGITS_H
#define MG_DATA_DIGITS_H

#include "core/status.h"
#include <stdint.h>

/* Height and width of an image, as in MNIST. */
enum { MG_DIGIT_SIDE = 28 };

/* Draws n images (28 x 28 bytes each, 0 is background) and their labels 0..9 into the caller's
 * memory. Every label occurs equally often, to one, and their order is random. The result is a
 * function of n and the seed alone. MG_OOM. */
mg_status mg_digits_draw(int64_t n, uint64_t seed, uint8_t *images, int32_t *labels);

#endif
