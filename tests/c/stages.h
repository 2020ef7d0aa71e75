/* Fixture: the stages of an order in short. */
#ifndef TESTS_C_STAGES_H
#define TESTS_C_STAGES_H

#include "data/order.h"

/* The stages of a dataset, in the notation of mg_stage. */
#define SHUFFLE(size, s)                                                                           \
    { .kind = MG_SHUFFLE, .n = (size), .seed = (s) }
#define BATCH(size)                                                                                \
    { .kind = MG_BATCH, .n = (size) }
#define FULL_BATCH(size)                                                                           \
    { .kind = MG_BATCH, .n = (size), .drop_remainder = true }
#define CYCLE(times)                                                                               \
    { .kind = MG_CYCLE, .n = (times) }
#define TAKE(count)                                                                                \
    { .kind = MG_TAKE, .n = (count) }
#define SKIP(count)                                                                                \
    { .kind = MG_SKIP, .n = (count) }
#define SHARD(at, of)                                                                              \
    { .kind = MG_SHARD, .n = (of), .index = (at) }
#define WINDOW(size, by, apart)                                                                    \
    { .kind = MG_WINDOW, .n = (size), .shift = (by), .stride = (apart) }
#define FULL_WINDOW(size, by, apart)                                                               \
    { .kind = MG_WINDOW, .n = (size), .shift = (by), .stride = (apart), .drop_remainder = true }
/* The room for row numbers in each test. */
enum { MOST = 4096 };

#endif
