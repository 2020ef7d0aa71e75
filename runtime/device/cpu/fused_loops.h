/* The loops behind fused groups: one per element-wise op and register width, and conversions. */
#ifndef MG_DEVICE_CPU_FUSED_LOOPS_H
#define MG_DEVICE_CPU_FUSED_LOOPS_H

#include "core/dtype.h"
#include "ops/elementwise.h"

/* y[i] = op(a[i], b[i], c[i]) over float or double; y overlaps no operand. Operands that the op
 * does not have may be any readable n elements. */
typedef void (*mg_loop_fn)(void *y, const void *a, const void *b, const void *c, int64_t n);

extern const mg_loop_fn mg_loops_f32[MG_N_ELEMENTWISE];
extern const mg_loop_fn mg_loops_f64[MG_N_ELEMENTWISE];

/* n elements of a dtype to and from registers (double if wide), and registers rounded to a dtype in
 * place. */
void mg_registers_load(void *dst, const void *src, mg_dtype t, int64_t n, bool wide);
void mg_registers_store(void *dst, const void *src, mg_dtype t, int64_t n, bool wide);
void mg_registers_round(void *registers, mg_dtype t, int64_t n, bool wide);
void mg_registers_fill(void *dst, double value, int64_t n, bool wide);

#endif
