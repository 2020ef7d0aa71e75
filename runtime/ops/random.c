/* Random tensors: a function of seed, stream, ordinal and element index only (core/rng.h). */
#include "ops/random.h"
#include "ops/build.h"
#include "ops/ops.h"

static const char *const kinds[] = {"uniform",   "normal",  "truncated_normal",
                                    "bernoulli", "randint", NULL};

static mg_status random_infer(mg_infer *f) {
    mg_random_attrs *a = f->attrs;
    f->shape = mg_shape_of(a->shape.n, a->shape.v);
    f->dtype = (mg_dtype)a->dtype;
    switch ((enum mg_random_kind)a->kind) {
    case MG_RANDOM_UNIFORM:
    case MG_RANDOM_NORMAL:
    case MG_RANDOM_TRUNCATED_NORMAL:
        if (mg_dtype_is_float(f->dtype)) return MG_OK;
        return mg_infer_fail(f, MG_USAGE, "%s numbers are floating point, not %s", kinds[a->kind],
                             mg_dtype_name(f->dtype));
    case MG_RANDOM_BERNOULLI:
        if (a->a >= 0 && a->a <= 1) return MG_OK;
        return mg_infer_fail(f, MG_USAGE, "the probability must be 0 to 1, got %g", a->a);
    case MG_RANDOM_RANDINT:
        if (a->b > a->a && a->b - a->a <= 0x1p32 && a->a == floor(a->a) && a->b == floor(a->b))
            return MG_OK;
        return mg_infer_fail(f, MG_USAGE, "randint needs whole numbers with low < high, got %g and "
                                          "%g", a->a, a->b);
    }
    return mg_infer_fail(f, MG_USAGE, "unknown kind");
}

static void random_ref(const mg_ref *r) {
    const mg_random_attrs *a = r->attrs;
    const int64_t n = mg_shape_count(&r->shape);
    double block[4] = {0};
    for (int64_t i = 0; i < n; i++) {
        uint32_t word[4];
        if (i % 4 == 0) {
            mg_philox(word, (uint64_t)i / 4, r->rng.base, r->rng.seed, (uint32_t)a->stream);
            mg_random_block(a, word, block);
        }
        r->out[i] = block[i % 4];
    }
}

static const mg_attr random_table[] = {
    {"shape", MG_ATTR_SHAPE, offsetof(mg_random_attrs, shape), 0, NULL, "of the result"},
    {"kind", MG_ATTR_CHOICE, offsetof(mg_random_attrs, kind), 0, kinds, "the distribution"},
    {"a", MG_ATTR_NUMBER, offsetof(mg_random_attrs, a), 0, NULL, "low, mean, or probability"},
    {"b", MG_ATTR_NUMBER, offsetof(mg_random_attrs, b), 1, NULL, "high (left out) or deviation"},
    {"dtype", MG_ATTR_DTYPE, offsetof(mg_random_attrs, dtype), MG_F32, NULL, "of the result"},
    {"stream", MG_ATTR_INT, offsetof(mg_random_attrs, stream), 0, NULL, "a sequence of its own"},
};

static const mg_op rows[] = {
    {.name = "random",
     .doc = "random numbers of a distribution",
     .flags = MG_OP_RANDOM,
     MG_ATTRS(mg_random_attrs, random_table),
     .infer = random_infer,
     .ref = random_ref},
};

const mg_op_family mg_ops_random = {"random", rows, sizeof rows / sizeof rows[0]};
