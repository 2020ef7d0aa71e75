/* Random tensors: words of the Philox generator, 16 blocks of four at a time, and numbers from them
 * by the formulas of ops/random.h.
 *
 * Within a tensor, a word depends only on the index of its element. So threads may compute any part
 * of the tensor, and a device any rows of it, with the same result. */
#include "ops/random.h"
#include "core/alloc.h"
#include "device/cpu/cpu.h"
#include <string.h>

/* blocks and words of a group, which is one call of philox16 */
enum { BLOCKS = 16, WORDS = 4 * BLOCKS };

/* Other dtypes are left to the reference kernel. */
static const char *random_accepts(const mg_kernel_plan *plan) {
    const mg_dtype t = plan->out[0].value->dtype;
    return mg_dtype_is_float(t) || t == MG_BOOL || t == MG_I32 ? NULL : "dtype of the result";
}

/* The fast cases: a distribution in its usual dtype. `words` are those of the n elements. */
static void fill_bernoulli(const mg_random_attrs *a, const uint32_t *words, uint8_t *out, int n) {
    const uint32_t limit = mg_random_threshold(a->a);
    for (int i = 0; i < n; i++) out[i] = (words[i] >> 8) < limit;
}

/* The same numbers as mg_random_uniform computes. */
static void fill_uniform(const mg_random_attrs *a, const uint32_t *words, float *out, int n) {
    const float low = (float)a->a, high = (float)a->b;
    for (int i = 0; i < n; i++) out[i] = mg_random_uniform_f(words[i], low, high);
}

/* Normal numbers come in pairs, so all numbers of a group are computed and the elements [from, to)
 * are copied. */
static void fill_normal(const mg_random_attrs *a, const uint32_t *words, float *out, int from,
                        int to) {
    float numbers[WORDS];
    const bool whole = to - from == WORDS;
    mg_simd_used->random->normal64(words, whole ? out : numbers, a->a, a->b);
    if (!whole) memcpy(out, numbers + from, (size_t)(to - from) * sizeof *out);
}

/* Any distribution and dtype, a block of four words at a time: the elements [from, to) of a
 * group. */
static void fill_any(const mg_random_attrs *a, const uint32_t *words, const uint32_t *low,
                     char *out, mg_dtype t, int from, int to) {
    for (int i = from & ~3; i < to; i += 4) {
        double block[4];
        const int skip = i < from ? from - i : 0, n = (to - i < 4 ? to - i : 4) - skip;
        mg_random_block(a, words + i, low + i, block);
        mg_from_double(out, block + skip, t, (size_t)n);
        out += (size_t)n * mg_dtype_size(t);
    }
}

/* call->first is the index of the first element: more than 0 on devices that hold later rows. */
static mg_status random_run(const mg_call *call) {
    const mg_random_attrs *a = call->plan->step->attrs;
    const mg_dtype t = call->plan->out[0].value->dtype;
    const int64_t count = mg_shape_count(&call->plan->out[0].value->shape);
    const int64_t begin = call->first, end = begin + count;
    const mg_simd_random *loops = mg_simd_used->random;
#pragma omp parallel for if (count > MG_SERIAL_BELOW)
    for (int64_t g = begin / WORDS; g < (end + WORDS - 1) / WORDS; g++) {
        uint32_t words[WORDS], low[WORDS];
        /* the elements of this group that the tensor holds */
        const int from = (int)(g * WORDS < begin ? begin - g * WORDS : 0);
        const int to = (int)(end - g * WORDS < WORDS ? end - g * WORDS : WORDS);
        char *out = (char *)call->out[0] + (size_t)(g * WORDS + from - begin) * mg_dtype_size(t);
        loops->philox16(words, (uint64_t)(g * BLOCKS), call->rng.base, call->rng.seed,
                        (uint32_t)a->stream);
        if (mg_random_takes_low(a))
            loops->philox16(low, (uint64_t)(g * BLOCKS) | MG_RANDOM_LOW, call->rng.base,
                            call->rng.seed, (uint32_t)a->stream);
        if (a->kind == MG_RANDOM_BERNOULLI && t == MG_BOOL)
            fill_bernoulli(a, words + from, (uint8_t *)out, to - from);
        else if (a->kind == MG_RANDOM_UNIFORM && t == MG_F32)
            fill_uniform(a, words + from, (float *)out, to - from);
        else if (a->kind == MG_RANDOM_NORMAL && t == MG_F32)
            fill_normal(a, words, (float *)out, from, to);
        else
            fill_any(a, words, low, out, t, from, to);
    }
    return MG_OK;
}

const mg_kernel mg_cpu_random = {
    .op = "random", .name = "philox", .accepts = random_accepts, .run = random_run};
