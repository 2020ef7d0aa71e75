/* Gradients by a reverse walk over the history of tensors (reverse-mode differentiation).
 *
 * The history of y is listed in topological order, stopping at the tensors of `wrt`, and the
 * tensors on a path to one of these are marked. Then each marked tensor, last first, adds to the
 * gradients of its inputs by its op's rule. Gradients are accumulated in the dtype that the rules
 * give, and rounded once to the tensor's dtype before they are propagated. The result is made of
 * ordinary tensors. */
#include "core/alloc.h"
#include "graph/graph.h"
#include "graph/toposort.h"
#include "ops/build.h"
#include <stdlib.h>

/* Per tensor of the list. */
typedef struct grad_node {
    mg_tensor *tensor;   /* borrowed: y holds it */
    mg_tensor *gradient; /* borrowed from the scope, or NULL so far */
    bool wanted;         /* on a path from y to a tensor of wrt */
} grad_node;

/* One call of mg_grad. */
typedef struct grad_walk {
    mg_toposort list;
    grad_node *nodes;
    const mg_tensor **wrt; /* owned: sorted by address */
    int n_wrt;
} grad_walk;

static int by_address(const void *a, const void *b) {
    const uintptr_t x = (uintptr_t) * (mg_tensor *const *)a,
                    y = (uintptr_t) * (mg_tensor *const *)b;
    return x < y ? -1 : x > y;
}

static mg_status sort_wrt(grad_walk *w, mg_tensor *const *wrt, int n) {
    w->wrt = mg_alloc((size_t)n * sizeof *w->wrt + 1);
    if (!w->wrt) return MG_OOM;
    for (int i = 0; i < n; i++) w->wrt[i] = wrt[i];
    if (n) qsort(w->wrt, (size_t)n, sizeof *w->wrt, by_address);
    w->n_wrt = n;
    return MG_OK;
}

/* Whether t is one of the tensors to differentiate by. */
static bool is_asked_for(const grad_walk *w, const mg_tensor *t) {
    return w->n_wrt && bsearch(&t, w->wrt, (size_t)w->n_wrt, sizeof *w->wrt, by_address);
}

/* For mg_toposort_collect: the walk stops at the tensors of wrt. */
static bool descend(const mg_tensor *t, void *context) {
    return t->kind == MG_LAZY && !is_asked_for(context, t);
}

/* A tensor is wanted if it is in wrt, or if it is floating point and one of its inputs is
 * wanted. */
static void mark_wanted(grad_walk *w) {
    for (int i = 0; i < w->list.n; i++) {
        mg_tensor *t = w->list.items[i];
        grad_node *node = &w->nodes[i];
        node->tensor = t;
        node->wanted = is_asked_for(w, t);
        if (node->wanted || t->kind != MG_LAZY || !mg_dtype_is_float((mg_dtype)t->dtype)) continue;
        for (int k = 0; k < t->n_inputs; k++)
            node->wanted |= w->nodes[t->inputs[k]->position].wanted;
    }
}

/* The error for a needed path through an op without a gradient rule. */
static mg_status no_rule(const mg_tensor *t) {
    return mg_fail(MG_UNSUPPORTED,
                   "%s: not differentiable: use :stop_gradient() if no gradient "
                   "should flow through it",
                   t->op->name);
}

/* Adds what the op's rule gives for each wanted input to the input's gradient. */
static mg_status hand_down(grad_walk *w, grad_node *node) {
    mg_tensor *t = node->tensor;
    for (int k = 0; k < t->n_inputs; k++) {
        grad_node *in = &w->nodes[t->inputs[k]->position];
        if (!in->wanted || !mg_dtype_is_float((mg_dtype)t->inputs[k]->dtype)) continue;
        if (!t->op->grad) return no_rule(t);
        mg_tensor *g = t->op->grad(t, node->gradient, k);
        if (!g) return mg_error_code() ? mg_error_code() : MG_INTERNAL;
        if (g == mg_no_gradient()) continue; /* nothing flows to this input */
        in->gradient = in->gradient ? add(in->gradient, g) : g;
        if (!in->gradient) return mg_error_code();
    }
    return MG_OK;
}

/* From y, whose gradient is 1, to the tensors of wrt. */
static mg_status walk_back(grad_walk *w, mg_tensor *y) {
    const int last = w->list.n - 1;
    w->nodes[last].gradient = constant(1, y);
    if (!w->nodes[last].gradient) return mg_error_code();
    for (int i = last; i >= 0; i--) {
        grad_node *node = &w->nodes[i];
        if (!node->wanted || !node->gradient) continue;
        node->gradient = cast_like(node->gradient, node->tensor);
        if (!node->gradient) return mg_error_code();
        const bool passes = node->tensor->kind == MG_LAZY;
        if (passes && !is_asked_for(w, node->tensor)) MG_TRY(hand_down(w, node));
    }
    return MG_OK;
}

/* Everything made on the way belongs to a scope; the results are retained before it closes. */
mg_status mg_grad(mg_tensor *y, mg_tensor *const *wrt, int n, mg_tensor **grads) {
    for (int i = 0; i < n; i++) grads[i] = NULL; /* also for callers that see a failure */
    MG_TRY(mg_tensors_check(&y, 1, "grad"));
    MG_TRY(mg_tensors_check(wrt, n, "grad"));
    if (mg_tensor_count(y) != 1)
        return mg_fail(MG_USAGE,
                       "grad: the function must return one number, got shape %s: reduce it "
                       "with :mean() or :sum()",
                       MG_SHAPE_TEXT(&y->shape));
    if (!mg_dtype_is_float((mg_dtype)y->dtype))
        return mg_fail(MG_USAGE, "grad: the function must return a floating point number, got %s",
                       mg_dtype_name((mg_dtype)y->dtype));
    grad_walk w = {0};
    mg_scope *scope;
    MG_TRY(mg_scope_open(&scope));
    mg_status status = sort_wrt(&w, wrt, n);
    if (status == MG_OK) status = mg_toposort_collect(&w.list, &y, 1, descend, &w);
    if (status == MG_OK) {
        w.nodes = mg_alloc_zero((size_t)w.list.n * sizeof *w.nodes);
        status = w.nodes ? MG_OK : MG_OOM;
    }
    if (status == MG_OK) {
        mark_wanted(&w);
        status = walk_back(&w, y);
    }
    /* A tensor that the walk has not met does not influence y. */
    for (int i = 0; i < n && status == MG_OK; i++) {
        const mg_tensor *t = wrt[i];
        const bool found = t->visit == w.list.number;
        mg_tensor *g = found ? w.nodes[t->position].gradient : NULL;
        if (g) grads[i] = mg_tensor_retain(g);
    }
    mg_toposort_free(&w.list);
    mg_free(w.nodes);
    mg_free(w.wrt);
    mg_scope_close(scope);
    return status;
}
