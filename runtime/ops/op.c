/* The op table and mg_apply: from a row and its inputs to a lazy tensor.
 *
 * All checking happens here and in the rows' infer rules, at the call; nothing is computed. */
#include "ops/op.h"
#include "ops/attrs.h"
#include "core/alloc.h"
#include "core/context.h"
#include "ops/ops.h"
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- the table ---- */

static const mg_op_family *const families[] = {
#define X(family) &mg_ops_##family,
    MG_OP_FAMILIES(X)
#undef X
};
enum { N_FAMILIES = sizeof families / sizeof families[0], N_SLOTS = 512 };

static const mg_op *slots[N_SLOTS];
static pthread_once_t slots_once = PTHREAD_ONCE_INIT;

static unsigned hash_name(const char *name) {
    unsigned h = 2166136261u;
    for (; *name; name++) h = (h ^ (unsigned char)*name) * 16777619u;
    return h % N_SLOTS;
}

static void fill_slots(void) {
    for (int f = 0; f < N_FAMILIES; f++)
        for (int i = 0; i < families[f]->n_rows; i++) {
            unsigned h = hash_name(families[f]->rows[i].name);
            while (slots[h]) h = (h + 1) % N_SLOTS;
            slots[h] = &families[f]->rows[i];
        }
}

const mg_op *mg_op_find(const char *name) {
    pthread_once(&slots_once, fill_slots);
    for (unsigned h = hash_name(name); slots[h]; h = (h + 1) % N_SLOTS)
        if (strcmp(slots[h]->name, name) == 0) return slots[h];
    return NULL;
}

int mg_op_count(void) {
    int n = 0;
    for (int f = 0; f < N_FAMILIES; f++) n += families[f]->n_rows;
    return n;
}

const mg_op *mg_op_at(int i) {
    for (int f = 0; f < N_FAMILIES; i -= families[f++]->n_rows)
        if (i < families[f]->n_rows) return &families[f]->rows[i];
    return NULL;
}

/* ---- shorthands for infer rules ---- */

mg_status mg_infer_fail(const mg_infer *f, mg_status code, const char *format, ...) {
    char text[768];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return mg_fail(code, "%s: %s", f->op->name, text);
}

mg_status mg_infer_rank(const mg_infer *f, int i, int rank, const char *meaning) {
    const mg_shape *s = mg_infer_shape(f, i);
    if (s->rank == rank) return MG_OK;
    return mg_infer_fail(f, MG_USAGE, "input %d must have %d axes (%s), got shape %s", i + 1, rank,
                         meaning, MG_SHAPE_TEXT(s));
}

mg_status mg_infer_float(const mg_infer *f, int i) {
    const mg_dtype t = (mg_dtype)f->inputs[i]->dtype;
    if (mg_dtype_is_float(t)) return MG_OK;
    return mg_infer_fail(f, MG_USAGE,
                         "input %d must be floating point, got %s: convert with "
                         ":to \"float32\"",
                         i + 1, mg_dtype_name(t));
}

mg_status mg_infer_integer(const mg_infer *f, int i) {
    const mg_dtype t = (mg_dtype)f->inputs[i]->dtype;
    if (!mg_dtype_is_float(t)) return MG_OK;
    return mg_infer_fail(f, MG_USAGE,
                         "input %d must hold integers, got %s: convert with "
                         ":to \"int32\"",
                         i + 1, mg_dtype_name(t));
}

mg_status mg_infer_axis(const mg_infer *f, int64_t *axis, int rank) {
    const int64_t a = *axis < 0 ? *axis + rank : *axis;
    if (a >= 0 && a < rank) {
        *axis = a;
        return MG_OK;
    }
    return mg_infer_fail(f, MG_USAGE, "axis %lld is out of range for a tensor of %d axes",
                         (long long)(*axis < 0 ? *axis : *axis + 1), rank);
}

/* ---- apply ---- */

static mg_status check_arity(const mg_op *op, int n) {
    if (n >= op->min_inputs && (op->max_inputs == 255 || n <= op->max_inputs)) return MG_OK;
    if (op->min_inputs == op->max_inputs)
        return mg_fail(MG_USAGE, "%s: takes %d input%s, got %d", op->name, op->min_inputs,
                       op->min_inputs == 1 ? "" : "s", n);
    return mg_fail(MG_USAGE, "%s: takes at least %d input%s, got %d", op->name, op->min_inputs,
                   op->min_inputs == 1 ? "" : "s", n);
}

/* The common dtype of inputs first..n-1, by the row's flags. */
static mg_dtype common_dtype(const mg_op *op, mg_tensor *const *inputs, int first, int n) {
    mg_dtype t = (mg_dtype)inputs[first]->dtype;
    for (int i = first + 1; i < n; i++) t = mg_dtype_promote(t, (mg_dtype)inputs[i]->dtype);
    return (op->flags & MG_OP_FLOAT) && !mg_dtype_is_float(t) ? MG_F32 : t;
}

/* The common dtype of the inputs that are data (see op.h), if it is a half. */
static bool half_data(const mg_op *op, mg_tensor *const *inputs, int n, mg_dtype *half) {
    *half = MG_BOOL;
    for (int i = 0; i < n; i++)
        if (op->data >> i & 1) *half = mg_dtype_promote(*half, (mg_dtype)inputs[i]->dtype);
    return mg_dtype_is_half(*half);
}

/* Retains inputs[i] in t, cast to `t` where the row promotes. */
static mg_status take_inputs(mg_tensor *t, mg_tensor *const *inputs, int n) {
    const mg_op *op = t->op;
    const int first = (op->flags & MG_OP_PROMOTE_REST) ? 1 : 0;
    const bool promote = (op->flags & (MG_OP_PROMOTE | MG_OP_PROMOTE_REST)) && n > first;
    mg_dtype common = promote ? common_dtype(op, inputs, first, n) : MG_F32, half;
    const bool halves = op->data && half_data(op, inputs, n, &half);
    t->n_inputs = 0;
    for (int i = 0; i < n; i++) {
        if (halves) common = op->data >> i & 1 ? half : MG_F32;
        if (!promote || i < first || inputs[i]->dtype == common) {
            t->inputs[i] = mg_tensor_retain(inputs[i]);
        } else {
            const int64_t dtype = common;
            t->inputs[i] = mg_apply(mg_op_find("cast"), &inputs[i], 1, &dtype);
            if (!t->inputs[i]) return mg_error_code();
        }
        t->n_inputs = i + 1;
    }
    return MG_OK;
}

/* Operands lie on one device; what is made of constants and random draws only goes where it is
 * needed. */
static bool is_place(const mg_op *op) {
    static const mg_op *place;
    if (!place) place = mg_op_find("place");
    return op == place;
}

/* Where the op is computed: with its first input that is more than a number, or else its first. */
static const mg_tensor *anchor_of(const mg_tensor *t) {
    const mg_tensor *anchor = NULL;
    for (int i = 0; i < t->n_inputs; i++) {
        const mg_tensor *x = t->inputs[i];
        if (x->any_device && !x->buffer) continue;
        if (mg_tensor_count(x) > 1) return x;
        if (!anchor) anchor = x;
    }
    return anchor;
}

/* A single number comes to where the others are. */
static mg_status bring_numbers(mg_tensor *t) {
    const mg_tensor *anchor = anchor_of(t);
    if (!anchor || is_place(t->op)) return MG_OK;
    const mg_place_attrs attrs = {.device = (int64_t)(intptr_t)anchor->device};
    for (int i = 0; i < t->n_inputs; i++) {
        mg_tensor *x = t->inputs[i];
        if ((x->any_device && !x->buffer) || x->device == anchor->device) continue;
        if (mg_tensor_count(x) != 1) continue;
        mg_tensor *placed = mg_apply(mg_op_find("place"), &x, 1, &attrs);
        if (!placed) return mg_error_code();
        mg_tensor_release(x);
        t->inputs[i] = placed;
    }
    return MG_OK;
}

static mg_status take_placement(mg_tensor *t) {
    const char *(*name)(const mg_device *d) = mg_device_hooks_get()->name;
    const mg_tensor *anchor = NULL;
    if (is_place(t->op)) {
        const mg_place_attrs *attrs = t->attrs;
        if (!attrs->device) return mg_fail(MG_USAGE, "place: no device was given");
        t->device = (mg_device *)(intptr_t)attrs->device;
        return MG_OK;
    }
    MG_TRY(bring_numbers(t));
    for (int i = 0; i < t->n_inputs; i++) {
        const mg_tensor *x = t->inputs[i];
        if (x->any_device && !x->buffer) continue;
        if (anchor && anchor->device != x->device)
            return mg_fail(MG_USAGE, "%s: inputs lie on %s and %s: move one with :to \"%s\"",
                           t->op->name, name(anchor->device), name(x->device),
                           name(anchor->device));
        anchor = x;
    }
    t->any_device = !anchor;
    if (anchor) {
        t->device = anchor->device;
        return MG_OK;
    }
    mg_device *d = mg_device_hooks_get()->find_default();
    t->device = d;
    return d ? MG_OK : mg_error_code();
}

static void take_defaults(const mg_op *op, char *attrs) {
    for (int i = 0; i < op->n_attrs; i++) {
        const mg_attr *a = &op->attrs[i];
        switch (a->type) {
        case MG_ATTR_NUMBER: *(double *)(void *)(attrs + a->offset) = a->fallback; break;
        case MG_ATTR_INTS:
        case MG_ATTR_SHAPE:
        case MG_ATTR_AXES: break;
        case MG_ATTR_INT:
        case MG_ATTR_BOOL:
        case MG_ATTR_DTYPE:
        case MG_ATTR_CHOICE:
        case MG_ATTR_AXIS: *(int64_t *)(void *)(attrs + a->offset) = (int64_t)a->fallback; break;
        }
    }
}

static mg_status infer(mg_tensor *t) {
    mg_infer f = {.op = t->op,
                  .n_inputs = t->n_inputs,
                  .inputs = t->inputs,
                  .attrs = t->attrs,
                  .dtype = t->n_inputs ? (mg_dtype)t->inputs[0]->dtype : MG_F32};
    MG_TRY(t->op->infer(&f));
    MG_TRY(mg_shape_check(&f.shape, t->op->name));
    t->shape = f.shape;
    t->dtype = (uint8_t)f.dtype;
    return MG_OK;
}

static void take_draw(mg_tensor *t) {
    if (!(t->op->flags & MG_OP_RANDOM)) return;
    if (t->trace) {
        t->draw = mg_context_get()->n_draws++;
    } else {
        t->seed = mg_rng_get().seed;
        t->draw = mg_rng_take(1);
    }
}

mg_tensor *mg_apply(const mg_op *op, mg_tensor *const *inputs, int n, const void *attrs) {
    if (check_arity(op, n) != MG_OK) return NULL;
    mg_tensor *t = mg_tensor_block(n, op->attrs_size);
    if (!t) return NULL;
    t->kind = MG_LAZY;
    t->op = op;
    t->trace = mg_context_get()->trace;
    if (op->attrs_size) {
        if (attrs)
            memcpy(t->attrs, attrs, op->attrs_size);
        else
            take_defaults(op, t->attrs);
    }
    if (take_inputs(t, inputs, n) != MG_OK || take_placement(t) != MG_OK || infer(t) != MG_OK) {
        mg_tensor_release(t);
        return NULL;
    }
    take_draw(t);
    return t;
}

/* ---- split rules ---- */

bool mg_split_rows(mg_split *s, unsigned inputs, int out) {
    bool any = false;
    for (int i = 0; i < s->n_inputs; i++) {
        if (!(inputs >> i & 1)) continue;
        if (s->given[i] > 0) return false;
        any |= s->given[i] == 0;
        s->in[i] = 0;
    }
    s->out = out;
    return any;
}

bool mg_split_except(mg_split *s, int64_t axis) {
    if (s->given[0] < 0 || s->given[0] == axis) return false;
    s->out = s->in[0] = s->given[0];
    return true;
}

bool mg_split_broadcast(mg_split *s) {
    const int rank = s->shape->rank;
    int axis = MG_REPLICATED;
    for (int i = 0; i < s->n_inputs; i++) {
        if (s->given[i] < 0) continue;
        const int own = s->given[i] + rank - s->in_shape[i]->rank;
        if (axis >= 0 && axis != own) return false;
        axis = own;
    }
    if (axis < 0) return false;
    for (int i = 0; i < s->n_inputs; i++) {
        const int own = axis - (rank - s->in_shape[i]->rank);
        if (own < 0 || s->in_shape[i]->dim[own] != s->shape->dim[axis]) continue;
        s->in[i] = own;
    }
    s->out = axis;
    return true;
}
