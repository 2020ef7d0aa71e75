/* full and iota. */
#include "device/cuda/kernels/create_params.h"
#include "device/cuda/kernels/index.h"
#include "device/cuda/kernels/kernel.h"

/* Whole units, and byte by byte what lies before the first and behind the last. Elements are
 * aligned to their size, so the byte at an address is the value's at address % 16. */
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
