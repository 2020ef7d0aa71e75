/* Synthetic data sets, drawn by code: for tests and examples on machines without MNIST and CIFAR.
 *
 * Both functions write n images and their labels 0..9 to the caller's memory. Every label occurs
 * equally often (to within one), and their order is random. The result is a function of n, the size
 * and the seed alone. MG_OOM. */
#ifndef MG_DATA_DRAWINGS_H
#define MG_DATA_DRAWINGS_H

#include "core/status.h"
#include <stdint.h>

/* Height and width of a digit, as in MNIST. */
enum { MG_DIGIT_SIDE = 28 };

/* digits.c: digits that look handwritten, 28 x 28 bytes each; 0 is background. */
mg_status mg_digits_draw(int64_t n, uint64_t seed, uint8_t *images, int32_t *labels);

/* shapes.c: coloured shapes, size x size pixels {red, green, blue}. The classes are disc, square,
 * triangle, ring, cross, frame, two rows, two columns, checkerboard and crescent; colours, place,
 * size and tilt are independent of the class. */
mg_status mg_shapes_draw(int64_t n, int size, uint64_t seed, uint8_t *images, int32_t *labels);

#endif
