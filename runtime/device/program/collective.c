/* Collectives in programs: makes mg_collective_call from steps. See program.h. */
#include "device/program/program.h"
#include "core/placement.h"
#include "ops/attrs.h"
#include <assert.h>
#include <string.h>

static_assert((int)MG_BUCKET_TENSORS <= (int)MG_MAX_LAUNCH, "a bucket fits into one launch");

/* The name appears in MGPU_LOG=dispatch. */
const mg_kernel mg_collective_kernel = {.name = "collective"};

bool mg_is_collective(const mg_step *s) {
    return s && s->op && s->op->collective != MG_NO_COLLECTIVE;
}

mg_comm *mg_collective_comm(const mg_step *s, const mg_run *run) {
    if (run->comm && mg_collective_is_point_to_point((mg_collective)s->op->collective))
        return run->world;
    return run->comm;
}

/* all_gather puts together values whose axis `axis` is split by rows of the batch, or evenly. Sets
 * counts[k] to the number of elements of rank k's part in one block, the axes from `axis` on, and
 * returns the number of blocks, the product of the axes before. */
static int64_t gather_counts(const mg_run *run, const mg_shape *whole, const mg_collective_attrs *a,
                             int64_t *counts) {
    const int64_t axis = a->axis;
    int64_t outer = 1, inner = 1;
    for (int64_t i = 0; i < axis; i++) outer *= whole->dim[i];
    for (int64_t i = axis; i < whole->rank; i++) inner *= whole->dim[i];
    const int64_t row = a->one_each ? inner / run->comm->n : inner / run->shards->rows;
    for (int k = 0; k < run->comm->n; k++)
        counts[k] = a->one_each ? row : run->shards->count[k] * row;
    return outer;
}

/* A single device has no other to exchange with: the result is the operand. */
static mg_status copy_operand(const mg_kernel_set *set, mg_device *device, const mg_call *call) {
    const size_t bytes = mg_value_bytes(call->plan->in[0].value);
    if (set->copy) return set->copy(device, call->out[0], call->in[0], bytes);
    memcpy(call->out[0], call->in[0], bytes);
    return MG_OK;
}

/* Everything but the sizes is taken from the first call, because all calls of a bucket have equal
 * attributes and dtypes. */
mg_status mg_collective_run(const mg_kernel_set *set, const mg_call *calls, int n,
                            const mg_run *run) {
    const mg_step *step = calls->plan->step;
    const mg_collective_attrs *a = step->attrs;
    mg_comm *comm = mg_collective_comm(step, run);
    mg_comm_operand operands[MG_BUCKET_TENSORS];
    int64_t counts[MG_MAX_SHARDS];
    for (int i = 0; i < n && !comm; i++) MG_TRY(copy_operand(set, run->device, &calls[i]));
    if (!comm) return MG_OK;
    const int rank = comm == run->comm ? run->rank : run->world_rank;
    mg_collective_call x = {.kind = (mg_collective)step->op->collective,
                            .reduction = (enum mg_reduce_kind)a->kind,
                            .root = (int)a->root,
                            .to = (int)a->to,
                            .operands = operands,
                            .n_operands = n,
                            .counts = counts};
    if (mg_collective_is_point_to_point(x.kind)) { /* root and `to` are stages */
        x.root = x.root * run->n_stage + run->world_rank % run->n_stage;
        x.to = x.to * run->n_stage + run->world_rank % run->n_stage;
    }
    /* A rank without an operand or without a result has a placeholder in its place. */
    const bool gives = mg_collective_has_input(&x, rank); /* otherwise it receives */
    const mg_port *port = gives ? calls->plan->in : calls->plan->out;
    x.dtype = port->value->dtype;
    if (x.kind == MG_ALL_GATHER)
        x.outer = gather_counts(run, &calls->plan->out[0].value->shape, a, counts);
    for (int i = 0; i < n; i++) {
        port = gives ? calls[i].plan->in : calls[i].plan->out;
        operands[i] =
            (mg_comm_operand){calls[i].in[0], calls[i].out[0], mg_shape_count(&port->value->shape)};
    }
    return comm->api->begin ? comm->api->begin(comm, rank, &x) : comm->api->run(comm, rank, &x);
}
