/* The op table and mg_apply: from a row and its inputs to a lazy tensor.
 *
 * All checking happens here and in the rows' infer rules, at the call, so that an error points at
 * the user's line; nothing is computed. */
#include "ops/op.h"
#include "ops/attrs.h"
#include "core/alloc.h"
#include "core/context.h"
#include "core/loop.h"
#include "ops/ops.h"
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- the table ---- */

/* One entry per line of ops.h. */
static const mg_op_family *const families[] = {
#define X(family) &mg_ops_##family,
    MG_OP_FAMILIES(X)
#undef X
};
enum { N_FAMILIES = sizeof families / sizeof families[0], N_SLOTS = 512 };

/* The hash table by name, with open addressing; filled at the first look-up. */
static const mg_op *slots[N_SLOTS];
static pthread_once_t slots_once = PTHREAD_ONCE_INIT;

/* FNV-1a, reduced to a slot. */
static unsigned hash_name(const char *name) {
    unsigned h = 2166136261u;
    for (; *name; name++) h = (h ^ (unsigned char)*name) * 16777619u;
    return h % N_SLOTS;
}

/* Runs once. The table is sparse, so probing ends soon. */
static void fill_slots(void) {
    for (int f = 0; f < N_FAMILIES; f++)
        for (int i = 0; i < families[f]->n_rows; i++) {
            unsigned h = hash_name(families[f]->rows[i].name);
            while (slots[h]) h = (h + 1) % N_SLOTS;
            slots[h] = &families[f]->rows[i];
        }
}

/* Safe from any thread. */
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

/* Families one after another, in the order of ops.h. */
const mg_op *mg_op_at(int i) {
    for (int f = 0; f < N_FAMILIES; i -= families[f++]->n_rows)
        if (i < families[f]->n_rows) return &families[f]->rows[i];
    return NULL;
}

/* ---- shorthands for infer rules ---- */

/* The op's name begins the message. */
mg_status mg_infer_fail(const mg_infer *f, mg_status code, const char *format, ...) {
    va_list args;
    va_start(args, format);
    mg_fail_v(code, format, args);
    va_end(args);
    mg_error_prefix(f->op->name);
    return code;
}

/* `meaning` names the axes, as in "rows, columns". Inputs are counted from 1. */
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

/* Lua counts from 1 and the message does too; negative axes count from the end in both. */
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

/* max_inputs of 255 means any number. */
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

/* The common dtype of the inputs that are data (see mg_op.data) in *half; whether it is float16 or
 * bfloat16. */
static bool common_half_dtype(const mg_op *op, mg_tensor *const *inputs, int n, mg_dtype *half) {
    *half = MG_BOOL;
    for (int i = 0; i < n; i++)
        if (op->data >> i & 1) *half = mg_dtype_promote(*half, (mg_dtype)inputs[i]->dtype);
    return mg_dtype_is_half(*half);
}

/* Retains the inputs in t, cast where the row promotes. If the data is in a half dtype, the other
 * inputs are float32. After a failure t holds the inputs so far, and its release frees them. */
static mg_status adopt_inputs(mg_tensor *t, mg_tensor *const *inputs, int n) {
    const mg_op *op = t->op;
    const int first = (op->flags & MG_OP_PROMOTE_REST) ? 1 : 0;
    const bool promote = (op->flags & (MG_OP_PROMOTE | MG_OP_PROMOTE_REST)) && n > first;
    mg_dtype common = promote ? common_dtype(op, inputs, first, n) : MG_F32, half = MG_F32;
    /* e.g. batch_norm: images in float16, statistics in float32 */
    const bool halves = op->data && common_half_dtype(op, inputs, n, &half);
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

/* Whether op copies its input to another device. */
static bool is_place(const mg_op *op) {
    static const mg_op *place;
    if (!place) place = mg_op_find("place");
    return op == place;
}

/* The input that decides the device: the first with more than one element, or else the first.
 * Inputs that could lie anywhere do not count. NULL if there is none. */
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

/* Single numbers from other devices are copied to the anchor's device, so that a loss weight, say,
 * may lie anywhere. Larger inputs are not copied behind the user's back: choose_device refuses
 * them. */
static mg_status move_scalars(mg_tensor *t) {
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

/* An op is computed where its inputs lie, which must be one device. An op over nothing but
 * constants and draws may lie anywhere; for now it lies on the default device. */
static mg_status choose_device(mg_tensor *t) {
    const char *(*name)(const mg_device *d) = mg_device_hooks_get()->name;
    const mg_tensor *anchor = NULL;
    if (is_place(t->op)) {
        const mg_place_attrs *attrs = t->attrs;
        if (!attrs->device) return mg_fail(MG_USAGE, "place: no device was given");
        t->device = (mg_device *)(intptr_t)attrs->device;
        return MG_OK;
    }
    MG_TRY(move_scalars(t));
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

void mg_op_default_attrs(const mg_op *op, void *attrs) {
    for (int i = 0; i < op->n_attrs; i++) {
        const mg_attr *a = &op->attrs[i];
        void *at = (char *)attrs + a->offset;
        switch (a->type) {
        case MG_ATTR_NUMBER: *(double *)at = a->fallback; break;
        case MG_ATTR_INTS:
        case MG_ATTR_SHAPE:
        case MG_ATTR_AXES: break;
        case MG_ATTR_INT:
        case MG_ATTR_BOOL:
        case MG_ATTR_DTYPE:
        case MG_ATTR_DEVICE:
        case MG_ATTR_CHOICE:
        case MG_ATTR_AXIS: *(int64_t *)at = (int64_t)a->fallback; break;
        }
    }
}

/* Shape and dtype of the output by the row's rule, which may also normalise attrs. */
static mg_status infer_output(mg_tensor *t) {
    mg_infer f = {.op = t->op,
                  .n_inputs = t->n_inputs,
                  .inputs = t->inputs,
                  .attrs = t->attrs,
                  .dtype = t->n_inputs ? (mg_dtype)t->inputs[0]->dtype : MG_F32};
    MG_TRY(t->op->infer(&f));
    MG_TRY(mg_shape_check(&f.shape, t->op->name));
    if (t->op->n_results) { /* nobody reads it */
        f.shape = MG_SHAPE(0);
        f.dtype = MG_F32;
    }
    t->shape = f.shape;
    t->dtype = (uint8_t)f.dtype;
    return MG_OK;
}

/* Inside a trace, ordinals count from 0, and each run adds its base. Outside, the draw takes the
 * next ordinal of the process's random state. */
static void take_random_ordinal(mg_tensor *t) {
    if (!(t->op->flags & MG_OP_RANDOM)) return;
    if (t->trace) {
        t->draw = mg_context_get()->n_draws++;
    } else {
        t->seed = mg_rng_get().seed;
        t->draw = mg_rng_take(1);
    }
}

/* A tensor of the op, over checked inputs. */
static mg_tensor *make_lazy(const mg_op *op, mg_tensor *const *inputs, int n, const void *attrs) {
    mg_tensor *t = mg_tensor_block(n, op->attrs_size);
    if (!t) return NULL;
    t->kind = MG_LAZY;
    t->op = op;
    t->trace = mg_context_get()->trace;
    if (op->attrs_size) {
        if (attrs)
            memcpy(t->attrs, attrs, op->attrs_size);
        else
            mg_op_default_attrs(op, t->attrs);
    }
    if (adopt_inputs(t, inputs, n) != MG_OK || choose_device(t) != MG_OK ||
        infer_output(t) != MG_OK) {
        mg_tensor_release(t);
        return NULL;
    }
    t->made_in_loop = mg_context_get()->draw != NULL;
    for (int i = 0; i < t->n_inputs; i++) t->in_loop |= t->inputs[i]->in_loop;
    take_random_ordinal(t);
    return t;
}

/* May apply further ops: casts of inputs, and copies of scalars from other devices. A draw in the
 * body of a loop is made outside of it. */
mg_tensor *mg_apply(const mg_op *op, mg_tensor *const *inputs, int n, const void *attrs) {
    if (!op) {
        mg_fail(MG_USAGE, "mg_apply: the op is NULL: mg_op_find knows no op of that name");
        return NULL;
    }
    if (check_arity(op, n) != MG_OK || mg_tensors_check(inputs, n, op->name) != MG_OK) return NULL;
    if ((op->flags & MG_OP_RANDOM) && mg_context_get()->draw)
        return mg_context_get()->draw(op, attrs);
    return make_lazy(op, inputs, n, attrs);
}

mg_tensor *mg_apply_loop(mg_loop *loop, mg_tensor *const *inputs, int n) {
    mg_tensor *t = make_lazy(mg_op_find("scan"), inputs, n, NULL);
    if (t) t->loop = mg_loop_retain(loop);
    return t;
}

/* ---- split rules ---- */

/* False if an input is sharded along another axis: it cannot be re-sharded by rows here. */
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

/* For ops over one axis, such as softmax: the rows along it must stay together. */
bool mg_split_except(mg_split *s, int64_t axis) {
    if (s->given[0] < 0 || s->given[0] == axis) return false;
    s->out = s->in[0] = s->given[0];
    return true;
}

/* Inputs that are broadcast along the axis, or lack it, stay replicated. */
bool mg_split_broadcast(mg_split *s) {
    const int rank = s->shape->rank;
    int axis = MG_REPLICATED;
    for (int i = 0; i < s->n_inputs; i++) {
        if (s->given[i] < 0) continue;
        const int own = s->given[i] + rank - s->in_shape[i]->rank; /* as an axis of the output */
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
