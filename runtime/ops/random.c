/* random: the one op that draws random numbers.
 *
 * Philox words are keyed by (seed, stream) and counted by (the draw's ordinal, the element's
 * row-major index in the whole tensor), so the numbers depend on nothing else: not on the device,
 * nor on how the tensor is split over devices. Every call of the op takes the next ordinal; a plan
 * adds the ordinal at which its run begins.
 *
 * With no tensor inputs, the op has no gradient. A device that makes part of the rows gets the
 * index of its first element in mg_ref.first. */
#include "ops/random.h"
#include "ops/attrs.h"
#include "ops/ops.h"
#include <float.h>

/* In the order of enum mg_random_kind. */
static const char *const kind_names[] = {"uniform",   "normal",  "truncated_normal",
                                         "bernoulli", "randint", NULL};

/* a and b mean what the distribution says: bounds, mean and deviation, or a probability. */
static const mg_attr random_attrs[] = {
    {"shape", MG_ATTR_SHAPE, offsetof(mg_random_attrs, shape), 0, NULL, "the shape"},
    {"kind", MG_ATTR_CHOICE, offsetof(mg_random_attrs, kind), MG_RANDOM_UNIFORM, kind_names,
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

/* ---- inference: the checks of each distribution ---- */

/* Fills in the default dtype of the kind; bernoulli is always bool. */
static void resolve_random_dtype(mg_random_attrs *a) {
    if (a->kind == MG_RANDOM_BERNOULLI)
        a->dtype = MG_BOOL;
    else if (a->dtype < 0)
        a->dtype = a->kind == MG_RANDOM_RANDINT ? MG_I32 : MG_F32;
}

/* The dtype must be floating, and both parameters must be finite in it. */
static mg_status check_random_float(const mg_infer *f, const mg_random_attrs *a) {
    const mg_dtype t = (mg_dtype)a->dtype;
    if (!mg_dtype_is_float(t))
        return mg_infer_fail(f, MG_USAGE, "%s numbers must be floating point, not %s",
                             kind_names[a->kind], mg_dtype_name(t));
    if (fabs(a->a) + fabs(a->b) <= (t == MG_F64 ? DBL_MAX : FLT_MAX)) return MG_OK;
    return mg_infer_fail(f, MG_USAGE,
                         "%g and %g do not fit into %s: choose smaller numbers or a wider dtype",
                         a->a, a->b, mg_dtype_name(t));
}

/* [a, b) may be empty: then every number is a. */
static mg_status check_uniform(const mg_infer *f, const mg_random_attrs *a) {
    MG_TRY(check_random_float(f, a));
    if (a->a <= a->b) return MG_OK;
    return mg_infer_fail(f, MG_USAGE, "the lower bound %g exceeds the upper bound %g", a->a, a->b);
}

static mg_status check_normal(const mg_infer *f, const mg_random_attrs *a) {
    MG_TRY(check_random_float(f, a));
    if (a->b >= 0) return MG_OK;
    return mg_infer_fail(f, MG_USAGE, "the standard deviation must not be negative, got %g", a->b);
}

static mg_status check_bernoulli(const mg_infer *f, const mg_random_attrs *a) {
    if (a->a >= 0 && a->a <= 1) return MG_OK;
    return mg_infer_fail(f, MG_USAGE, "a probability lies between 0 and 1, got %g", a->a);
}

/* Bounds a < b, at most 2^32 apart (one Philox word decides), both representable in the dtype. */
static mg_status check_randint(const mg_infer *f, const mg_random_attrs *a) {
    const mg_dtype t = (mg_dtype)a->dtype;
    if (!(a->a < a->b && a->b - a->a <= 0x1p32 && floor(a->a) == a->a && floor(a->b) == a->b))
        return mg_infer_fail(f, MG_USAGE,
                             "bounds must be integers, the upper one larger by 1 to 2^32, got %g "
                             "and %g",
                             a->a, a->b);
    /* a and b - 1 are the smallest and the largest number drawn */
    if (mg_dtype_round(t, a->a) == a->a && mg_dtype_round(t, a->b - 1) == a->b - 1) return MG_OK;
    return mg_infer_fail(f, MG_USAGE,
                         "the integers %g to %g do not fit into %s: choose a wider dtype", a->a,
                         a->b - 1, mg_dtype_name(t));
}

/* The attributes give shape and dtype; each kind checks its own parameters. */
static mg_status random_infer(mg_infer *f) {
    mg_random_attrs *a = f->attrs;
    resolve_random_dtype(a);
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

/* Element i takes lane i % 4 of block i / 4; the first block may be entered in the middle. */
static void random_ref(const mg_ref *r) {
    const mg_random_attrs *a = r->attrs;
    const int64_t count = mg_shape_count(&r->shape);
    double block[4] = {0}; /* the numbers of the current block */
    for (int64_t i = r->first; i < r->first + count; i++) {
        if (i % 4 == 0 || i == r->first) {
            const uint64_t at = (uint64_t)i / 4;
            uint32_t words[4], low[4] = {0};
            mg_philox(words, at, r->rng.base, r->rng.seed, (uint32_t)a->stream);
            if (mg_random_takes_low(a))
                mg_philox(low, at | MG_RANDOM_LOW, r->rng.base, r->rng.seed, (uint32_t)a->stream);
            mg_random_block(a, words, low, block);
        }
        r->out[i - r->first] = block[i % 4];
    }
}

/* ---- the op table ---- */

static const mg_op random_rows[] = {
    {.name = "random",
     .doc = "random numbers of a distribution; every call draws new ones",
     .example =
         "local t = mgpu.random { kind = \"truncated_normal\", shape = { 1000 }, a = 100, b = 15 "
         "}\n"
         "print(t:min():item() >= 70, t:max():item() <= 130)  --> true true\n"
         "print(mgpu.random { kind = \"bernoulli\", shape = { 4 }, a = 0.5 }:dtype())  --> bool",
     .flags = MG_OP_RANDOM,
     MG_ATTRS(mg_random_attrs, random_attrs),
     .infer = random_infer,
     .ref = random_ref},
};

const mg_op_family mg_ops_random = {"random", random_rows,
                                    sizeof random_rows / sizeof random_rows[0]};
