/* Two instructions of a fused group as one loop, where the result of the first goes to the second
 * only: it stays in a processor register. The bits are those of the two loops one after another. */
#ifndef MG_DEVICE_CPU_PAIRS_H
#define MG_DEVICE_CPU_PAIRS_H

#include "device/cpu/loops.h"

enum { MG_PAIR_FIRSTS = 6, MG_PAIR_SECONDS = 7 };

typedef mg_loop_f32 *mg_pair_table[MG_PAIR_FIRSTS][MG_PAIR_SECONDS];
extern const mg_pair_table mg_pairs_base, mg_pairs_avx2, mg_pairs_avx512;

/* The loop over float32, or NULL. Its operands: those of `first` (a, b; of a unary one a, a), then
 * the other one of `second` (of a unary one a), of which the result of `first` is operand `place`.
 */
mg_loop_f32 *mg_pair_loop(int first, int second, int place);

#endif
