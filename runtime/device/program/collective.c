/* Collectives in programs: see collective.h. */
#include "device/program/collective.h"
#include "core/placement.h"
#include "ops/attrs.h"
#include <assert.h>
#include <string.h>

static_assert((int)MG_BUCKET_TENSORS <= (int)MG_MAX_LAUNCH, "a bucket is run as one");

const mg_kernel mg_collective_kernel = {.name = "collective"};

bool mg_is_collective(const mg_step *s) {
    return s && s->op && s->op->flags & MG_OP_COLLECTIVE;
}

/* all_gather: the axes before the one dealt out are the blocks. */
static int64_t outer_blocks(const mg_shape *shape, int64_t axis) {
    int64_t n = 1;
    for (int i = 0; i < axis; i++) n *= shape->dim[i];
    return n;
}

/* How much of each of them is each rank's. */
static void block_bytes(const mg_run *run, const mg_value *whole, int64_t axis, int64_t *bytes) {
    int64_t row = (int64_t)mg_dtype_size(whole->dtype);
    for (int64_t i = axis; i < whole->shape.rank; i++) row *= whole->shape.dim[i];
    row /= run->shards->rows;
    for (int k = 0; k < run->comm->n; k++) bytes[k] = run->shards->count[k] * row;
}

static int64_t bytes_of(const mg_value *v) {
    return mg_shape_count(&v->shape) * (int64_t)mg_dtype_size(v->dtype);
}

static mg_status copy(const mg_kernel_set *set, mg_device *device, const mg_call *call) {
    const size_t bytes = (size_t)bytes_of(call->plan->in[0].value);
    if (set->copy) return set->copy(device, call->out[0], call->in[0], bytes);
    memcpy(call->out[0], call->in[0], bytes);
    return MG_OK;
}

static mg_status run_one(const mg_kernel_set *set, const mg_call *call, const mg_run *run) {
    if (!run->comm) return copy(set, run->device, call);
    const mg_comm_api *api = run->comm->api;
    const char *op = call->plan->step->op->name;
    const mg_collective_attrs *a = call->plan->step->attrs;
    const mg_value *x = call->plan->in[0].value, *y = call->plan->out[0].value;
    const void *in = call->in[0];
    void *out = call->out[0];
    const int64_t count = mg_shape_count(&x->shape);
    if (strcmp(op, "transfer") == 0) {
        const int from = (int)a->root * run->comm->n + run->rank;
        const int to = (int)a->to * run->comm->n + run->rank;
        return run->world->api->transfer(run->world, run->world_rank, from, to, in, out,
                                         bytes_of(run->world_rank == from ? x : y));
    }
    if (strcmp(op, "all_reduce") == 0)
        return api->all_reduce(run->comm, run->rank, in, out, count, x->dtype, (int)a->kind);
    if (strcmp(op, "reduce") == 0)
        return api->reduce(run->comm, run->rank, (int)a->root, in, out, count, x->dtype,
                           (int)a->kind);
    if (strcmp(op, "broadcast") == 0)
        return api->broadcast(run->comm, run->rank, (int)a->root, in, out,
                              bytes_of(run->rank == a->root ? x : y));
    int64_t bytes[MG_MAX_DEVICES];
    block_bytes(run, y, a->axis, bytes);
    return api->all_gather(run->comm, run->rank, in, out, outer_blocks(&y->shape, a->axis), bytes);
}

static mg_status run_bucket(const mg_call *calls, int n, const mg_run *run) {
    const mg_collective_attrs *a = calls->plan->step->attrs;
    mg_reduction list[MG_BUCKET_TENSORS];
    for (int i = 0; i < n; i++)
        list[i] = (mg_reduction){calls[i].in[0], calls[i].out[0],
                                 mg_shape_count(&calls[i].plan->in[0].value->shape)};
    return run->comm->api->all_reduce_many(run->comm, run->rank, list, n,
                                           calls->plan->in[0].value->dtype, (int)a->kind);
}

mg_status mg_collective_run(const mg_kernel_set *set, const mg_call *calls, int n,
                            const mg_run *run) {
    if (n > 1 && run->comm && run->comm->api->all_reduce_many) return run_bucket(calls, n, run);
    for (int i = 0; i < n; i++) MG_TRY(run_one(set, &calls[i], run));
    return MG_OK;
}
