/* Tensors made from nothing: fill (a constant in every element) and iota (0, 1, 2, ... along an
 * axis). */
#include "device/cuda/kernels/movement_params.h"
#include "device/cuda/kernels/index.h"
#include "device/cuda/kernels/kernel.h"

/* Fills p.bytes bytes with p.value, a 16-byte pattern that repeats the element. The bulk is written
 * in aligned units of 16 bytes, the bytes before the first and after the last unit one by one.
 * Elements are aligned to their size, so the byte for an address is byte address % 16 of the
 * pattern. */
KERNEL(fill, fill_params) {
    unsigned char *const out = (unsigned char *)p.out;
    const unsigned char *const value = (const unsigned char *)p.value;
    const int64_t skew = (int64_t)((uint64_t)out % 16);
    const int64_t head = skew ? 16 - skew : 0, before = head < p.bytes ? head : p.bytes;
    const int64_t units = (p.bytes - before) / 16, end = before + 16 * units;
    unit_16 unit;
    unit.low = p.value[0], unit.high = p.value[1];
    for (int64_t i = FIRST; i < units; i += STEP) ((unit_16 *)(out + before))[i] = unit;
    if (FIRST < before) out[FIRST] = value[(skew + FIRST) % 16];
    if (end + FIRST < p.bytes) out[end + FIRST] = value[FIRST];
}

/* out {outer, n, inner}: each element is its position on the middle axis, computed in double and
 * converted to the dtype by FROM. */
#define IOTA(dtype, type, FROM)                                                                    \
    KERNEL(iota_##dtype, iota_params) {                                                            \
        type *const out = (type *)p.out;                                                           \
        for (int64_t i = FIRST; i < p.count; i += STEP) {                                          \
            const int64_t row = p.inner > 1 ? i / p.inner : i;                                     \
            out[i] = FROM((double)(row < p.n ? row : row % p.n));                                  \
        }                                                                                          \
    }
IOTA(bool, uint8_t, 0 !=)
IOTA(u8, uint8_t, mg_to_u8)
IOTA(i32, int32_t, mg_to_i32)
IOTA(i64, int64_t, mg_to_i64)
IOTA(bf16, uint16_t, mg_double_to_bf16)
IOTA(f16, uint16_t, mg_double_to_f16)
IOTA(f32, float, (float))
IOTA(f64, double, )
