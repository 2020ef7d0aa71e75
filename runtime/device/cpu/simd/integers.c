/* Reductions of bool and integers: see fold_loops.h. Sums and products are int64 and wrap around,
 * so they are made of unsigned numbers, whose overflow C defines. */
#include "device/cpu/simd/isa.h"
#include "device/cpu/simd/simd.h"
#include <assert.h>

/* MG_FOLD_ROWS bytes add up in 16 bits. */
static_assert(MG_FOLD_ROWS * UINT8_MAX <= UINT16_MAX, "sums of bytes overflow");

#define TOTAL int64_t
#define MEMBER integer
#define RUNNING int64_t
#define PRODUCT uint64_t
#define PLUS(a, b) mg_int64_add(a, b)
#define TIMES(a, b) mg_int64_multiply(a, b)
#define IS_NAN(v) false
/* The members of mg_simd_folds for floats only stay NULL. */
#define TABLE const mg_simd_folds MG_ISA_NAME(NAME(mg_simd_folds)) = {FOLD_TABLE}

#define ELEMENT uint8_t
#define SUM uint16_t
#define LEAST 0
#define VALUE(v) ((v) != 0)
#define NAME(x) x##_bool
#define MOST 1
#include "device/cpu/simd/fold_loops.h"
TABLE;
#undef VALUE
#undef NAME
#undef MOST
#define VALUE(v) (v)
#define NAME(x) x##_u8
#define MOST UINT8_MAX
#include "device/cpu/simd/fold_loops.h"
TABLE;
#undef ELEMENT
#undef SUM
#undef LEAST
#undef NAME
#undef MOST
#define ELEMENT int32_t
#define SUM uint64_t
#define LEAST INT32_MIN
#define NAME(x) x##_i32
#define MOST INT32_MAX
#include "device/cpu/simd/fold_loops.h"
TABLE;
#undef ELEMENT
#undef LEAST
#undef NAME
#undef MOST
#define ELEMENT int64_t
#define LEAST INT64_MIN
#define NAME(x) x##_i64
#define MOST INT64_MAX
#include "device/cpu/simd/fold_loops.h"
TABLE;
