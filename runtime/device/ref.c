/* The ref device: runs every op by its reference kernel, one after another. It is the oracle that
 * other devices are compared with. So it fuses nothing: a fused group would run by another function
 * than its ops. */
#include "device/host.h"
#include "device/program/program.h"

static const mg_kernel *const kernels[] = {NULL}; /* every op falls back to the reference kernel */
static const mg_kernel_set set = {.kernels = kernels};

static mg_status ref_compile(mg_device *d, const mg_kernel_graph *graph, mg_program **program) {
    return mg_program_compile(d, &set, graph, program);
}

const mg_device_api mg_device_ref = {.size = sizeof(mg_device_api),
                                     .kind = "ref",
                                     .rank = 1,
                                     .test_only = true,
                                     .describe = mg_host_describe,
                                     .count = mg_host_count,
                                     .alloc = mg_host_alloc,
                                     .free = mg_host_free,
                                     .copy_in = mg_host_copy,
                                     .copy_out = mg_host_copy,
                                     .compile = ref_compile,
                                     .run = mg_program_run,
                                     .release = mg_program_release,
                                     .arena_bytes = mg_program_arena_bytes,
                                     .kept_bytes = mg_program_kept_bytes,
                                     .sync = mg_host_sync,
                                     .fuses = false,
                                     .host_memory = true,
                                     .shares_programs = true};
