/* random: the one op that draws.
 *
 * Its key is (seed, stream), its counter the draw's ordinal and the element's row-major index, so
 * the numbers depend on nothing else: not on the device, nor on how a tensor is split. */
#include "ops/random.h"
#include "ops/attrs.h"
#include "ops/ops.h"
#include <float.h>

static const char *const kinds[] = {"uniform",   "normal",  "truncated_normal",
                                    "bernoulli", "randint", NULL};

static const mg_attr random_table[] = {
    {"shape", MG_ATTR_SHAPE, offsetof(mg_random_attrs, shape), 0, NULL, "the shape"},
    {"kind", MG_ATTR_CHOICE, offsetof(mg_random_attrs, kind), MG_RANDOM_UNIFORM, kinds,
     "the distribution"},
    {"a", MG_ATTR_NUMBER, offsetof(mg_random_attrs, a), 0, NULL,
     "lower bound; mean; probability of true"},
    {"b", MG_ATTR_NUMBER, offsetof(mg_random_attrs, b), 1, NULL,
     "upper bound, itself excluded; standard deviation"},
    {"dtype", MG_ATTR_DTYPE, offsetof(mg_random_attrs, dtype), -1, NULL,
     "default: float32, int32 for randint; bernoulli is bool"},
    {"stream", MG_ATTR_INT, offsetof(mg_random_attrs, stream), 0, NULL,
     "number of an independent sequence"},
};

/* ---- inference ---- */

static void take_dtype(mg_random_attrs *a) {
    if (a->kind == MG_RANDOM_BERNOULLI)
        a->dtype = MG_BOOL;
    else if (a->dtype < 0)
        a->dtype = a->kind == MG_RANDOM_RANDINT ? MG_I32 : MG_F32;
}

static mg_status check_float(const mg_infer *f, const mg_random_attrs *a) {
    const mg_dtype t = (mg_dtype)a->dtype;
    if (!mg_dtype_is_float(t))
        return mg_infer_fail(f, MG_USAGE, "%s numbers must be floating point, not %s",
                             kinds[a->kind], mg_dtype_name(t));
    if (fabs(a->a) + fabs(a->b) <= (t == MG_F64 ? DBL_MAX : FLT_MAX)) return MG_OK;
    return mg_infer_fail(f, MG_USAGE, "%g and %g do not fit into %s", a->a, a->b, mg_dtype_name(t));
}

static mg_status check_uniform(const mg_infer *f, const mg_random_attrs *a) {
    MG_TRY(check_float(f, a));
    if (a->a <= a->b) return MG_OK;
    return mg_infer_fail(f, MG_USAGE, "the lower bound %g exceeds the upper bound %g", a->a, a->b);
}

static mg_status check_normal(const mg_infer *f, const mg_random_attrs *a) {
    MG_TRY(check_float(f, a));
    if (a->b >= 0) return MG_OK;
    return mg_infer_fail(f, MG_USAGE, "the standard deviation must not be negative, got %g", a->b);
}

static mg_status check_bernoulli(const mg_infer *f, const mg_random_attrs *a) {
    if (a->a >= 0 && a->a <= 1) return MG_OK;
    return mg_infer_fail(f, MG_USAGE, "a probability lies between 0 and 1, got %g", a->a);
}

static mg_status check_randint(const mg_infer *f, const mg_random_attrs *a) {
    const mg_dtype t = (mg_dtype)a->dtype;
    if (!(a->a < a->b && a->b - a->a <= 0x1p32 && floor(a->a) == a->a && floor(a->b) == a->b))
        return mg_infer_fail(f, MG_USAGE,
                             "bounds must be integers, the upper one larger by 1 to 2^32, got %g "
                             "and %g",
                             a->a, a->b);
    if (mg_dtype_round(t, a->a) == a->a && mg_dtype_round(t, a->b - 1) == a->b - 1) return MG_OK;
    return mg_infer_fail(f, MG_USAGE, "%g to %g do not fit into %s", a->a, a->b - 1,
                         mg_dtype_name(t));
}

static mg_status random_infer(mg_infer *f) {
    mg_random_attrs *a = f->attrs;
    take_dtype(a);
    f->shape = mg_shape_of(a->shape.n, a->shape.v);
    f->dtype = (mg_dtype)a->dtype;
    switch ((enum mg_random_kind)a->kind) {
    case MG_RANDOM_UNIFORM: return check_uniform(f, a);
    case MG_RANDOM_NORMAL:
    case MG_RANDOM_TRUNCATED_NORMAL: return check_normal(f, a);
    case MG_RANDOM_BERNOULLI: return check_bernoulli(f, a);
    case MG_RANDOM_RANDINT: return check_randint(f, a);
    }
    return mg_infer_fail(f, MG_USAGE, "there is no kind number %lld", (long long)a->kind);
}

/* ---- the reference kernel ---- */

static void random_ref(const mg_ref *r) {
    const mg_random_attrs *a = r->attrs;
    const int64_t count = mg_shape_count(&r->shape);
    double block[4] = {0};
    for (int64_t i = r->first; i < r->first + count; i++) {
        if (i % 4 == 0 || i == r->first) {
            uint32_t words[4];
            mg_philox(words, (uint64_t)i / 4, r->rng.base, r->rng.seed, (uint32_t)a->stream);
            mg_random_block(a, words, block);
        }
        r->out[i - r->first] = block[i % 4];
    }
}

/* ---- the row ---- */

static const mg_op rows[] = {
    {.name = "random",
     .doc = "random numbers of a kind; every call draws others",
     .flags = MG_OP_RANDOM,
     MG_ATTRS(mg_random_attrs, random_table),
     .infer = random_infer,
     .ref = random_ref},
};

const mg_op_family mg_ops_random = {"random", rows, sizeof rows / sizeof rows[0]};
