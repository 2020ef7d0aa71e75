/* The gradient of a scan: see scan_grad.h.
 *
 * The body of the backward scan is the gradient of the forward body. It carries the gradients of
 * the carries, from the last step to the first. What it reads of the forward body's values is
 * either kept by the forward scan (its carries, and what is expensive to compute: products,
 * reductions, inner scans) or computed again in the backward body (element-wise ops and movement).
 * With `checkpoint` only the carries are kept.
 *
 * The gradient of a given tensor is a sum over the steps. Where the gradient of a step is a product
 * of matrices, as for weights, the factors of all steps are stacked and multiplied once after the
 * loop, which is one large product in place of many small ones; else, and with `checkpoint`, it is
 * carried along. */
#include "graph/scan_grad.h"
#include "core/alloc.h"
#include "graph/graph.h"
#include "graph/loop.h"
#include "graph/toposort.h"
#include "ops/attrs.h"
#include "ops/build.h"
#include <string.h>

enum { MAX_TERMS = 16 }; /* of a sum that is looked through for products */

/* A product whose factors are stacked. */
typedef struct product {
    int input;        /* of the scan: the given tensor whose gradient it is a term of */
    mg_tensor *a, *b; /* the factors in the body, {..., m, k} and {..., m, n}: the term is a' b,
                         with all axes but the last as rows */
} product;

typedef struct backward {
    mg_tensor *scan;
    mg_loop *loop;        /* the forward body */
    mg_loop_trace *trace; /* of the backward body */
    mg_tensor_set body;   /* what depends on the parameters in the forward body */
    mg_tensor **dcarry;   /* per carry: the parameter that is its gradient, or NULL */
    mg_tensor **grads;    /* per parameter and given tensor: its gradient in a step, or NULL */
    mg_tensor **sums;     /* per given tensor: the parameter that is its sum so far, or NULL */
    product *products;
    int n_products, products_capacity;
    mg_tensor **results; /* of the backward body: next carries, then what is stacked */
    int n_results, results_capacity;
    int n_next;  /* of them: next carries */
    int *row_of; /* per array of the forward scan: the result that is its gradient, or -1 */
} backward;

/* ---- small steps ---- */

static int n_params(const backward *b) {
    return b->loop->n_carries + b->loop->n_rows;
}

static bool is_float(const mg_tensor *t) {
    return mg_dtype_is_float((mg_dtype)t->dtype);
}

static mg_tensor *zeros_like(const mg_tensor *t) {
    return full(0, (mg_dtype)t->dtype, &t->shape);
}

/* Adds a result of the backward body; its number, or -1. */
static int add_result(backward *b, mg_tensor *t) {
    if (!t || mg_reserve((void **)&b->results, b->n_results, &b->results_capacity,
                         sizeof *b->results) != MG_OK)
        return -1;
    b->results[b->n_results] = t;
    return b->n_results++;
}

/* Sums of halves are carried in float32. */
static mg_dtype sum_dtype(const mg_tensor *t) {
    return mg_dtype_is_half((mg_dtype)t->dtype) ? MG_F32 : (mg_dtype)t->dtype;
}

/* ---- the gradient of the body ---- */

/* Parameters for the gradients of the results, and the gradients of the body's parameters and
 * given tensors that follow from them. */
static mg_status differentiate_body(backward *b, mg_tensor *const *dys) {
    const mg_loop *l = b->loop;
    const int n_results = l->n_results, n_wrt = n_params(b) + l->n_given;
    mg_tensor **ys = mg_alloc((size_t)(3 * n_results + n_wrt + 1) * sizeof *ys);
    if (!ys) return MG_OOM;
    mg_tensor **given = ys + n_results, **wrt = given + n_results;
    mg_status status = MG_OK;
    int n = 0;
    for (int k = 0; k < n_results && status == MG_OK; k++) {
        const bool carried = k < l->n_carries;
        if (!is_float(l->results[k]) || (!carried && !dys[k])) continue;
        mg_tensor *from = dys[k] ? cast_like(dys[k], l->results[k]) : zeros_like(l->results[k]);
        mg_tensor *param = !from     ? NULL
                           : carried ? mg_loop_carry(b->trace, from)
                                     : mg_loop_rows(b->trace, from);
        if (!param) status = mg_error_code();
        if (carried) b->dcarry[k] = param;
        ys[n] = l->results[k];
        given[n++] = param;
    }
    memcpy(wrt, l->params, (size_t)n_params(b) * sizeof *wrt);
    if (l->n_given) memcpy(wrt + n_params(b), l->given, (size_t)l->n_given * sizeof *wrt);
    if (status == MG_OK) status = mg_grad_from(ys, given, n, wrt, n_wrt, b->grads);
    mg_free(ys);
    return status;
}

/* ---- sums over the steps ---- */

/* Whether t is a' b for matrices a, b: in the gradient of a step, that of a weight. */
static bool is_product(const mg_tensor *t) {
    if (t->kind != MG_LAZY || strcmp(t->op->name, "matmul") != 0 || t->n_inputs != 2) return false;
    const mg_matmul_attrs *a = t->attrs;
    return a->transpose_a && !a->transpose_b && !a->relu && t->inputs[0]->shape.rank == 2 &&
           t->inputs[1]->shape.rank == 2 && t->inputs[0]->in_loop && t->inputs[1]->in_loop;
}

/* Splits a sum into its terms. Returns their number. */
static int split_sum(mg_tensor *t, mg_tensor **terms, int n) {
    const bool sum = t->kind == MG_LAZY && strcmp(t->op->name, "add") == 0 && n < MAX_TERMS - 2 &&
                     mg_shape_equal(&t->inputs[0]->shape, &t->shape) &&
                     mg_shape_equal(&t->inputs[1]->shape, &t->shape);
    if (!sum) {
        terms[n] = t;
        return n + 1;
    }
    return split_sum(t->inputs[1], terms, split_sum(t->inputs[0], terms, n));
}

/* What the rows of a matrix were before they were merged, so that they can stay sharded. */
static mg_tensor *before_merge(mg_tensor *t) {
    while (t->kind == MG_LAZY && strcmp(t->op->name, "reshape") == 0) {
        mg_tensor *from = t->inputs[0];
        const int rank = from->shape.rank;
        if (rank < 2 || rank == MG_MAX_RANK ||
            from->shape.dim[rank - 1] != t->shape.dim[t->shape.rank - 1])
            break;
        t = from;
    }
    return t;
}

static mg_status add_product(backward *b, int input, const mg_tensor *t) {
    MG_TRY(mg_reserve((void **)&b->products, b->n_products, &b->products_capacity,
                      sizeof *b->products));
    b->products[b->n_products++] =
        (product){input, before_merge(t->inputs[0]), before_merge(t->inputs[1])};
    return MG_OK;
}

/* The gradient of given tensor i: products are noted, the other terms are carried along. */
static mg_status sum_given(backward *b, int i) {
    mg_tensor *terms[MAX_TERMS], *rest = NULL, *g = b->grads[n_params(b) + i];
    const mg_tensor *t = b->loop->given[i];
    const int n = split_sum(g, terms, 0);
    for (int k = 0; k < n; k++) {
        if (is_product(terms[k]) && !b->loop->checkpoint)
            MG_TRY(add_product(b, n_params(b) + i, terms[k]));
        else
            rest = rest ? add(rest, terms[k]) : terms[k];
    }
    if (!rest) return MG_OK;
    mg_tensor *zero = full(0, sum_dtype(t), &t->shape);
    b->sums[i] = zero ? mg_loop_carry(b->trace, zero) : NULL;
    return b->sums[i] && add_result(b, add(b->sums[i], cast(rest, sum_dtype(t)))) >= 0
               ? MG_OK
               : mg_error_code();
}

/* ---- values of the forward body ---- */

/* Element-wise ops and movement are computed again: that costs less than keeping their results. */
static bool is_cheap(const mg_tensor *t) {
    static const char *const movement[] = {"reshape", "broadcast_to", "permute", "slice",
                                           "concat",  "pad",          "reverse"};
    if (t->op->elementwise) return true;
    for (size_t i = 0; i < sizeof movement / sizeof movement[0]; i++)
        if (strcmp(t->op->name, movement[i]) == 0) return true;
    return false;
}

/* A tensor of the forward body, or a result of an inner scan there. */
static bool is_forward(const backward *b, const mg_tensor *t) {
    if (mg_tensor_set_has(&b->body, t)) return true;
    return t->kind == MG_LAZY && strcmp(t->op->name, "result") == 0 &&
           mg_tensor_set_has(&b->body, t->inputs[0]);
}

static int param_number(const backward *b, const mg_tensor *t) {
    for (int i = 0; i < n_params(b); i++)
        if (b->loop->params[i] == t) return i;
    return -1;
}

/* Whether the backward body gets t, a value of the forward body, from the forward scan. */
static bool is_kept(const backward *b, const mg_tensor *t) {
    if (!is_forward(b, t)) return false;
    if (param_number(b, t) >= 0) return true;
    return !b->loop->checkpoint && !t->op->n_results && !is_cheap(t);
}

/* t in all steps, {steps, ...}: an array of the forward scan, or one of its results. */
static mg_tensor *stacked_forward(backward *b, mg_tensor *t) {
    const int i = param_number(b, t);
    if (i >= b->loop->n_carries) return b->scan->inputs[i];
    const int k = mg_loop_tap(b->loop, t);
    return k < 0 ? NULL : mg_result(b->scan, k);
}

static bool descend(const mg_tensor *t, void *context) {
    return t->kind == MG_LAZY && t->in_loop && !is_kept(context, t);
}

/* Makes parameters of the backward body of the values that it reads of the forward body. */
static mg_status read_forward_values(backward *b) {
    mg_toposort walk;
    mg_status status = mg_toposort_collect(&walk, b->results, b->n_results, descend, b);
    for (int i = 0; i < walk.n && status == MG_OK; i++) {
        mg_tensor *t = walk.items[i];
        if (!is_kept(b, t)) continue;
        mg_tensor *rows = stacked_forward(b, t);
        status = rows ? mg_loop_rows_as(b->trace, t, rows) : mg_error_code();
    }
    mg_toposort_free(&walk);
    return status;
}

/* ---- the products after the loop ---- */

/* {steps, ..., m, n} as one matrix of all rows. */
static mg_tensor *merge_rows(mg_tensor *t) {
    if (!t) return NULL;
    mg_shape flat = MG_SHAPE(1, t->shape.dim[t->shape.rank - 1]);
    for (int i = 0; i < t->shape.rank - 1; i++) flat.dim[0] *= t->shape.dim[i];
    return reshape(t, &flat);
}

/* The number of the stacked result of the backward body that is t, or -1. */
static int stacked_result(const backward *b, const mg_tensor *t) {
    for (int k = b->n_next; k < b->n_results; k++)
        if (b->results[k] == t) return k;
    return -1;
}

/* A factor in all steps, from the forward scan or the backward one. */
static mg_tensor *stacked_factor(backward *b, mg_tensor *scan, mg_tensor *t) {
    return is_forward(b, t) ? stacked_forward(b, t) : mg_result(scan, stacked_result(b, t));
}

/* The backward scan stacks the factors that are no values of the forward body. */
static mg_status stack_factors(backward *b) {
    for (int i = 0; i < 2 * b->n_products; i++) {
        mg_tensor *t = i % 2 ? b->products[i / 2].b : b->products[i / 2].a;
        if (is_forward(b, t) || stacked_result(b, t) >= 0) continue;
        if (add_result(b, t) < 0) return MG_OOM;
    }
    return MG_OK;
}

static mg_status multiply_stacks(backward *b, mg_tensor *scan, mg_tensor **grads) {
    for (int i = 0; i < b->n_products; i++) {
        const product *p = &b->products[i];
        mg_tensor *g = matmul(merge_rows(stacked_factor(b, scan, p->a)),
                              merge_rows(stacked_factor(b, scan, p->b)), true, false);
        if (!g) return mg_error_code();
        grads[p->input] = grads[p->input] ? add(grads[p->input], g) : g;
        if (!grads[p->input]) return mg_error_code();
    }
    return MG_OK;
}

/* ---- the whole ---- */

/* The results of the backward body, in order: the next gradients of carries, the next sums, the
 * gradients of the arrays' entries, and factors of products. */
static mg_status list_results(backward *b) {
    const mg_loop *l = b->loop;
    for (int j = 0; j < l->n_carries; j++) {
        if (!b->dcarry[j]) continue;
        mg_tensor *next = b->grads[j] ? b->grads[j] : zeros_like(l->params[j]);
        if (add_result(b, next) < 0) return mg_error_code();
    }
    for (int i = 0; i < l->n_given; i++)
        if (b->grads[n_params(b) + i] && is_float(l->given[i])) MG_TRY(sum_given(b, i));
    b->n_next = b->n_results;
    for (int i = 0; i < l->n_rows; i++) {
        mg_tensor *g = b->grads[l->n_carries + i];
        b->row_of[i] = g ? add_result(b, g) : -1;
        if (g && b->row_of[i] < 0) return MG_OOM;
    }
    return stack_factors(b);
}

/* The scan's results, as gradients of the forward scan's inputs. */
static mg_status take_results(backward *b, mg_tensor *scan, mg_tensor **grads) {
    const mg_loop *l = b->loop;
    int k = 0;
    for (int j = 0; j < l->n_carries; j++)
        if (b->dcarry[j]) grads[j] = mg_result(scan, k++);
    for (int i = 0; i < l->n_given; i++)
        if (b->sums[i]) grads[n_params(b) + i] = mg_result(scan, k++);
    for (int i = 0; i < l->n_rows; i++)
        if (b->row_of[i] >= 0) grads[l->n_carries + i] = mg_result(scan, b->row_of[i]);
    return multiply_stacks(b, scan, grads);
}

/* Closes the trace in any case. */
static mg_status make_backward(backward *b, mg_tensor *const *dys, mg_tensor **grads) {
    mg_status status = differentiate_body(b, dys);
    if (status == MG_OK) status = list_results(b);
    if (status == MG_OK) status = read_forward_values(b);
    if (status != MG_OK) {
        mg_loop_abandon(b->trace);
        return status;
    }
    mg_tensor *scan = mg_scope_own(mg_loop_end(b->trace, b->results, b->n_results));
    return scan ? take_results(b, scan, grads) : mg_error_code();
}

mg_status mg_scan_gradients(mg_tensor *scan, mg_tensor *const *dys, mg_tensor **grads) {
    mg_loop *l = scan->loop;
    const size_t n_all = (size_t)(l->n_carries + l->n_rows + l->n_given + 1);
    backward b = {.scan = scan, .loop = l};
    b.dcarry = mg_alloc_zero(n_all * sizeof *b.dcarry);
    b.grads = mg_alloc_zero(n_all * sizeof *b.grads);
    b.sums = mg_alloc_zero(n_all * sizeof *b.sums);
    b.row_of = mg_alloc_zero(n_all * sizeof *b.row_of);
    mg_status status =
        b.dcarry && b.grads && b.sums && b.row_of ? mg_loop_collect_body(l, &b.body) : MG_OOM;
    if (status == MG_OK) b.trace = mg_loop_begin(l->steps, !l->reverse, false);
    if (status == MG_OK) status = b.trace ? make_backward(&b, dys, grads) : MG_OOM;
    mg_free(b.dcarry);
    mg_free(b.grads);
    mg_free(b.sums);
    mg_free(b.row_of);
    mg_tensor_set_free(&b.body);
    mg_free(b.products);
    mg_free(b.results);
    return status;
}
