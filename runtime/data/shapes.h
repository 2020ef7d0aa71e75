/* A synthetic data set of coloured shapes, drawn by code: for tests and examples of networks for
 * CIFAR on machines without it. */
#ifndef MG_DATA_SHAPES_H
#define MG_DATA_SHAPES_H

#include "core/status.h"
#include <stdint.h>

/* Draws n images of size x size pixels {red, green, blue} and their labels 0..9 into the caller's
 * memory. The classes are disc, square, triangle, ring, cross, frame, two rows, two columns,
 * checkerboard and crescent; colours, place, size and tilt say nothing about the class. Every label
 * occurs equally often, to one, and their order is random. The result is a function of n, the size
 * and the seed alone. MG_OOM. */
mg_status mg_shapes_draw(int64_t n, int size, uint64_t seed, uint8_t *images, int32_t *labels);

#endif
