/* Making the IR from tensors, and its memory. */
#include "graph/ir.h"
#include "core/alloc.h"
#include "core/loop.h"
#include "graph/toposort.h"
#include "ops/attrs.h"
#include <stdlib.h>
#include <string.h>

/* A plan makes thousands of small blocks and frees them at once, so they are carved from chunks.
 * The head is part of the chunk, which keeps blocks 16-byte aligned. */
struct mg_chunk {
    struct mg_chunk *next;
    size_t used, size;
};
enum { CHUNK_BYTES = 1 << 16, CHUNK_HEAD = 64 };

/* The block is zeroed. If it does not fit into the current chunk, the rest of that chunk stays
 * unused. */
void *mg_ir_alloc(mg_ir *ir, size_t bytes) {
    bytes = (bytes + 15) & ~(size_t)15; /* keeps the next block aligned */
    if (!ir->chunks || ir->chunks->size - ir->chunks->used < bytes) {
        const size_t size = CHUNK_HEAD + (bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES);
        struct mg_chunk *chunk = mg_alloc_zero(size);
        if (!chunk) return NULL;
        *chunk = (struct mg_chunk){ir->chunks, CHUNK_HEAD, size};
        ir->chunks = chunk;
    }
    void *block = (char *)ir->chunks + ir->chunks->used;
    ir->chunks->used += bytes;
    return block;
}

/* All at once; the IR is empty afterwards. */
void mg_ir_free(mg_ir *ir) {
    for (mg_ir_loop *l = ir->loops; l; l = l->next) mg_ir_free(&l->body);
    while (ir->chunks) {
        struct mg_chunk *next = ir->chunks->next;
        mg_free(ir->chunks);
        ir->chunks = next;
    }
    *ir = (mg_ir){0};
}

/* ---- where an IR ends ---- */

static int by_tensor(const void *a, const void *b) {
    const uintptr_t x = (uintptr_t)((const mg_ir_end *)a)->tensor,
                    y = (uintptr_t)((const mg_ir_end *)b)->tensor;
    return x < y ? -1 : x > y;
}

void mg_ir_sort_ends(mg_ir_ends *ends) {
    if (ends->n) qsort(ends->items, (size_t)ends->n, sizeof *ends->items, by_tensor);
}

/* The end that t is, or NULL. */
static const mg_ir_end *find_end(const mg_ir_ends *ends, const mg_tensor *t) {
    const mg_ir_end key = {.tensor = t};
    return ends && ends->n ? bsearch(&key, ends->items, (size_t)ends->n, sizeof key, by_tensor)
                           : NULL;
}

/* For mg_toposort_collect: the history of an evaluated tensor is not followed, nor that of an end.
 * The body of a loop, which has ends, makes its constants itself, whether evaluated or not. */
static bool descend(const mg_tensor *t, void *ends) {
    return t->kind == MG_LAZY && (!t->buffer || (ends && t->body_constant)) && !find_end(ends, t);
}

/* ---- nodes ---- */

/* A placeholder of a trace that is closed has no meaning any more. */
static mg_status check_placeholder(const mg_tensor *t, uint16_t trace) {
    if (t->kind == MG_PARAMETER)
        return mg_fail(MG_USAGE, "a tensor made inside the function of mgpu.scan was used after "
                                 "it: return it from the function");
    if ((t->kind != MG_ARGUMENT && t->kind != MG_VARREAD) || t->trace == trace) return MG_OK;
    return mg_fail(MG_USAGE, "a tensor made inside mgpu.jit was used after it: return it from the "
                             "function and use the result");
}

/* The shapes and dtypes of all results of an op that has several. */
static mg_status list_results(mg_ir *ir, mg_node *node, const mg_tensor *t) {
    node->n_results = mg_result_count(t);
    node->results = mg_ir_alloc(ir, (size_t)(node->n_results + 1) * sizeof *node->results);
    if (!node->results) return MG_OOM;
    for (int k = 0; k < node->n_results; k++) {
        mg_ir_result *r = &node->results[k];
        MG_TRY(mg_infer_result(t, k, &r->shape, &r->dtype));
    }
    return MG_OK;
}

/* `full` becomes a literal, so that passes can fold it. */
static mg_status op_node(mg_ir *ir, mg_node *node, const mg_tensor *t) {
    void *attrs = mg_ir_alloc(ir, t->op->attrs_size);
    if (!attrs) return MG_OOM;
    /* Passes may change a node's attributes; the tensor's stay. */
    if (t->op->attrs_size) memcpy(attrs, t->attrs, t->op->attrs_size);
    node->op = t->op;
    node->attrs = attrs;
    node->n_in = t->n_inputs;
    for (int i = 0; i < t->n_inputs; i++) node->in[i] = t->inputs[i]->position;
    node->draw = t->draw;
    node->seed = t->seed;
    node->draw_relative = t->trace != 0; /* draws of a trace count from the run's base */
    if (t->op->n_results) MG_TRY(list_results(ir, node, t));
    if (t->op == mg_op_find("full")) {
        node->kind = MG_NODE_LITERAL;
        node->literal = mg_dtype_round(node->dtype, ((const mg_full_attrs *)attrs)->value);
    }
    return MG_OK;
}

/* The node of a tensor whose inputs have their nodes already, at the same positions as in the walk.
 */
static mg_status make_node(mg_ir *ir, mg_node *node, mg_tensor *t, uint16_t trace,
                           const mg_ir_ends *ends) {
    const mg_ir_end *end = find_end(ends, t);
    node->dtype = (mg_dtype)t->dtype;
    node->shape = t->shape;
    node->tensor = t;
    node->forward = node->group = -1;
    node->origin = t->origin;
    if (end) {
        node->kind = MG_NODE_PARAMETER;
        node->operand = end->operand;
        return MG_OK;
    }
    MG_TRY(check_placeholder(t, trace));
    /* A lazy tensor is an op; all others are given to the plan. */
    if (descend(t, (void *)(uintptr_t)ends)) return op_node(ir, node, t);
    if (t->kind == MG_ARGUMENT) {
        node->kind = MG_NODE_ARGUMENT;
    } else {
        node->kind = t->kind == MG_VARREAD ? MG_NODE_VARIABLE : MG_NODE_VALUE;
    }
    return MG_OK;
}

/* Nodes, roots, and one array that holds the input lists of all nodes. */
static mg_status allocate(mg_ir *ir, const mg_toposort *walk, int n_roots) {
    size_t n_edges = 0; /* inputs of all nodes together */
    for (int i = 0; i < walk->n; i++) n_edges += (size_t)walk->items[i]->n_inputs;
    ir->nodes = mg_ir_alloc(ir, (size_t)walk->n * sizeof *ir->nodes);
    ir->roots = mg_ir_alloc(ir, (size_t)n_roots * sizeof *ir->roots);
    int *edges = mg_ir_alloc(ir, n_edges * sizeof *edges);
    if (!ir->nodes || !ir->roots || !edges) return MG_OOM;
    for (int i = 0; i < walk->n; i++) {
        ir->nodes[i].in = edges;
        edges += walk->items[i]->n_inputs;
    }
    return MG_OK;
}

/* Node numbers are positions in the topological order. Loops come last: their walks change
 * positions. */
static mg_status collect(mg_ir *ir, mg_tensor *const *roots, int n_roots, uint16_t trace,
                         const mg_ir_ends *ends) {
    mg_toposort walk;
    *ir = (mg_ir){0}; /* so that mg_ir_free is right after any failure */
    mg_status status = mg_toposort_collect(&walk, roots, n_roots, descend, (void *)(uintptr_t)ends);
    if (status == MG_OK) status = allocate(ir, &walk, n_roots);
    /* Inputs come before users, so their nodes are there already. */
    for (int i = 0; i < walk.n && status == MG_OK; i++) {
        status = make_node(ir, &ir->nodes[i], walk.items[i], trace, ends);
        ir->n = i + 1;
    }
    for (int i = 0; i < n_roots && status == MG_OK; i++) ir->roots[i].node = roots[i]->position;
    ir->n_roots = n_roots;
    mg_toposort_free(&walk);
    return status == MG_OK ? mg_ir_collect_loops(ir) : status;
}

mg_status mg_ir_collect_body(mg_ir *ir, mg_tensor *const *roots, int n_roots,
                             const mg_ir_ends *ends) {
    return collect(ir, roots, n_roots, 0, ends);
}

mg_status mg_ir_collect(mg_ir *ir, mg_tensor *const *roots, int n_roots, uint16_t trace) {
    MG_TRY(collect(ir, roots, n_roots, trace, NULL));
    mg_ir_count_uses(ir);
    return mg_ir_prune_loops(ir);
}

/* From the last node to the first: a node's users come after it. */
void mg_ir_count_uses(mg_ir *ir) {
    for (int i = 0; i < ir->n; i++) {
        ir->nodes[i].uses = 0;
        ir->nodes[i].new_value = false;
    }
    for (int i = 0; i < ir->n_roots; i++) {
        mg_root *root = &ir->roots[i];
        root->node = mg_ir_resolve(ir, root->node);
        ir->nodes[root->node].uses++; /* a root is a use */
        ir->nodes[root->node].new_value |= root->commit && !root->check;
    }
    for (int i = ir->n - 1; i >= 0; i--) {
        mg_node *node = &ir->nodes[i];
        if (!node->uses || node->forward >= 0) continue; /* dead: its inputs are not used */
        for (int k = 0; k < node->n_in; k++) {
            node->in[k] = mg_ir_resolve(ir, node->in[k]);
            ir->nodes[node->in[k]].uses++;
        }
    }
}

bool mg_ir_comes_from_relu(const mg_ir *ir, const mg_node *n) {
    while (mg_is_op(n, "max_pool2d")) n = &ir->nodes[mg_ir_resolve(ir, n->in[0])];
    if (mg_is_op(n, "conv2d")) return ((const mg_conv_attrs *)n->attrs)->relu;
    if (mg_is_op(n, "matmul")) return ((const mg_matmul_attrs *)n->attrs)->relu;
    return mg_is_op(n, "relu");
}

bool mg_ir_checks_new_values(const mg_ir *ir, const mg_node *n) {
    if (!mg_is_op(n, "all_finite")) return false;
    for (int i = 0; i < n->n_in; i++)
        if (!ir->nodes[n->in[i]].new_value) return false;
    return true;
}

int64_t mg_ir_bucket(const mg_node *n) {
    if (!mg_is_live(n) || n->kind != MG_NODE_OP || n->op->collective != MG_ALL_REDUCE) return 0;
    return ((const mg_collective_attrs *)n->attrs)->bucket;
}
