/* The reference kernel: any op by the reference function of its row, any fused group by
 * interpreting its expression element by element. Slow and exact: the oracle that other kernels are
 * tested against, and the fallback for ops without a kernel on a device.
 *
 * Reference functions compute in double, or in int64 if all operands are integers and the op's row
 * has a function for these. Operands are converted in scratch memory (those of that type are read
 * in place), and the result is rounded to its dtype. */
#include "core/alloc.h"
#include "device/program/program.h"
#include "ops/elementwise.h"
#include <string.h>

typedef struct reference_state { /* of an op's call: what mg_ref points to; one allocation */
    mg_shape *shapes;            /* per input */
    mg_dtype *dtypes;
    mg_dtype number; /* MG_F64 or MG_I64: in which the function computes */
} reference_state;

/* The type in which the step is computed. */
static mg_dtype number_of(const mg_kernel_plan *plan) {
    const mg_step *s = plan->step;
    bool floats = !s->op->ref_integers || mg_dtype_is_float(plan->out[0].value->dtype);
    for (int i = 0; i < s->n_in; i++) floats |= mg_dtype_is_float(plan->in[i].value->dtype);
    return floats ? MG_F64 : MG_I64;
}

/* Scratch memory for a value that is converted to `number`. */
static size_t converted_bytes(const mg_value *v, mg_dtype number) {
    return v->dtype == number ? 0 : (size_t)mg_shape_count(&v->shape) * mg_dtype_size(number);
}

/* Checks that the step can be run, and computes the size of the scratch memory, which holds the
 * addresses of the operands and results, then the converted operands, then the results before their
 * conversion. */
static mg_status reference_prepare(mg_kernel_plan *plan) {
    const mg_step *s = plan->step;
    for (int i = 0; i < s->n_in; i++) plan->in[i].layout = MG_ROW_MAJOR;
    const bool several = s->op && s->op->n_results;
    const int n_out = several ? s->n_out : s->fused ? s->fused->n_outputs : 1;
    if (s->n_out != n_out)
        return mg_fail(MG_INTERNAL, "%s: has %d results, not %d", s->fused ? "fused" : s->op->name,
                       n_out, s->n_out);
    if (s->fused) return MG_OK;
    if (!s->op->ref)
        return mg_fail(MG_UNSUPPORTED, "%s: has no kernel for %s", s->op->name, plan->device->name);
    const size_t n = (size_t)s->n_in;
    reference_state *state =
        mg_alloc_zero(sizeof *state + n * (sizeof(mg_shape) + sizeof(mg_dtype)));
    if (!state) return MG_OOM;
    state->shapes = (mg_shape *)(state + 1);
    state->dtypes = (mg_dtype *)(state->shapes + n);
    state->number = number_of(plan);
    plan->scratch = (n + (size_t)n_out) * sizeof(void *);
    for (int i = 0; i < n_out; i++)
        plan->scratch += converted_bytes(plan->out[i].value, state->number);
    for (size_t i = 0; i < n; i++) {
        state->shapes[i] = plan->in[i].value->shape;
        state->dtypes[i] = plan->in[i].value->dtype;
        plan->scratch += converted_bytes(plan->in[i].value, state->number);
    }
    plan->state = state;
    return MG_OK;
}

/* ---- ops ---- */

/* Converts the operands, calls the op's reference function, and rounds its result. */
static mg_status run_op(const mg_call *call) {
    const mg_kernel_plan *plan = call->plan;
    const mg_step *s = plan->step;
    const reference_state *state = plan->state;
    const mg_value *out = plan->out[0].value;
    const bool integers = state->number == MG_I64;
    const void **in = call->scratch; /* n_in addresses, n_out addresses, converted operands */
    void **outs = call->scratch;
    outs += s->n_in;
    int64_t *scratch = (int64_t *)(outs + s->n_out); /* of numbers of either type: 8 bytes each */
    for (int i = 0; i < s->n_in; i++) {
        const mg_value *v = plan->in[i].value;
        const size_t n = (size_t)mg_shape_count(&v->shape);
        in[i] = call->in[i];
        if (v->dtype == state->number) continue;
        if (integers)
            mg_to_int64(scratch, call->in[i], v->dtype, n);
        else
            mg_to_double((double *)scratch, call->in[i], v->dtype, n);
        in[i] = scratch;
        scratch += n;
    }
    for (int i = 0; i < s->n_out; i++) {
        const mg_value *v = plan->out[i].value;
        outs[i] = v->dtype == state->number ? call->out[i] : scratch;
        if (outs[i] == scratch) scratch += mg_shape_count(&v->shape);
    }
    const mg_ref r = {.op = s->op,
                      .attrs = s->attrs,
                      .n_inputs = s->n_in,
                      .in_shape = state->shapes,
                      .in_dtype = state->dtypes,
                      .in = integers ? NULL : (const double *const *)in,
                      .in_integers = integers ? (const int64_t *const *)in : NULL,
                      .shape = out->shape,
                      .dtype = out->dtype,
                      .out = integers ? NULL : outs[0],
                      .out_integers = integers ? outs[0] : NULL,
                      .n_outs = s->n_out,
                      .outs = integers ? NULL : (double *const *)outs,
                      .outs_integers = integers ? (int64_t *const *)outs : NULL,
                      .rng = call->rng,
                      .first = call->first};
    (integers ? s->op->ref_integers : s->op->ref)(&r);
    for (int i = 0; i < s->n_out; i++) {
        const mg_value *v = plan->out[i].value;
        const size_t n = (size_t)mg_shape_count(&v->shape);
        if (outs[i] == call->out[i]) continue;
        if (integers)
            mg_from_int64(call->out[i], outs[i], v->dtype, n);
        else
            mg_from_double(call->out[i], outs[i], v->dtype, n);
    }
    return MG_OK;
}

/* ---- fused groups ---- */

/* Evaluates the expression for one element. v holds, by operand number: inputs, immediates, and the
 * results of the instructions, which are rounded to their dtype after each step. */
static void evaluate_element(const mg_fused *e, double *v) {
    const int first = e->n_inputs + e->n_imms;
    for (int i = 0; i < e->n_instrs; i++) {
        const mg_instr *instr = &e->instr[i];
        double a[3] = {0};
        for (int k = 0; k < instr->n_args; k++) a[k] = v[instr->arg[k]];
        const double y = mg_elementwise_value((enum mg_elementwise)instr->op, a[0], a[1], a[2]);
        v[first + i] = mg_dtype_round((mg_dtype)instr->dtype, y);
    }
}

/* Reads one element of each input into v; `offset` counts in elements, per input. */
static void load_element(const mg_call *call, const int64_t *offset, double *v) {
    const mg_fused *e = call->plan->step->fused;
    for (int i = 0; i < e->n_inputs; i++) {
        const mg_dtype t = (mg_dtype)e->in_dtype[i];
        const size_t at = (size_t)offset[i] * mg_dtype_size(t);
        mg_to_double(&v[i], (const char *)call->in[i] + at, t, 1);
    }
}

/* Writes element n of each output. */
static void store_element(const mg_call *call, int64_t n, const double *v) {
    const mg_fused *e = call->plan->step->fused;
    for (int i = 0; i < e->n_outputs; i++) {
        const mg_dtype t = call->plan->out[i].value->dtype;
        mg_from_double((char *)call->out[i] + (size_t)n * mg_dtype_size(t), &v[e->output[i]], t, 1);
    }
}

/* Walks over the output's elements in row-major order. Broadcast axes of an input have stride 0. */
static mg_status run_fused(const mg_call *call) {
    const mg_fused *e = call->plan->step->fused;
    const mg_shape *shape = &call->plan->out[0].value->shape;
    int64_t stride[MG_FUSE_MAX_INPUTS][MG_MAX_RANK], at[MG_MAX_RANK] = {0};
    int64_t offset[MG_FUSE_MAX_INPUTS] = {0};
    /* inputs, immediates and results of instructions; immediates are the same for all elements */
    double v[MG_FUSE_MAX_INPUTS + 2 * MG_FUSE_MAX_INSTRS];
    memcpy(v + e->n_inputs, e->imm, (size_t)e->n_imms * sizeof *v);
    for (int i = 0; i < e->n_inputs; i++)
        mg_shape_strides(&call->plan->in[i].value->shape, shape, stride[i]);
    const int64_t count = mg_shape_count(shape);
    for (int64_t n = 0; n < count; n++) {
        load_element(call, offset, v);
        evaluate_element(e, v);
        store_element(call, n, v);
        /* advance the index `at` by one, carrying into the axes before */
        for (int axis = shape->rank - 1; axis >= 0; axis--) {
            for (int i = 0; i < e->n_inputs; i++) offset[i] += stride[i][axis];
            if (++at[axis] < shape->dim[axis]) break;
            for (int i = 0; i < e->n_inputs; i++) offset[i] -= stride[i][axis] * at[axis];
            at[axis] = 0;
        }
    }
    return MG_OK;
}

static mg_status reference_run(const mg_call *call) {
    return call->plan->step->fused ? run_fused(call) : run_op(call);
}

const mg_kernel mg_reference_kernel = {
    .name = "reference", .prepare = reference_prepare, .run = reference_run, .release = mg_free};
