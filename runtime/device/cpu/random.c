/* Random tensors: Philox by sixteen blocks at a time, numbers by the formulas of ops/random.h.
 *
 * Words depend on the element's index only, so threads may take any part. */
#include "ops/random.h"
#include "core/alloc.h"
#include "device/cpu/cpu.h"
#include "device/cpu/loops.h"

enum { BLOCKS = 16, WORDS = 4 * BLOCKS };

static const char *accepts(const mg_kernel_plan *plan) {
    const mg_dtype t = plan->out[0].value->dtype;
    return t == MG_F32 || t == MG_F64 || t == MG_BOOL || t == MG_I32 ? NULL : "dtype of the result";
}

static void bernoulli(const mg_random_attrs *a, const uint32_t *words, uint8_t *out, int n) {
    const uint32_t limit = mg_random_threshold(a->a);
    for (int i = 0; i < n; i++) out[i] = (words[i] >> 8) < limit;
}

static void uniform(const mg_random_attrs *a, const uint32_t *words, float *out, int n) {
    const float low = (float)a->a, high = (float)a->b;
    for (int i = 0; i < n; i++) out[i] = mg_random_uniform_f(words[i], low, high);
}

/* Any kind and dtype, by blocks of four. */
static void any_kind(const mg_random_attrs *a, const uint32_t *words, void *out, mg_dtype t,
                     int64_t first, int n) {
    for (int i = 0; i < n; i += 4) {
        double block[4];
        mg_random_block(a, words + i, block);
        mg_from_double((char *)out + (size_t)(first + i) * mg_dtype_size(t), block, t,
                       (size_t)(n - i < 4 ? n - i : 4));
    }
}

static mg_status run(const mg_call *call) {
    const mg_random_attrs *a = call->plan->step->attrs;
    const mg_dtype t = call->plan->out[0].value->dtype;
    const int64_t count = mg_shape_count(&call->plan->out[0].value->shape);
    const int64_t groups = (count + WORDS - 1) / WORDS;
    const mg_loops *loops = mg_loops_best();
#pragma omp parallel for if (count > MG_SERIAL_BELOW)
    for (int64_t g = 0; g < groups; g++) {
        uint32_t words[WORDS];
        const int64_t first = g * WORDS;
        const int n = (int)(count - first < WORDS ? count - first : WORDS);
        loops->philox16(words, (uint64_t)(g * BLOCKS), call->rng.base, call->rng.seed,
                        (uint32_t)a->stream);
        if (a->kind == MG_RANDOM_BERNOULLI && t == MG_BOOL)
            bernoulli(a, words, (uint8_t *)call->out[0] + first, n);
        else if (a->kind == MG_RANDOM_UNIFORM && t == MG_F32)
            uniform(a, words, (float *)call->out[0] + first, n);
        else
            any_kind(a, words, call->out[0], t, first, n);
    }
    return MG_OK;
}

const mg_kernel mg_cpu_random = {.op = "random", .name = "philox", .accepts = accepts, .run = run};
