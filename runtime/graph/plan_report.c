/* What a plan says about itself: a report by device, its text, and a comparison with another plan.
 *
 * Nothing here changes the plan. */
#include "core/alloc.h"
#include "graph/execution.h"
#include <string.h>

void mg_plan_effects(const mg_plan *p, int64_t *draws, int *assigns) {
    *draws = (int64_t)p->n_draws;
    *assigns = p->n_assigns;
}

int mg_plan_repeats(const mg_plan *p) {
    return p->comms && !p->shards.rows && p->n_stages == 1 ? p->shards.n : 1;
}

/* One part per device. */
int mg_plan_devices(const mg_plan *p) {
    return p->n_parts;
}

mg_plan_report mg_plan_describe(const mg_plan *p, int i) {
    const mg_part *part = &p->parts[i];
    const mg_kernel_graph *graph = &part->lowered.graph;
    mg_plan_report r = {.device = part->device,
                        .steps = graph->n_steps,
                        .arena_bytes = (int64_t)part->device->api->arena_bytes(part->program),
                        .kept_bytes = part->device->api->kept_bytes
                                          ? (int64_t)part->device->api->kept_bytes(part->program)
                                          : 0};
    if (p->comms) {
        const int rank = mg_plan_rank(p, i);
        const mg_comm *comm = p->comms[i / mg_plan_stage_width(p)];
        r.first_row = p->shards.first[rank];
        r.rows = p->shards.count[rank];
        r.seconds = p->execution->parts[i].seconds;
        r.reduce_seconds = comm->busy[rank];
        r.wait_seconds = comm->waited[rank];
        r.beside_seconds = comm->beside[rank];
        r.bytes_moved = comm->bytes_moved[rank];
    }
    const mg_work work = mg_graph_count_work(graph);
    r.products = work.products;
    r.elements = work.elements;
    for (int e = 0; e < graph->n_external; e++) { /* an update's memory is its variable's */
        const mg_external_kind kind = part->lowered.externals[e].kind;
        const int64_t bytes = (int64_t)mg_value_bytes(&graph->values[e]);
        if (kind == MG_EXTERNAL_VARIABLE) r.variable_bytes += bytes;
        if (kind == MG_EXTERNAL_ARGUMENT || kind == MG_EXTERNAL_VALUE) r.argument_bytes += bytes;
        if (kind == MG_EXTERNAL_RESULT) r.result_bytes += bytes;
    }
    for (int s = 0; s < graph->n_steps; s++) { /* collectives, by their first input */
        if (!graph->steps[s].op || !graph->steps[s].op->collective) continue;
        r.collectives++;
        r.collective_bytes += (int64_t)mg_value_bytes(&graph->values[graph->steps[s].in[0]]);
    }
    return r;
}

/* The number of the call that step s belongs to, if it is a collective. */
static int collective_number(const mg_kernel_graph *graph, int s) {
    int n = 0;
    if (!graph->steps[s].op || !graph->steps[s].op->collective) return 0;
    for (int i = 0; i <= s; i++) /* a bucket's length is set on its first step */
        n += graph->steps[i].op && graph->steps[i].op->collective && graph->steps[i].batch_count;
    return n;
}

/* Of a collective's operands only the first is read. */
static int last_awaited(const mg_kernel_graph *graph, int s) {
    const mg_step *reader = &graph->steps[s];
    const bool collective = reader->op && reader->op->collective;
    for (int i = s - 1; i >= 0; i--)
        for (int k = 0; k < graph->steps[i].n_out; k++)
            for (int in = 0; in < (collective ? 1 : reader->n_in); in++) {
                if (graph->steps[i].out[k] != reader->in[in]) continue;
                const int number = collective_number(graph, i);
                if (number) return number;
            }
    return 0;
}

bool mg_plan_describe_step(const mg_plan *p, int i, int step, mg_step_report *r) {
    const mg_kernel_graph *graph = &p->parts[i].lowered.graph;
    if (step >= graph->n_steps) return false;
    const mg_step *s = &graph->steps[step];
    const mg_work w = mg_step_work(graph, s);
    *r = (mg_step_report){.op = s->op ? s->op->name : "fused",
                          .origin = s->origin,
                          .flops = w.flops,
                          .bytes = w.bytes,
                          .collective = collective_number(graph, step),
                          .awaits = last_awaited(graph, step)};
    if (r->collective) r->sent = (double)mg_value_bytes(&graph->values[s->in[0]]);
    return true;
}

/* The part that stands for the whole plan in dumps: the first, or the central one, which has all
 * commit steps. */
static const mg_lowered *dumped(const mg_plan *p) {
    return &p->parts[p->central >= 0 ? p->central : 0].lowered;
}

/* On several devices: of the part that stands for the plan. */
char *mg_plan_dump(const mg_plan *p, bool where) {
    return mg_lowered_dump(dumped(p), where);
}

/* *same: whether two constants of one dtype and shape hold the same bits. */
static mg_status compare_values(mg_tensor *a, mg_tensor *b, bool *same) {
    const size_t bytes = mg_tensor_bytes(a);
    char *both = mg_alloc(2 * bytes + 1);
    mg_status status = both ? mg_tensor_read(a, both) : MG_OOM;
    if (status == MG_OK) status = mg_tensor_read(b, both + bytes);
    *same = status == MG_OK && memcmp(both, both + bytes, bytes) == 0;
    mg_free(both);
    return status;
}

/* *same: whether both plans are given the same thing. Constants are compared by their contents. */
static mg_status compare_externals(const mg_external *a, const mg_external *b, bool *same) {
    *same = a->kind == b->kind;
    if (!*same) return MG_OK;
    if (a->kind == MG_EXTERNAL_VARIABLE) *same = a->variable == b->variable;
    if (a->kind != MG_EXTERNAL_VALUE || a->tensor == b->tensor) return MG_OK;
    *same = a->dtype == b->dtype && mg_shape_equal(&a->shape, &b->shape);
    return *same ? compare_values(a->tensor, b->tensor, same) : MG_OK;
}

/* Equal dumps have the same externals in the same order. */
mg_status mg_plan_compare_given(const mg_plan *p, const mg_plan *other, const mg_shape **differs) {
    const mg_lowered *a = dumped(p), *b = dumped(other);
    *differs = NULL;
    for (int i = 0; i < a->graph.n_external && !*differs; i++) {
        bool same = i < b->graph.n_external;
        if (same) MG_TRY(compare_externals(&a->externals[i], &b->externals[i], &same));
        if (!same) *differs = &a->externals[i].shape;
    }
    return MG_OK;
}
