/* all_finite: whether all elements of tensors are finite, for several tensors of any floating
 * dtypes and several results in one launch.
 *
 * A float is not finite if all bits of its exponent are set. So the memory is read as words of 32
 * bits, which hold one exponent or two: `high` and `low` are the bits of each (finite_params).
 *
 * A thread that finds such an element marks the tensor in the launch's cell, in memory of the image
 * that is 0 whenever no such kernel runs: the block that is done last writes the results, and
 * clears the cell. So nothing needs to be cleared before the launch. */
#include "device/cuda/kernels/kernel.h"
#include "device/cuda/kernels/params.h"

typedef struct finite_cell {
    unsigned done; /* blocks */
    unsigned char bad[MG_FINITE_TENSORS];
} finite_cell;

GLOBAL finite_cell mg_finite_cells[MG_FINITE_CELLS];

/* Whether an exponent of the word has all bits set. */
DEVICE int mg_is_bad(uint32_t word, uint32_t high, uint32_t low) {
    return (word & high) == high || (low && (word & low) == low);
}

/* The last word of element i, which has the exponent; of 16 bits it is twice the same. */
DEVICE uint32_t mg_top_word(const finite_tensor *t, int64_t i) {
    if (t->size == 2) return ((const uint16_t *)t->in)[i] * 0x10001u;
    return ((const uint32_t *)t->in)[t->size == 8 ? 2 * i + 1 : i];
}

/* Whether the calling thread's elements are finite: those in accesses of 16 bytes first, then the
 * others one by one. Of float64 every other word has an exponent. */
DEVICE int mg_own_part_is_finite(const finite_tensor *t) {
    const uint32_t high = t->high, low = t->low, even = t->size == 8 ? 0 : high;
    int bad = 0;
    for (int64_t i = FIRST; i < t->vectors; i += STEP) {
        const finite_words w = ((const finite_words *)t->in)[i];
        bad |= mg_is_bad(w.at[1], high, low) | mg_is_bad(w.at[3], high, low);
        if (even) bad |= mg_is_bad(w.at[0], high, low) | mg_is_bad(w.at[2], high, low);
    }
    for (int64_t i = t->vectors * (16 / t->size) + FIRST; i < t->n; i += STEP)
        bad |= mg_is_bad(mg_top_word(t, i), high, low);
    return !bad;
}

/* Whether the calling block is the last one; what the others have written is then visible. */
DEVICE int mg_is_last_block(unsigned *done) {
    __shared__ int last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicAdd(done, 1u) == gridDim.x - 1;
    __syncthreads();
    __threadfence();
    return last;
}

KERNEL(all_finite, finite_params) {
    finite_cell *const cell = &mg_finite_cells[p.cell];
    for (int i = 0; i < p.tensors; i++)
        if (!mg_own_part_is_finite(&p.t[i])) cell->bad[i] = 1;
    if (!mg_is_last_block(&cell->done)) return;
    for (int r = threadIdx.x; r < p.results; r += blockDim.x) {
        int good = r > 0 || !p.continues || *p.r[r].out;
        for (int i = p.r[r].first; i < p.r[r].end; i++)
            good &= !((const volatile unsigned char *)cell->bad)[i];
        *p.r[r].out = (unsigned char)good;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < p.tensors; i += blockDim.x) cell->bad[i] = 0;
    if (threadIdx.x == 0) cell->done = 0;
}
