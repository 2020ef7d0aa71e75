/* Program deduplication: equal parts on devices of one kind share one program.
 *
 * Two parts are equal if their IRs differ only in the first rows of arguments and in the first
 * elements of random draws, which are given at each run. The later part keeps only these positions
 * of its own IR, and uses the lowered graph and the program of the earlier part, its owner.
 * Compiling takes longer than everything else in making a plan, so a plan for many devices with
 * equal shards is made about as fast as a plan for one. */
#include "graph/plan.h"
#include <string.h>

static bool equal_irs(const mg_ir *a, const mg_ir *b);

/* The loops of two scans, or of two nodes that are none. */
static bool equal_loops(const mg_node *x, const mg_node *y) {
    const mg_ir_loop *a = x->loop, *b = y->loop;
    if (!a || !b) return a == b;
    return a->steps == b->steps && a->reverse == b->reverse &&
           memcmp(a->operands, b->operands, (size_t)x->n_in * sizeof *a->operands) == 0 &&
           equal_irs(&a->body, &b->body) &&
           memcmp(a->carry, b->carry, (size_t)a->body.n_roots * sizeof *a->carry) == 0;
}

/* All fields but `first`; dead nodes are equal whatever they are. */
static bool equal_nodes(const mg_node *a, const mg_node *b) {
    if (mg_is_live(a) != mg_is_live(b)) return false;
    if (!mg_is_live(a)) return true;
    return a->kind == b->kind && a->dtype == b->dtype && mg_shape_equal(&a->shape, &b->shape) &&
           a->op == b->op && a->n_in == b->n_in && a->tensor == b->tensor && a->draw == b->draw &&
           a->seed == b->seed && a->draw_relative == b->draw_relative && a->part == b->part &&
           a->operand == b->operand && equal_loops(a, b) &&
           memcmp(&a->literal, &b->literal, sizeof a->literal) == 0 &&
           (a->n_in == 0 || memcmp(a->in, b->in, (size_t)a->n_in * sizeof *a->in) == 0) &&
           (!a->op || memcmp(a->attrs, b->attrs, a->op->attrs_size) == 0);
}

/* Node by node: equal steps give equal numbering. */
static bool equal_irs(const mg_ir *a, const mg_ir *b) {
    if (a->n != b->n || a->n_roots != b->n_roots) return false;
    for (int r = 0; r < a->n_roots; r++)
        if (a->roots[r].node != b->roots[r].node || a->roots[r].commit != b->roots[r].commit)
            return false;
    for (int i = 0; i < a->n; i++)
        if (!equal_nodes(&a->nodes[i], &b->nodes[i])) return false;
    return true;
}

/* Replaces the part's IR by a small one that holds where each node's rows begin. */
static mg_status keep_places(mg_part *part) {
    mg_ir places = {0};
    const size_t n = (size_t)part->ir.n;
    part->node_first = mg_ir_alloc(&places, n * sizeof *part->node_first);
    for (size_t i = 0; i < n && part->node_first; i++)
        part->node_first[i] = part->ir.nodes[i].first;
    mg_ir_free(&part->ir);
    part->ir = places;
    return part->node_first ? MG_OK : MG_OOM;
}

/* Only owners are compared: a part that shares a program is equal to its owner. */
mg_status mg_program_dedup_find(mg_plan *p, int i) {
    mg_part *part = &p->parts[i];
    part->owner = i;
    for (int k = 0; k < i && part->device->api->shares_programs; k++) {
        const mg_part *other = &p->parts[k];
        if (other->owner != k || other->device->api != part->device->api ||
            !equal_irs(&other->ir, &part->ir))
            continue;
        part->owner = k;
        return keep_places(part);
    }
    return MG_OK;
}

/* A copy of the externals, in which the rows of arguments begin where this part's do; and per step
 * where its random draw begins. */
mg_status mg_program_dedup_take(mg_plan *p, int i) {
    mg_part *part = &p->parts[i];
    const mg_part *owner = &p->parts[part->owner];
    const mg_kernel_graph *graph = &owner->lowered.graph;
    /* Borrowed: the owner's IR holds it, and lives as long as the plan. */
    part->lowered = owner->lowered;
    part->program = owner->program;
    mg_external *externals =
        mg_ir_alloc(&part->ir, (size_t)(graph->n_external + 1) * sizeof *externals);
    part->step_first =
        mg_ir_alloc(&part->ir, (size_t)(graph->n_steps + 1) * sizeof *part->step_first);
    if (!externals || !part->step_first) return MG_OOM;
    for (int e = 0; e < graph->n_external; e++) {
        externals[e] = owner->lowered.externals[e];
        if (externals[e].part) externals[e].first = part->node_first[externals[e].node];
    }
    part->lowered.externals = externals;
    for (int s = 0; s < graph->n_steps; s++)
        if (owner->lowered.nodes[s] >= 0)
            part->step_first[s] = part->node_first[owner->lowered.nodes[s]];
    return MG_OK;
}
