/* Gradients by a reverse walk over the history of tensors (reverse-mode differentiation).
 *
 * The history of y is listed in topological order, stopping at the tensors of `wrt`, and the
 * tensors on a path to one of these are marked. Then each marked tensor, last first, adds to the
 * gradients of its inputs by its op's rule. Gradients are accumulated in the dtype that the rules
 * give, and rounded once to the tensor's dtype before they are propagated. The result is made of
 * ordinary tensors.
 *
 * The gradients of an op's several results are collected at the op's tensor, whose rule gets all of
 * them. The gradient of a scan is made by a walk over its body (scan_grad.c). */
#include "core/alloc.h"
#include "core/context.h"
#include "core/loop.h"
#include "graph/graph.h"
#include "graph/recipe.h"
#include "graph/scan_grad.h"
#include "graph/tensor_set.h"
#include "graph/toposort.h"
#include "ops/attrs.h"
#include "ops/build.h"

/* Per tensor of the list. */
typedef struct grad_node {
    mg_tensor *tensor;   /* borrowed: y holds it */
    mg_tensor *gradient; /* borrowed from the scope, or NULL so far */
    mg_tensor **many;    /* owned: of an op with several results, a gradient of each or NULL; NULL
                            until the first one comes */
    bool wanted;         /* on a path from y to a tensor of wrt */
} grad_node;

/* One call of mg_grad. */
typedef struct grad_walk {
    mg_toposort list;
    grad_node *nodes;
    mg_tensor *const *ys;  /* what is differentiated ... */
    mg_tensor *const *dys; /* ... and the gradients of these */
    int n_ys;
    mg_tensor_set wrt;
} grad_walk;

/* For mg_toposort_collect: the walk stops at the tensors of wrt. */
static bool descend(const mg_tensor *t, void *wrt) {
    return t->kind == MG_LAZY && !mg_tensor_set_has(wrt, t);
}

/* A tensor is wanted if it is in wrt, or if it is floating point and one of its inputs is
 * wanted. */
static void mark_wanted(grad_walk *w) {
    for (int i = 0; i < w->list.n; i++) {
        mg_tensor *t = w->list.items[i];
        grad_node *node = &w->nodes[i];
        node->tensor = t;
        node->wanted = mg_tensor_set_has(&w->wrt, t);
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

/* *sum += g. *sum is NULL so far, if nothing has been added; g may be mg_no_gradient, and is NULL
 * after an error. */
static mg_status accumulate(mg_tensor **sum, mg_tensor *g) {
    if (!g) return mg_error_code() ? mg_error_code() : MG_INTERNAL;
    if (g == mg_no_gradient()) return MG_OK; /* nothing flows to this input */
    *sum = *sum ? add(*sum, g) : g;
    return *sum ? MG_OK : mg_error_code();
}

/* Whether a gradient of input k of the node is needed. */
static bool is_input_wanted(const grad_walk *w, const mg_tensor *t, int k) {
    return w->nodes[t->inputs[k]->position].wanted &&
           mg_dtype_is_float((mg_dtype)t->inputs[k]->dtype);
}

/* Adds what the op's rule gives for each wanted input to the input's gradient. */
static mg_status hand_down(grad_walk *w, grad_node *node) {
    mg_tensor *t = node->tensor;
    for (int k = 0; k < t->n_inputs; k++) {
        if (!is_input_wanted(w, t, k)) continue;
        if (!t->op->grad && !t->op->grad_many) return no_rule(t);
        MG_TRY(accumulate(&w->nodes[t->inputs[k]->position].gradient,
                          node->many ? t->op->grad_many(t, node->many, k)
                                     : t->op->grad(t, node->gradient, k)));
    }
    return MG_OK;
}

/* The same for a scan, whose gradients are all made at once. The walks over its body have taken
 * positions of tensors that belong to this walk too. */
static mg_status hand_down_loop(grad_walk *w, grad_node *node) {
    mg_tensor *t = node->tensor;
    mg_tensor **grads = mg_alloc_zero((size_t)(t->n_inputs + 1) * sizeof(mg_tensor *));
    if (!grads) return MG_OOM;
    mg_status status = mg_scan_gradients(t, node->many, grads);
    mg_toposort_resume(&w->list);
    for (int k = 0; k < t->n_inputs && status == MG_OK; k++)
        if (grads[k] && is_input_wanted(w, t, k))
            status = accumulate(&w->nodes[t->inputs[k]->position].gradient, grads[k]);
    mg_free(grads);
    return status;
}

/* The gradient of a `result` op is one of those of the op that it is a result of. A loop's results
 * may grow; those that are there now include all that have tensors. */
static mg_status collect_result(grad_walk *w, grad_node *node) {
    const mg_tensor *of = node->tensor->inputs[0];
    const mg_result_attrs *a = node->tensor->attrs;
    grad_node *whole = &w->nodes[of->position];
    if (!whole->many)
        whole->many = mg_alloc_zero((size_t)mg_result_count(of) * sizeof(mg_tensor *));
    if (!whole->many) return MG_OOM;
    return accumulate(&whole->many[a->number], node->gradient);
}

/* Passes on the gradient of a tensor that is not one of wrt. */
static mg_status pass_on(grad_walk *w, grad_node *node) {
    static const mg_op *result;
    if (!result) result = mg_op_find("result");
    if (node->tensor->op == result) return collect_result(w, node);
    return node->tensor->loop ? hand_down_loop(w, node) : hand_down(w, node);
}

/* From the ys to the tensors of wrt. */
static mg_status walk_back(grad_walk *w) {
    for (int i = 0; i < w->n_ys; i++)
        MG_TRY(accumulate(&w->nodes[w->ys[i]->position].gradient, w->dys[i]));
    for (int i = w->list.n - 1; i >= 0; i--) {
        grad_node *node = &w->nodes[i];
        if (!node->wanted || (!node->gradient && !node->many)) continue;
        const mg_origin *of = &node->tensor->origin;
        mg_context_get()->origin = (mg_origin){of->where, of->layer, .backward = true};
        if (node->gradient) {
            node->gradient = cast_like(node->gradient, node->tensor);
            if (!node->gradient) return mg_error_code();
        }
        if (descend(node->tensor, &w->wrt)) MG_TRY(pass_on(w, node));
    }
    return MG_OK;
}

/* Lists the history and marks it. */
static mg_status list_history(grad_walk *w) {
    MG_TRY(mg_toposort_collect(&w->list, w->ys, w->n_ys, descend, &w->wrt));
    w->nodes = mg_alloc_zero((size_t)(w->list.n + 1) * sizeof *w->nodes);
    if (!w->nodes) return MG_OOM;
    mark_wanted(w);
    return MG_OK;
}

/* The results of recorded runs through which gradients pass get their histories. *n: how many. */
static mg_status expand_recorded(const grad_walk *w, int *n) {
    *n = 0;
    for (int i = 0; i < w->list.n; i++) {
        mg_tensor *t = w->nodes[i].tensor;
        if (!t->recipe || !w->nodes[i].wanted || mg_tensor_set_has(&w->wrt, t)) continue;
        w->list.items[(*n)++] = mg_tensor_retain(t); /* that of another may hold it */
    }
    mg_status status = MG_OK;
    for (int i = 0; i < *n; i++) { /* the positions of the walk, which is over, change */
        if (status == MG_OK) status = mg_recipe_expand(w->list.items[i]);
        mg_tensor_release(w->list.items[i]);
    }
    return status;
}

/* Forgets the list: histories have changed. */
static void forget_history(grad_walk *w) {
    mg_toposort_free(&w->list);
    mg_free(w->nodes);
    w->nodes = NULL;
}

/* Lists the history, marks it, and walks back. */
static mg_status differentiate(grad_walk *w, mg_tensor *const *wrt, int n) {
    int n_expanded;
    MG_TRY(mg_tensor_set_make(&w->wrt, wrt, n));
    MG_TRY(list_history(w));
    MG_TRY(expand_recorded(w, &n_expanded));
    if (n_expanded) {
        forget_history(w);
        MG_TRY(list_history(w));
    }
    const mg_origin before = mg_context_get()->origin;
    const mg_status status = walk_back(w);
    mg_context_get()->origin = before;
    return status;
}

/* A tensor that the walk has not met does not influence the ys. */
mg_status mg_grad_from(mg_tensor *const *ys, mg_tensor *const *dys, int n_ys, mg_tensor *const *wrt,
                       int n, mg_tensor **grads) {
    grad_walk w = {.ys = ys, .dys = dys, .n_ys = n_ys};
    const mg_status status = differentiate(&w, wrt, n);
    for (int i = 0; i < n; i++) {
        const mg_tensor *t = wrt[i];
        const bool found = status == MG_OK && t->visit == w.list.number;
        grads[i] = found ? w.nodes[t->position].gradient : NULL;
    }
    for (int i = 0; i < w.list.n && w.nodes; i++) mg_free(w.nodes[i].many);
    mg_toposort_free(&w.list);
    mg_free(w.nodes);
    mg_tensor_set_free(&w.wrt);
    return status;
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
    mg_scope *scope;
    MG_TRY(mg_scope_open(&scope));
    mg_tensor *one = constant(1, y);
    const mg_status status = one ? mg_grad_from(&y, &one, 1, wrt, n, grads) : mg_error_code();
    for (int i = 0; i < n; i++)
        if (grads[i]) mg_tensor_retain(grads[i]);
    mg_scope_close(scope);
    return status;
}
