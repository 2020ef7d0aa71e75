/* gather: slices of x, picked by ids, in units of up to 16 bytes. */
#include "device/cuda/kernels/gather_params.h"
#include "device/cuda/kernels/ids.h"
#include "device/cuda/kernels/index.h"
#include "device/cuda/kernels/kernel.h"

/* Where unit i comes from: nowhere is -1. */
DEVICE int64_t origin(const gather_params *p, uint32_t i) {
    const uint32_t slice = mg_divide(i, p->inner), row = p->first + slice;
    const uint32_t outer = mg_divide(row, p->n);
    const int64_t id = mg_id(p->ids, p->id_bytes, row - outer * p->n.n);
    if (id < 0 || id >= p->rows) return -1;
    return (outer * p->rows + id) * p->inner.n + (i - slice * p->inner.n);
}

#define GATHER(unit)                                                                               \
    KERNEL(gather_##unit, gather_params) {                                                         \
        const unit *const x = (const unit *)p.x;                                                   \
        unit *const out = (unit *)p.out;                                                           \
        ROUNDS(p.count) {                                                                          \
            unit v[MG_AT_ONCE];                                                                    \
            EACH(i, k, p.count) {                                                                  \
                const int64_t at = origin(&p, i);                                                  \
                v[k] = at < 0 ? *(const unit *)p.value : x[at];                                    \
            }                                                                                      \
            EACH(i, k, p.count) out[i] = v[k];                                                     \
        }                                                                                          \
    }
GATHER(unit_1)
GATHER(unit_2)
GATHER(unit_4)
GATHER(unit_8)
GATHER(unit_16)
