/* The null device: hands out addresses, counts, computes nothing. For testing the passes, memory
 * planning and `explain` with devices that are not there. Every byte read back is one, so that
 * guards hold. */
#include "core/alloc.h"
#include "device/host.h"
#include <string.h>

struct mg_program {
    size_t arena_bytes;
};

static void *null_alloc(mg_device *d, size_t bytes) {
    (void)bytes;
    return d; /* an address that is never looked at */
}

static void null_free(mg_device *d, void *data, size_t bytes) {
    (void)d, (void)data, (void)bytes;
}

static mg_status null_copy_in(mg_device *d, void *dst, const void *src, size_t bytes) {
    (void)d, (void)dst, (void)src, (void)bytes;
    return MG_OK;
}

static mg_status null_copy_out(mg_device *d, void *dst, const void *src, size_t bytes) {
    (void)d, (void)src;
    memset(dst, 1, bytes);
    return MG_OK;
}

/* The arena as large as all temporaries together: an upper bound. */
static mg_status null_compile(mg_device *d, const mg_work *work, mg_program **program) {
    (void)d;
    mg_program *p = *program = mg_alloc_zero(sizeof *p);
    if (!p) return MG_OOM;
    for (int i = work->n_external; i < work->n_values; i++)
        p->arena_bytes +=
            (size_t)mg_shape_count(&work->values[i].shape) * mg_dtype_size(work->values[i].dtype);
    return MG_OK;
}

static mg_status null_run(mg_program *program, const mg_run *run) {
    (void)program, (void)run;
    return MG_OK;
}

static void null_release(mg_program *program) {
    mg_free(program);
}

static size_t null_arena_bytes(const mg_program *program) {
    return program->arena_bytes;
}

const mg_device_api mg_device_null = {.size = sizeof(mg_device_api),
                                      .kind = "null",
                                      .describe = mg_host_describe,
                                      .count = mg_host_count,
                                      .alloc = null_alloc,
                                      .free = null_free,
                                      .copy_in = null_copy_in,
                                      .copy_out = null_copy_out,
                                      .compile = null_compile,
                                      .run = null_run,
                                      .release = null_release,
                                      .arena_bytes = null_arena_bytes,
                                      .sync = mg_host_sync,
                                      .fuses = true,
                                      .host_memory = true};
