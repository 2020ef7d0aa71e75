/* Includes BODY once for each floating dtype, with
 *
 *     NAME(x)           x_f32: the name of a kernel or function for this dtype
 *     LOAD, STORE       elements of data: LOAD(base, i), STORE(base, i, v); v is a REAL
 *     PARAM, PUT        elements of what goes with it (statistics, weights): float32 beside halves
 *     REAL, EXP, LOG, SQRT, FMAX; STORED: what an element is in memory
 *
 * No guard: each file of kernels includes it where it wants its bodies. */
#define MG_PASTE_(a, b) a##_##b
#define MG_PASTE(a, b) MG_PASTE_(a, b)
#define NAME(x) MG_PASTE(x, DTYPE)
#define LOAD MG_PASTE(mg_load, DTYPE)
#define STORE MG_PASTE(mg_store, DTYPE)
#define PARAM MG_PASTE(mg_load, BESIDE)
#define PUT MG_PASTE(mg_store, BESIDE)

#define REAL float
#define EXP expf
#define LOG logf
#define SQRT sqrtf
#define FMAX fmaxf
#define BESIDE f32
#define STORED uint16_t
#define DTYPE f16
#include BODY
#undef DTYPE
#define DTYPE bf16
#include BODY
#undef DTYPE
#undef STORED
#define STORED float
#define DTYPE f32
#include BODY
#undef STORED
#undef DTYPE
#undef BESIDE
#undef REAL
#undef EXP
#undef LOG
#undef SQRT
#undef FMAX

#define REAL double
#define EXP exp
#define LOG log
#define SQRT sqrt
#define FMAX fmax
#define BESIDE f64
#define STORED double
#define DTYPE f64
#include BODY
#undef DTYPE
#undef BESIDE
