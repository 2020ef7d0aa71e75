/* The text of a lowered plan: one line a step, and one before each row of
 * groups that are alike: what they all do. Two traces of the same code give the
 * same text. */
#include "core/alloc.h"
#include "graph/ir.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef struct text {
    char *data;
    size_t n, capacity;
    bool failed;
} text;

static void print(text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void print(text *t, const char *format, ...) {
    char piece[512];
    va_list args;
    va_start(args, format);
    vsnprintf(piece, sizeof piece, format, args);
    va_end(args);
    const size_t n = strlen(piece);
    if (t->failed) return;
    if (t->n + n + 1 > t->capacity) {
        const size_t capacity = 2 * (t->capacity + n + 1);
        char *data = mg_realloc(t->data, capacity);
        t->failed = !data;
        if (!data) return;
        t->data = data;
        t->capacity = capacity;
    }
    memcpy(t->data + t->n, piece, n + 1);
    t->n += n;
}

static void print_list(text *t, const char *name, const mg_ints *list) {
    if (list->n == 0) return;
    print(t, " %s={", name);
    for (int i = 0; i < list->n; i++) print(t, i ? ",%lld" : "%lld", (long long)list->v[i]);
    print(t, "}");
}

static void print_attrs(text *t, const mg_step *s) {
    for (int i = 0; i < s->op->n_attrs; i++) {
        const mg_attr *a = &s->op->attrs[i];
        const char *at = (const char *)s->attrs + a->offset;
        switch (a->type) {
        case MG_ATTR_NUMBER:
            print(t, " %s=%.17g", a->name, *(const double *)(const void *)at);
            break;
        case MG_ATTR_INTS:
        case MG_ATTR_SHAPE:
        case MG_ATTR_AXES: print_list(t, a->name, (const mg_ints *)(const void *)at); break;
        case MG_ATTR_INT:
        case MG_ATTR_BOOL:
        case MG_ATTR_DTYPE:
        case MG_ATTR_CHOICE:
        case MG_ATTR_AXIS:
            print(t, " %s=%lld", a->name, (long long)*(const int64_t *)(const void *)at);
            break;
        }
    }
}

static const char *const names[] = {
#define UNARY(name, rule, value, grad, doc) #name,
#define BINARY(name, rule, value, grad_a, grad_b, doc) #name,
#define TERNARY(name, rule, value, grad_a, grad_b, grad_c, doc) #name,
#include "ops/elementwise.def"
};

static void print_expression(text *t, const mg_fused *e) {
    const int first_result = e->n_inputs + e->n_imms;
    for (int i = 0; i < e->n_instrs; i++) {
        const mg_instr *instr = &e->instr[i];
        print(t, "%s%s:%s(", i ? "; " : "", names[instr->op],
              mg_dtype_name((mg_dtype)instr->dtype));
        for (int k = 0; k < instr->n_args; k++) {
            const int a = instr->arg[k];
            if (k) print(t, ",");
            if (a < e->n_inputs)
                print(t, "in%d", a);
            else if (a < first_result)
                print(t, "%.17g", e->imm[a - e->n_inputs]);
            else
                print(t, "r%d", a - first_result);
        }
        print(t, ")");
    }
}

static void print_where(text *t, const mg_lowered *l, int i, bool where) {
    if (where && l->where[i]) print(t, "  -- %s", l->where[i]);
    print(t, "\n");
}

static void print_step(text *t, const mg_lowered *l, int i, bool where) {
    const mg_step *s = &l->graph.steps[i];
    const char *phase = i < l->graph.n_compute ? "" : "commit ";
    if (s->batch_count > 1) {
        print(t, "%s%d %s", phase, s->batch_count, s->fused ? "alike: " : "in a bucket");
        if (s->fused) print_expression(t, s->fused);
        print_where(t, l, i, where && s->fused);
    }
    print(t, "%s%s", phase, s->batch_count == 1 ? "" : "  ");
    for (int k = 0; k < s->n_out; k++) {
        const mg_value *v = &l->graph.values[s->out[k]];
        print(t, "%s%%%d:%s%s", k ? ", " : "", s->out[k], mg_dtype_name(v->dtype),
              MG_SHAPE_TEXT(&v->shape));
    }
    print(t, " = %s(", s->op ? s->op->name : "fused");
    for (int k = 0; k < s->n_in; k++) print(t, "%s%%%d", k ? ", " : "", s->in[k]);
    print(t, ")");
    if (s->op && s->attrs) print_attrs(t, s);
    if (s->fused && s->batch_count == 1) {
        print(t, " ");
        print_expression(t, s->fused);
    }
    print_where(t, l, i, where);
}

char *mg_lowered_dump(const mg_lowered *l, bool where) {
    text t = {.data = mg_alloc_zero(1), .capacity = 1};
    t.failed = !t.data;
    for (int i = 0; i < l->graph.n_steps; i++) print_step(&t, l, i, where);
    if (!t.failed) return t.data;
    mg_free(t.data);
    return NULL;
}
