/* gather: copies slices of x that ids pick along an axis: x {outer, rows, inner}, ids {n}, out
 * {outer, n, inner}. The dtype does not matter: slices are copied in the largest unit (1 to 16
 * bytes) that their size and addresses allow. A thread copies MG_AT_ONCE units a round. */
#include "device/cuda/kernels/movement_params.h"
#include "device/cuda/kernels/index.h"
#include "device/cuda/kernels/kernel.h"

/* The position in x, in units, that unit i of the result comes from; -1 if its id is out of range.
 */
DEVICE int64_t gather_origin(const gather_params *p, uint32_t i) {
    const uint32_t slice = mg_divide(i, p->inner), row = p->first + slice;
    const uint32_t outer = mg_divide(row, p->n);
    const int64_t id = mg_id(p->ids, p->id_bytes, row - outer * p->n.n);
    if (id < 0 || id >= p->rows) return -1;
    return (outer * p->rows + id) * p->inner.n + (i - slice * p->inner.n);
}

/* Out-of-range ids give p.value. All reads of a round come before its writes, so they overlap. */
#define GATHER(unit)                                                                               \
    KERNEL(gather_##unit, gather_params) {                                                         \
        const unit *const x = (const unit *)p.x;                                                   \
        unit *const out = (unit *)p.out;                                                           \
        ROUNDS(p.count) {                                                                          \
            unit v[MG_AT_ONCE];                                                                    \
            EACH(i, k, p.count) {                                                                  \
                const int64_t at = gather_origin(&p, i);                                           \
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
