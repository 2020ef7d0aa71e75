/* Includes the file BODY once for each floating dtype: f16, bf16, f32 and f64.
 *
 * This is the C replacement for a template over the element type. A .cu file defines BODY and then
 * includes this header; the kernels in BODY are written with these names:
 *
 *     NAME(x)         x_f32, x_f16 ...: the name of a kernel or function for this dtype
 *     STORED          the type of an element in memory (uint16_t for f16 and bf16)
 *     REAL            the type used for arithmetic: float, and double for f64
 *     LOAD, STORE     LOAD(base, i) gives element i as a REAL; STORE(base, i, v) rounds a REAL
 *     PARAM, PUT      the same for statistics and weights that stay in float32 beside 16-bit data
 *     EXP, LOG, SQRT, FMAX   the functions of math.h for a REAL
 *
 * There is no include guard, and BODY and all these names are undefined at the end, so a .cu file
 * may include this header for several bodies. */
#define MG_PASTE_(a, b) a##_##b
#define MG_PASTE(a, b) MG_PASTE_(a, b)
#define NAME(x) MG_PASTE(x, DTYPE)
#define LOAD MG_PASTE(mg_load, DTYPE)
#define STORE MG_PASTE(mg_store, DTYPE)
#define PARAM MG_PASTE(mg_load, BESIDE)
#define PUT MG_PASTE(mg_store, BESIDE)

/* f16 and bf16 are computed with in float, as f32 is. BESIDE is the dtype of PARAM and PUT. */
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
#undef STORED
#undef DTYPE
#undef BESIDE
#undef REAL
#undef EXP
#undef LOG
#undef SQRT
#undef FMAX

#undef MG_PASTE_
#undef MG_PASTE
#undef NAME
#undef LOAD
#undef STORE
#undef PARAM
#undef PUT
#undef BODY
