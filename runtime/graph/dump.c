/* The text of a lowered plan: one line per step. Two traces of the same code give the same text, so
 * tests and MGPU_CHECK=retrace compare plans by it.
 *
 *     %5:float32{2, 3} = fused(%0, %1) add:float32(in0,in1)  -- train.lua:7
 *
 * Steps that run as one (a multi-tensor update, a bucket of reductions) are indented below a line
 * with their number and their common text. */
#include "core/string_buffer.h"
#include "graph/ir.h"

/* Appends " name={1,2}"; an empty list is left out. */
static void print_list(mg_string_buffer *t, const char *name, const mg_ints *list) {
    if (list->n == 0) return;
    mg_string_buffer_add(t, " %s={", name);
    for (int i = 0; i < list->n; i++)
        mg_string_buffer_add(t, i ? ",%lld" : "%lld", (long long)list->v[i]);
    mg_string_buffer_add(t, "}");
}

/* Appends all attributes with their names; numbers have enough digits to tell any two apart. */
static void print_attrs(mg_string_buffer *t, const mg_step *s) {
    for (int i = 0; i < s->op->n_attrs; i++) { /* defaults too: the text must tell all */
        const mg_attr *a = &s->op->attrs[i];
        const char *at = (const char *)s->attrs + a->offset;
        switch (a->type) {
        case MG_ATTR_NUMBER:
            mg_string_buffer_add(t, " %s=%.17g", a->name, *(const double *)(const void *)at);
            break;
        case MG_ATTR_INTS:
        case MG_ATTR_SHAPE:
        case MG_ATTR_AXES: print_list(t, a->name, (const mg_ints *)(const void *)at); break;
        case MG_ATTR_INT:
        case MG_ATTR_BOOL:
        case MG_ATTR_DTYPE:
        case MG_ATTR_DEVICE:
        case MG_ATTR_CHOICE:
        case MG_ATTR_AXIS:
            mg_string_buffer_add(t, " %s=%lld", a->name,
                                 (long long)*(const int64_t *)(const void *)at);
            break;
        }
    }
}

/* Names of the element-wise ops, by their row in elementwise.def. */
static const char *const elementwise_names[] = {
#define UNARY(name, rule, value, grad, ...) #name,
#define BINARY(name, rule, value, grad_a, grad_b, ...) #name,
#define TERNARY(name, rule, value, grad_a, grad_b, grad_c, ...) #name,
#include "ops/elementwise.def"
};

/* Operands are inputs (in0), immediates (their numbers) and earlier results (r0). */
static void print_expression(mg_string_buffer *t, const mg_fused *e) {
    const int first_result = e->n_inputs + e->n_imms; /* operand number */
    for (int i = 0; i < e->n_instrs; i++) {
        const mg_instr *instr = &e->instr[i];
        mg_string_buffer_add(t, "%s%s:%s(", i ? "; " : "", elementwise_names[instr->op],
                             mg_dtype_name((mg_dtype)instr->dtype));
        for (int k = 0; k < instr->n_args; k++) {
            const int a = instr->arg[k]; /* inputs, then immediates, then results */
            if (k) mg_string_buffer_add(t, ",");
            if (a < e->n_inputs)
                mg_string_buffer_add(t, "in%d", a);
            else if (a < first_result)
                mg_string_buffer_add(t, "%.17g", e->imm[a - e->n_inputs]);
            else
                mg_string_buffer_add(t, "r%d", a - first_result);
        }
        mg_string_buffer_add(t, ")");
    }
}

/* Ends a line, with the user's line if it is wanted and known. */
static void print_where(mg_string_buffer *t, const mg_lowered *l, int i, bool where) {
    const char *line = l->graph.steps[i].origin.where;
    if (where && line) mg_string_buffer_add(t, "  -- %s", line);
    mg_string_buffer_add(t, "\n");
}

static void print_steps(mg_string_buffer *t, const mg_lowered *l, int depth, bool where);

/* The body of a loop: what its values stand for, then its steps. */
static void print_loop(mg_string_buffer *t, const mg_step *s, const mg_lowered *body, int depth,
                       bool where) {
    static const char *const roles[] = {"given", "carry", "row"};
    const mg_step_loop *loop = s->loop;
    for (int e = 0; e < body->graph.n_external; e++) {
        if (loop->input[e] < 0) continue;
        const mg_value *v = &body->graph.values[e];
        mg_string_buffer_add(t, "%*s%%%d:%s%s = %s(%%%d)\n", 2 * depth, "", e,
                             mg_dtype_name(v->dtype), MG_SHAPE_TEXT(&v->shape),
                             roles[loop->operands[loop->input[e]].role], s->in[loop->input[e]]);
    }
    print_steps(t, body, depth, where);
    for (int r = 0; r < loop->n_roots; r++) {
        const mg_loop_root *root = &loop->roots[r];
        mg_string_buffer_add(t, "%*s", 2 * depth, "");
        if (root->carry >= 0)
            mg_string_buffer_add(t, "next carry %d = %%%d", root->carry, root->external);
        else
            mg_string_buffer_add(t, "stack %%%d", root->external);
        if (root->out >= 0) mg_string_buffer_add(t, " -> %%%d", s->out[root->out]);
        mg_string_buffer_add(t, "\n");
    }
}

/* A batch of fused steps shows its expression once, in the line before. */
static void print_step(mg_string_buffer *t, const mg_lowered *l, int i, int depth, bool where) {
    const mg_step *s = &l->graph.steps[i];
    const char *phase = i < l->graph.n_compute ? "" : "commit ";
    mg_string_buffer_add(t, "%*s", 2 * depth, "");
    if (s->batch_count > 1) { /* the first of a batch; for the others it is 0 */
        mg_string_buffer_add(t, "%s%d %s", phase, s->batch_count,
                             s->fused ? "alike: " : "in a bucket");
        if (s->fused) print_expression(t, s->fused);
        print_where(t, l, i, where && s->fused);
        mg_string_buffer_add(t, "%*s", 2 * depth, "");
    }
    mg_string_buffer_add(t, "%s%s", phase, s->batch_count == 1 ? "" : "  ");
    for (int k = 0; k < s->n_out; k++) {
        const mg_value *v = &l->graph.values[s->out[k]];
        mg_string_buffer_add(t, "%s%%%d:%s%s", k ? ", " : "", s->out[k], mg_dtype_name(v->dtype),
                             MG_SHAPE_TEXT(&v->shape));
    }
    mg_string_buffer_add(t, " = %s(", s->op ? s->op->name : "fused");
    for (int k = 0; k < s->n_in; k++) mg_string_buffer_add(t, "%s%%%d", k ? ", " : "", s->in[k]);
    mg_string_buffer_add(t, ")");
    if (s->op && s->attrs) print_attrs(t, s);
    if (s->fused && s->batch_count == 1) {
        mg_string_buffer_add(t, " ");
        print_expression(t, s->fused);
    }
    if (s->loop)
        mg_string_buffer_add(t, " steps=%lld%s", (long long)s->loop->steps,
                             s->loop->reverse ? " reverse" : "");
    print_where(t, l, i, where);
    if (s->loop) print_loop(t, s, l->loops[i], depth + 1, where);
}

static void print_steps(mg_string_buffer *t, const mg_lowered *l, int depth, bool where) {
    for (int i = 0; i < l->graph.n_steps; i++) print_step(t, l, i, depth, where);
}

/* An empty plan gives an empty text. */
char *mg_lowered_dump(const mg_lowered *l, bool where) {
    mg_string_buffer t = {0};
    mg_string_buffer_add(&t, "%s", "");
    print_steps(&t, l, 0, where);
    return mg_string_buffer_status(&t) == MG_OK ? t.s : NULL;
}
