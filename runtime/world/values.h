/* Sums of values among the ranks outside of joint steps: for ranks that train on weights of their
 * own and meet from time to time.
 *
 * Every rank makes the same calls with the same counts; a rank that has come to something else is
 * found (mg_world_meet). Results are equal on all ranks, bit by bit: sums add up in the order of
 * ranks. In a world of one nothing is sent. */
#ifndef MG_WORLD_VALUES_H
#define MG_WORLD_VALUES_H

#include "core/dtype.h"
#include "core/status.h"

/* All ranks have come, with the same number; then the flags of all are known (mg_world_flags). To
 * be called before the others. */
mg_status mg_world_meet_for_values(int64_t number, uint32_t flags);
/* out = the sum of all ranks' in; they do not overlap. */
mg_status mg_world_sum(const void *in, void *out, int64_t count, mg_dtype t);
/* Pairs of ranks swap values: `in` becomes what rank `peer` has in `out`. A rank without a partner
 * gives -1. Every rank calls it. */
mg_status mg_world_swap(int peer, const void *out, void *in, size_t bytes);
/* Each rank sends its `largest` numbers of greatest magnitude (of equal ones those that come
 * first), which become 0 in `values`: what is left there is what was not sent. total = the sum of
 * what all have sent. No number may be NaN. */
mg_status mg_world_sum_largest(float *values, float *total, int64_t count, int64_t largest);

#endif
