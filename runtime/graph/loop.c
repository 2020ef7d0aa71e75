/* Tracing the bodies of loops: see loop.h.
 *
 * Closing a body finds out what it is given from outside: the tensors that do not depend on its
 * parameters but are read by tensors that do. They become inputs of the scan, so they are computed
 * once. Constants stay in the body, where passes can fold them. */
#include "graph/loop.h"
#include "core/alloc.h"
#include "core/context.h"
#include "graph/graph.h"
#include "graph/toposort.h"
#include "ops/attrs.h"
#include "ops/build.h"
#include <string.h>

typedef struct operand { /* of the scan, with the parameter that stands for it; both retained */
    mg_tensor *param, *input;
} operand;

typedef struct operands {
    operand *items;
    int n, capacity;
} operands;

struct mg_loop_trace {
    mg_loop_trace *outer;
    int64_t steps;
    bool reverse, checkpoint;
    operands carries, rows;
    mg_guard *guards;
    int n_guards, guards_capacity;
};

static _Thread_local mg_loop_trace *current;

mg_loop_trace *mg_loop_current(void) {
    return current;
}

/* ---- parameters ---- */

static mg_status add_operand(operands *list, mg_tensor *param, mg_tensor *input) {
    MG_TRY(mg_reserve((void **)&list->items, list->n, &list->capacity, sizeof *list->items));
    list->items[list->n++] = (operand){mg_tensor_retain(param), mg_tensor_retain(input)};
    return MG_OK;
}

/* Adds a new parameter of this shape. */
static mg_tensor *add_parameter(operands *list, mg_tensor *input, const mg_shape *shape) {
    mg_tensor *param = mg_tensor_parameter((mg_dtype)input->dtype, shape, input->device);
    if (!param) return NULL;
    param->any_device = input->any_device && !input->buffer; /* zeros, say, decide no device */
    const mg_status status = add_operand(list, param, input);
    mg_tensor_release(param); /* the list holds it */
    return status == MG_OK ? param : NULL;
}

mg_tensor *mg_loop_carry(mg_loop_trace *t, mg_tensor *init) {
    return add_parameter(&t->carries, init, &init->shape);
}

mg_tensor *mg_loop_rows(mg_loop_trace *t, mg_tensor *rows) {
    mg_shape entry = {.rank = rows->shape.rank - 1};
    for (int i = 0; i < entry.rank; i++) entry.dim[i] = rows->shape.dim[i + 1];
    return add_parameter(&t->rows, rows, &entry);
}

mg_status mg_loop_rows_as(mg_loop_trace *t, mg_tensor *param, mg_tensor *rows) {
    return add_operand(&t->rows, param, rows);
}

/* ---- draws and guards ---- */

static void make_current(mg_loop_trace *t);

/* For mg_context.draw. The draws of all steps belong to the body around this one, or to none. */
static mg_tensor *draw_all_steps(const mg_op *op, const void *attrs) {
    mg_loop_trace *t = current;
    mg_random_attrs all;
    if (attrs)
        memcpy(&all, attrs, sizeof all);
    else
        memset(&all, 0, sizeof all), mg_op_default_attrs(op, &all);
    if (all.shape.n == MG_MAX_RANK) {
        mg_fail(MG_UNSUPPORTED,
                "random: a draw in the function of mgpu.scan can have %d axes at "
                "most: one more is for the steps",
                MG_MAX_RANK - 1);
        return NULL;
    }
    memmove(&all.shape.v[1], &all.shape.v[0], (size_t)all.shape.n * sizeof all.shape.v[0]);
    all.shape.v[0] = t->steps;
    all.shape.n++;
    make_current(t->outer);
    mg_tensor *draws = mg_apply(op, NULL, 0, &all);
    make_current(t);
    mg_tensor *param = draws ? mg_loop_rows(t, draws) : NULL;
    mg_tensor_release(draws);
    return param ? mg_tensor_retain(param) : NULL;
}

static void make_current(mg_loop_trace *t) {
    current = t;
    mg_context_get()->draw = t ? draw_all_steps : NULL;
}

mg_status mg_loop_guard(mg_loop_trace *t, mg_tensor *ok, mg_status code, const char *message) {
    MG_TRY(mg_reserve((void **)&t->guards, t->n_guards, &t->guards_capacity, sizeof *t->guards));
    char *copy = mg_strdup(message);
    if (!copy) return MG_OOM;
    t->guards[t->n_guards++] = (mg_guard){mg_tensor_retain(ok), code, copy, NULL, 0};
    return MG_OK;
}

/* Each guard must hold in all steps. Their conditions are the scan's results from `first` on. */
static mg_status add_guards(const mg_loop_trace *t, mg_tensor *scan, int first) {
    const mg_ints all_axes = {0};
    for (int i = 0; i < t->n_guards; i++) {
        mg_tensor *ok = reduce("all", mg_result(scan, first + i), &all_axes, false);
        if (!ok) return mg_error_code();
        MG_TRY(mg_guard_add(ok, t->guards[i].code, t->guards[i].message));
    }
    return MG_OK;
}

/* ---- what the body depends on ---- */

/* A walk over the body of a loop, from its results to its parameters. */
typedef struct body_walk {
    mg_tensor_set params;
    mg_toposort list;
    bool *depends; /* owned, per tensor of the list: it depends on a parameter */
} body_walk;

/* For mg_toposort_collect. What depends on no parameter of any loop is given from outside. */
static bool descend(const mg_tensor *t, void *params) {
    return t->kind == MG_LAZY && t->in_loop && !mg_tensor_set_has(params, t);
}

/* The walk may be freed in any case. */
static mg_status walk_body(body_walk *w, const mg_loop *l) {
    *w = (body_walk){0};
    MG_TRY(mg_tensor_set_make(&w->params, l->params, l->n_carries + l->n_rows));
    MG_TRY(mg_toposort_collect(&w->list, l->results, l->n_results, descend, &w->params));
    w->depends = mg_alloc_zero((size_t)w->list.n + 1);
    if (!w->depends) return MG_OOM;
    for (int i = 0; i < w->list.n; i++) {
        const mg_tensor *t = w->list.items[i];
        w->depends[i] = mg_tensor_set_has(&w->params, t);
        for (int k = 0; k < t->n_inputs && descend(t, &w->params); k++)
            w->depends[i] |= w->depends[t->inputs[k]->position];
    }
    return MG_OK;
}

static void free_body_walk(body_walk *w) {
    mg_tensor_set_free(&w->params);
    mg_toposort_free(&w->list);
    mg_free(w->depends);
}

mg_status mg_loop_collect_body(const mg_loop *l, mg_tensor_set *body) {
    body_walk w;
    int n = 0;
    *body = (mg_tensor_set){0};
    mg_status status = walk_body(&w, l);
    if (status == MG_OK) {
        for (int i = 0; i < w.list.n; i++)
            if (w.depends[i]) w.list.items[n++] = w.list.items[i];
        status = mg_tensor_set_make(body, w.list.items, n);
    }
    free_body_walk(&w);
    return status;
}

/* Whether t is made of constants by a chain of ops, all in a body: it is cheaper to make it in each
 * step than to read it. Outside, it may be what someone differentiates by. */
static bool is_constant(const mg_tensor *t) {
    for (;; t = t->inputs[0]) {
        if (t->kind != MG_LAZY || t->buffer || t->n_inputs > 1 || t->in_loop || !t->made_in_loop ||
            (t->op->flags & MG_OP_RANDOM))
            return false;
        if (t->n_inputs == 0) return true;
    }
}

static void keep_history(mg_tensor *constant) {
    constant->body_constant = true;
    if (constant->n_inputs) keep_history(constant->inputs[0]);
}

/* A body runs on one device, and its steps are not shared out by rows of their own. */
static mg_status check_op(const mg_tensor *t) {
    if (t->kind != MG_LAZY) return MG_OK;
    if (strcmp(t->op->name, "place") == 0)
        return mg_fail(MG_USAGE, "scan: its function moves a tensor to another device in each "
                                 "step: move it before, and pass it in xs or in the carry");
    if (t->op->collective != MG_NO_COLLECTIVE || strcmp(t->op->name, "shard") == 0)
        return mg_fail(MG_USAGE, "scan: its function calls %s: shard xs before", t->op->name);
    return MG_OK;
}

/* Adds what the walked body is given: each tensor once. */
static mg_status add_given(mg_loop *l, const body_walk *w) {
    bool *taken = mg_alloc_zero((size_t)w->list.n + 1);
    mg_status status = taken ? MG_OK : MG_OOM;
    for (int k = 0; k < l->n_results && status == MG_OK; k++)
        taken[l->results[k]->position] = !w->depends[l->results[k]->position];
    for (int i = 0; i < w->list.n && status == MG_OK; i++) {
        const mg_tensor *t = w->list.items[i];
        if (!w->depends[i] || mg_tensor_set_has(&w->params, t)) continue;
        status = check_op(t);
        for (int k = 0; k < t->n_inputs; k++)
            if (!w->depends[t->inputs[k]->position]) taken[t->inputs[k]->position] = true;
    }
    for (int i = 0; i < w->list.n && status == MG_OK; i++) {
        if (!taken[i]) continue;
        if (is_constant(w->list.items[i]))
            keep_history(w->list.items[i]);
        else
            status = mg_loop_add_given(l, w->list.items[i]);
    }
    mg_free(taken);
    return status;
}

static mg_status find_given(mg_loop *l) {
    body_walk w;
    mg_status status = walk_body(&w, l);
    if (status == MG_OK) status = add_given(l, &w);
    free_body_walk(&w);
    return status;
}

/* ---- opening and closing ---- */

mg_loop_trace *mg_loop_begin(int64_t steps, bool reverse, bool checkpoint) {
    mg_loop_trace *t = mg_alloc_zero(sizeof *t);
    if (!t) return NULL;
    t->outer = current;
    t->steps = steps;
    t->reverse = reverse;
    t->checkpoint = checkpoint;
    make_current(t);
    return t;
}

static void free_operands(operands *list) {
    for (int i = 0; i < list->n; i++) {
        mg_tensor_release(list->items[i].param);
        mg_tensor_release(list->items[i].input);
    }
    mg_free(list->items);
}

static void free_trace(mg_loop_trace *t) {
    free_operands(&t->carries);
    free_operands(&t->rows);
    for (int i = 0; i < t->n_guards; i++) {
        mg_tensor_release(t->guards[i].ok);
        mg_free(t->guards[i].message);
    }
    mg_free(t->guards);
    mg_free(t);
}

void mg_loop_abandon(mg_loop_trace *t) {
    make_current(t->outer);
    free_trace(t);
}

/* The loop of a traced body: its parameters, results, conditions of guards and given tensors. */
static mg_loop *make_loop(const mg_loop_trace *t, mg_tensor *const *results, int n) {
    const int n_params = t->carries.n + t->rows.n;
    mg_tensor **params = mg_alloc((size_t)(n_params + 1) * sizeof *params);
    if (!params) return NULL;
    for (int i = 0; i < t->carries.n; i++) params[i] = t->carries.items[i].param;
    for (int i = 0; i < t->rows.n; i++) params[t->carries.n + i] = t->rows.items[i].param;
    mg_loop *l = mg_loop_new(t->steps, t->reverse, params, t->carries.n, t->rows.n);
    mg_free(params);
    mg_status status = l ? MG_OK : MG_OOM;
    if (l) l->checkpoint = t->checkpoint;
    for (int i = 0; i < n && status == MG_OK; i++) status = mg_loop_add_result(l, results[i]);
    for (int i = 0; i < t->n_guards && status == MG_OK; i++)
        status = mg_loop_add_result(l, t->guards[i].ok);
    if (status == MG_OK) status = find_given(l);
    if (status == MG_OK) return l;
    mg_loop_release(l);
    return NULL;
}

/* The scan of the loop over the operands and the given tensors. */
static mg_tensor *make_scan(const mg_loop_trace *t, mg_loop *l) {
    const int n_own = t->carries.n + t->rows.n, n = n_own + l->n_given;
    mg_tensor **inputs = mg_alloc((size_t)(n + 1) * sizeof *inputs);
    if (!inputs) return NULL;
    for (int i = 0; i < t->carries.n; i++) inputs[i] = t->carries.items[i].input;
    for (int i = 0; i < t->rows.n; i++) inputs[t->carries.n + i] = t->rows.items[i].input;
    for (int i = 0; i < l->n_given; i++) inputs[n_own + i] = l->given[i];
    mg_tensor *scan = mg_apply_loop(l, inputs, n);
    mg_free(inputs);
    return scan;
}

/* The body is closed first: the scan and the guards belong to what is around it. */
mg_tensor *mg_loop_end(mg_loop_trace *t, mg_tensor *const *results, int n) {
    mg_scope *scope = NULL;
    mg_tensor *scan = NULL;
    make_current(t->outer);
    mg_loop *l = make_loop(t, results, n);
    if (l) scan = make_scan(t, l);
    mg_status status = scan ? mg_scope_open(&scope) : MG_OOM;
    if (status == MG_OK) {
        status = add_guards(t, scan, n);
        mg_scope_close(scope);
    }
    mg_loop_release(l); /* the scan holds it */
    free_trace(t);
    if (status == MG_OK) return scan;
    mg_tensor_release(scan);
    return NULL;
}
