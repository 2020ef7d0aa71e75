/* A device kind that lives outside the tree: what a plug-in has to provide, and nothing more.
 *
 * Its memory is malloc's, but it claims that the host cannot reach it. So all data goes through
 * copy_in and copy_out, and collectives among toy devices are staged through the host, as for an
 * accelerator without communicator. Ops run by the reference kernels, except one that has a kernel
 * of its own. tests/lua/toy_device_spec.lua compiles and uses it. */
#include "device/host.h"
#include "device/program/program.h"
#include <stdio.h>

enum { DEVICES = 4 };

/* ---- a kernel of its own: cumsum of float32 vectors ---- */

/* NULL: the kernel takes the step. Otherwise the reason for a no, for MGPU_LOG=dispatch. */
static const char *accepts_vector(const mg_kernel_plan *plan) {
    const mg_value *x = plan->in[0].value;
    if (x->dtype != MG_F32) return "the elements are not float32";
    if (x->shape.rank != 1) return "it is not a vector";
    return NULL;
}

static mg_status cumsum_run(const mg_call *call) {
    const float *x = call->in[0];
    float *y = call->out[0];
    const int64_t n = mg_shape_count(&call->plan->in[0].value->shape);
    double sum = 0;
    for (int64_t i = 0; i < n; i++) y[i] = (float)(sum += x[i]);
    return MG_OK;
}

static const mg_kernel toy_cumsum = {
    .op = "cumsum", .name = "toy_cumsum", .accepts = accepts_vector, .run = cumsum_run};

static const mg_kernel *const kernels[] = {&toy_cumsum, NULL};
static const mg_kernel_set set = {.kernels = kernels};

/* ---- the device ---- */

static int toy_count(void) {
    return DEVICES;
}

static mg_status toy_describe(int ordinal, mg_device_info *info) {
    snprintf(info->text, sizeof info->text, "toy number %d of %d", ordinal + 1, DEVICES);
    info->memory_bytes = (int64_t)1 << 30;
    return MG_OK;
}

static mg_status toy_compile(mg_device *d, const mg_kernel_graph *graph, mg_program **program) {
    return mg_program_compile(d, &set, graph, program);
}

static const mg_device_api api = {.size = sizeof(mg_device_api),
                                  .kind = "toy",
                                  .rank = 2, /* behind cpu, before ref */
                                  .test_only = true,
                                  .physical = true,
                                  .describe = toy_describe,
                                  .count = toy_count,
                                  .alloc = mg_host_alloc,
                                  .free = mg_host_free,
                                  .copy_in = mg_host_copy,
                                  .copy_out = mg_host_copy,
                                  .compile = toy_compile,
                                  .run = mg_program_run,
                                  .release = mg_program_release,
                                  .arena_bytes = mg_program_arena_bytes,
                                  .sync = mg_host_sync};

const mg_device_api *mg_device_plugin(void);
const mg_device_api *mg_device_plugin(void) {
    return &api;
}
