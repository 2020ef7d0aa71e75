/* The null device: accepts every graph, plans its memory, and computes nothing. It serves tests of
 * the graph passes, of memory planning and of `explain` for devices that this machine does not
 * have.
 *
 * Its memory does not exist: writes are dropped, and every byte that is read back is 1. So guards,
 * which are true unless something is wrong, never fail. */
#include "core/alloc.h"
#include "device/program/program.h"
#include "device/host.h"
#include <string.h>

/* All that is kept of a graph. */
struct mg_program {
    size_t arena_bytes;
};

/* Takes no memory: tests may plan for devices larger than this machine. */
static mg_status null_alloc(mg_device *d, size_t bytes, void **data) {
    (void)bytes;
    *data = d; /* any address but NULL: it is never dereferenced */
    return MG_OK;
}

static void null_free(mg_device *d, void *data, size_t bytes) {
    (void)d, (void)data, (void)bytes;
}

static mg_status null_copy_in(mg_device *d, void *dst, const void *src, size_t bytes) {
    (void)d, (void)dst, (void)src, (void)bytes;
    return MG_OK;
}

/* Guards are read back as bytes of 1: they hold. */
static mg_status null_copy_out(mg_device *d, void *dst, const void *src, size_t bytes) {
    (void)d, (void)src;
    memset(dst, 1, bytes);
    return MG_OK;
}

static mg_status plan_arena(const mg_kernel_graph *graph, size_t *bytes);

/* A block for what a step of a scan needs: the temporaries of its body, and two buffers for each
 * carry. */
static mg_status plan_loop(const mg_step *s, int at, mg_block *block) {
    size_t bytes = 0;
    MG_TRY(plan_arena(s->loop->graph, &bytes));
    for (int r = 0; r < s->loop->n_roots; r++)
        if (s->loop->roots[r].carry >= 0)
            bytes += 2 * mg_value_bytes(&s->loop->graph->values[s->loop->roots[r].external]);
    *block = (mg_block){.bytes = bytes, .first = at, .last = at};
    return MG_OK;
}

/* Sets *bytes to the size of the arena that a host program would need without layouts and scratch:
 * every temporary lives from the step that makes it to the last that reads it. */
static mg_status plan_arena(const mg_kernel_graph *graph, size_t *bytes) {
    int n = graph->n_values - graph->n_external;
    const size_t most = (size_t)(n + graph->n_steps + 1); /* with a block for each loop */
    mg_block *blocks = mg_alloc_zero(most * sizeof *blocks);
    mg_block **list = mg_alloc(most * sizeof *list);
    mg_status status = blocks && list ? MG_OK : MG_OOM;
    for (int i = 0; i < n && status == MG_OK; i++) {
        const mg_value *v = &graph->values[graph->n_external + i];
        blocks[i] = (mg_block){.bytes = mg_value_bytes(v), .first = graph->n_steps};
        list[i] = &blocks[i];
    }
    /* widen each block's life to every step that names its value */
    for (int s = 0; s < graph->n_steps && status == MG_OK; s++) {
        const mg_step *step = &graph->steps[s];
        for (int k = 0; k < step->n_in + step->n_out; k++) {
            const int v = (k < step->n_in ? step->in[k] : step->out[k - step->n_in]);
            if (v < graph->n_external) continue;
            mg_block *b = &blocks[v - graph->n_external];
            if (s < b->first) b->first = s;
            b->last = s;
        }
    }
    for (int s = 0; s < graph->n_steps && status == MG_OK; s++) {
        if (!graph->steps[s].loop) continue;
        status = plan_loop(&graph->steps[s], s, &blocks[n]);
        list[n] = &blocks[n];
        n++;
    }
    if (status == MG_OK) status = mg_arena_assign(list, n, bytes);
    mg_free(blocks);
    mg_free(list);
    return status;
}

/* Steps are not looked at any further: every op is supported. */
static mg_status null_compile(mg_device *d, const mg_kernel_graph *graph, mg_program **program) {
    (void)d;
    mg_program *p = mg_alloc_zero(sizeof *p);
    if (!p) return MG_OOM;
    const mg_status status = plan_arena(graph, &p->arena_bytes);
    if (status != MG_OK) {
        mg_free(p);
        return status;
    }
    *program = p;
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
                                      .test_only = true,
                                      .discards_data = true,
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
                                      .host_memory = true,
                                      .shares_programs = true};
