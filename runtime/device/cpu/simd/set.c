/* The set of tables of one instruction set. Like the others of this folder, this file is compiled
 * once per instruction set, so it finds the tables of its set by name. A new table needs a type and
 * a member in simd.h and two lines here. */
#include "device/cpu/simd/isa.h"
#include "device/cpu/simd/simd.h"

#define TABLE(type) MG_ISA_NAME(mg_simd_##type)
extern const mg_simd_conversions TABLE(conversions);
extern const mg_simd_threaded TABLE(threaded_f32), TABLE(threaded_f64);
extern const mg_simd_movement TABLE(movement);
extern const mg_simd_random TABLE(random);
extern const mg_simd_winograd TABLE(winograd);
extern const mg_simd_winograd_images TABLE(winograd_images);
extern const mg_simd_conv_small TABLE(conv_small);
extern const mg_simd_depthwise TABLE(depthwise_f32), TABLE(depthwise_f16), TABLE(depthwise_bf16);
extern const mg_simd_int8_rows TABLE(int8);
extern const mg_simd_gemm TABLE(gemm_f32), TABLE(gemm_f64);
extern const mg_simd_folds TABLE(folds_bool), TABLE(folds_u8), TABLE(folds_i32), TABLE(folds_i64),
    TABLE(folds_f32), TABLE(folds_f64);
extern const mg_simd_pool TABLE(pool_f32), TABLE(pool_f64);
extern const mg_simd_resize TABLE(resize_f32), TABLE(resize_f64);
extern const mg_simd_layer_norm TABLE(layer_norm_f32), TABLE(layer_norm_f64);
extern const mg_simd_softmax TABLE(softmax_f32), TABLE(softmax_f64);
extern const mg_simd_cross_entropy TABLE(cross_entropy_f32), TABLE(cross_entropy_f64);

#define TEXT(x) #x
#define EXPANDED_TEXT(x) TEXT(x)

/* A table that a set without instructions for float16 lacks. */
#if MG_CONVERTS_F16
#define F16_TABLE(type) &TABLE(type)
#else
#define F16_TABLE(type) NULL
#endif

/* Pairs of tables are in the order of mg_simd_index: float32, float64. */
const mg_simd MG_ISA_NAME(mg_simd) = {
    .name = EXPANDED_TEXT(MG_ISA),
#if defined(__AVX512F__)
    .title = "AVX-512",
#elif defined(__AVX2__)
    .title = "AVX2",
#elif defined(__aarch64__)
    .title = "NEON",
#else
    .title = "baseline vectors",
#endif
    .conversions = &TABLE(conversions),
    .threaded = {&TABLE(threaded_f32), &TABLE(threaded_f64)},
    .movement = &TABLE(movement),
    .random = &TABLE(random),
    .winograd = &TABLE(winograd),
    .winograd_images = &TABLE(winograd_images),
    .conv_small = &TABLE(conv_small),
    .depthwise = {&TABLE(depthwise_f32), F16_TABLE(depthwise_f16), &TABLE(depthwise_bf16)},
    .int8 = &TABLE(int8),
    .gemm = {&TABLE(gemm_f32), &TABLE(gemm_f64)},
    .folds = {[MG_BOOL] = &TABLE(folds_bool),
              [MG_U8] = &TABLE(folds_u8),
              [MG_I32] = &TABLE(folds_i32),
              [MG_I64] = &TABLE(folds_i64),
              [MG_F32] = &TABLE(folds_f32),
              [MG_F64] = &TABLE(folds_f64)},
    .pool = {&TABLE(pool_f32), &TABLE(pool_f64)},
    .resize = {&TABLE(resize_f32), &TABLE(resize_f64)},
    .layer_norm = {&TABLE(layer_norm_f32), &TABLE(layer_norm_f64)},
    .softmax = {&TABLE(softmax_f32), &TABLE(softmax_f64)},
    .cross_entropy = {&TABLE(cross_entropy_f32), &TABLE(cross_entropy_f64)},
};
