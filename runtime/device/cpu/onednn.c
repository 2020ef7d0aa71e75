/* oneDNN: engine, stream, primitives with their memory objects, statuses.
 *
 * Memory objects are made once, without memory; a run sets their addresses. So a call allocates
 * nothing, and two programs never share an object. */
#include "device/cpu/onednn.h"
#include <stdio.h>

static dnnl_engine_t engine;
static dnnl_stream_t stream;
static int users; /* open devices; opening is serialised by the device table's lock */

static const char *reason(dnnl_status_t s) {
    switch (s) {
    case dnnl_out_of_memory: return "out of memory";
    case dnnl_invalid_arguments: return "invalid arguments";
    case dnnl_unimplemented: return "no implementation for this case";
    default: return "runtime error";
    }
}

static const char *operands(const mg_kernel_plan *plan, char *text, size_t size) {
    size_t used = 0;
    text[0] = 0;
    for (int i = 0; plan->step && i < plan->step->n_in && used < size; i++) {
        const int n =
            snprintf(text + used, size - used, " %s", MG_SHAPE_TEXT(&plan->in[i].value->shape));
        used += n > 0 ? (size_t)n : 0;
    }
    return text;
}

mg_status mg_dnnl_check(dnnl_status_t s, const mg_kernel_plan *plan) {
    if (s == dnnl_success) return MG_OK;
    char text[256];
    const char *op = plan && plan->step && plan->step->op ? plan->step->op->name : "cpu device";
    return mg_fail(s == dnnl_out_of_memory ? MG_OOM : MG_DEVICE, "%s%s: oneDNN: %s (status %d)", op,
                   plan ? operands(plan, text, sizeof text) : "", reason(s), (int)s);
}

mg_status mg_dnnl_open(void) {
    if (users == 0) {
        MG_TRY(mg_dnnl_check(dnnl_engine_create(&engine, dnnl_cpu, 0), NULL));
        const mg_status status =
            mg_dnnl_check(dnnl_stream_create(&stream, engine, dnnl_stream_default_flags), NULL);
        if (status != MG_OK) {
            dnnl_engine_destroy(engine);
            return status;
        }
    }
    users++;
    return MG_OK;
}

void mg_dnnl_close(void) {
    if (--users > 0) return;
    dnnl_stream_destroy(stream);
    dnnl_engine_destroy(engine);
}

dnnl_engine_t mg_dnnl_engine(void) {
    return engine;
}

mg_status mg_dnnl_add(mg_dnnl_call *c, int arg, const dnnl_memory_desc_t *md,
                      const mg_kernel_plan *plan) {
    dnnl_memory_t memory;
    MG_TRY(mg_dnnl_check(dnnl_memory_create(&memory, md, engine, DNNL_MEMORY_NONE), plan));
    c->args[c->n++] = (dnnl_exec_arg_t){arg, memory};
    return MG_OK;
}

mg_status mg_dnnl_run(const mg_dnnl_call *c, void *const *addresses, const mg_kernel_plan *plan) {
    for (int i = 0; i < c->n; i++)
        MG_TRY(mg_dnnl_check(dnnl_memory_set_data_handle(c->args[i].memory, addresses[i]), plan));
    return mg_dnnl_check(dnnl_primitive_execute(c->primitive, stream, c->n, c->args), plan);
}

void mg_dnnl_drop(mg_dnnl_call *c) {
    for (int i = 0; i < c->n; i++) dnnl_memory_destroy(c->args[i].memory);
    if (c->primitive) dnnl_primitive_destroy(c->primitive);
    *c = (mg_dnnl_call){0};
}

mg_status mg_dnnl_reorder(mg_dnnl_call *c, const dnnl_memory_desc_t *from,
                          const dnnl_memory_desc_t *to, const mg_kernel_plan *plan) {
    dnnl_primitive_desc_t pd;
    MG_TRY(mg_dnnl_check(dnnl_reorder_primitive_desc_create(&pd, from, engine, to, engine, NULL),
                         plan));
    const dnnl_status_t made = dnnl_primitive_create(&c->primitive, pd);
    dnnl_primitive_desc_destroy(pd);
    MG_TRY(mg_dnnl_check(made, plan));
    MG_TRY(mg_dnnl_add(c, DNNL_ARG_FROM, from, plan));
    return mg_dnnl_add(c, DNNL_ARG_TO, to, plan);
}

mg_status mg_dnnl_attributes(dnnl_primitive_attr_t *attr, const mg_kernel_plan *plan) {
    MG_TRY(mg_dnnl_check(dnnl_primitive_attr_create(attr), plan));
    const dnnl_status_t set =
        dnnl_primitive_attr_set_scratchpad_mode(*attr, dnnl_scratchpad_mode_user);
    if (set != dnnl_success) dnnl_primitive_attr_destroy(*attr);
    return mg_dnnl_check(set, plan);
}

size_t mg_dnnl_scratch(const_dnnl_primitive_desc_t pd) {
    const dnnl_memory_desc_t *md = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    return md ? (dnnl_memory_desc_get_size(md) + 63) & ~(size_t)63 : 0;
}
