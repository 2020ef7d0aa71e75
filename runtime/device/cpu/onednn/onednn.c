/* oneDNN: the engine and stream, primitives with their memory objects, and messages for its
 * statuses.
 *
 * Memory objects are made once, without memory; a run sets their addresses and allocates nothing.
 * If another device is running the same program, and so uses these objects, a run makes its own
 * (0.2 us each). Scratch memory always comes from the program, because the library's own belongs to
 * the thread that made the primitive. */
#include "device/cpu/onednn/onednn.h"
#include "core/alloc.h"
#include "core/limits.h"
#include "core/limits.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static dnnl_engine_t engine;
static dnnl_stream_t stream;
static int users; /* open devices; opening is serialised by the device table's lock */

/* A status in words, for messages. */
static const char *dnnl_reason(dnnl_status_t s) {
    switch (s) {
    case dnnl_out_of_memory: return "out of memory";
    case dnnl_invalid_arguments: return "invalid arguments";
    case dnnl_unimplemented: return "no implementation for this case";
    default: return "runtime error";
    }
}

/* The shapes of the inputs, for messages. */
static const char *operand_shapes(const mg_kernel_plan *plan, char *text, size_t size) {
    size_t used = 0;
    text[0] = 0;
    for (int i = 0; plan->step && i < plan->step->n_in && used < size; i++) {
        const int n =
            snprintf(text + used, size - used, " %s", MG_SHAPE_TEXT(&plan->in[i].value->shape));
        used += n > 0 ? (size_t)n : 0;
    }
    return text;
}

/* Running out of memory has a separate status, because the caller can release memory and try
 * again. */
mg_status mg_dnnl_check(dnnl_status_t s, const mg_kernel_plan *plan) {
    if (s == dnnl_success) return MG_OK;
    char text[256];
    const char *op = plan && plan->step && plan->step->op ? plan->step->op->name : "cpu device";
    const bool is_memory = s == dnnl_out_of_memory;
    return mg_fail(is_memory ? MG_OOM : MG_DEVICE, "%s%s: oneDNN: %s (status %d)%s", op,
                   plan ? operand_shapes(plan, text, sizeof text) : "", dnnl_reason(s), (int)s,
                   is_memory ? mg_reason_limits(ENOMEM) : "");
}

/* Keeps oneDNN to the instruction set that MGPU_ISA chose, unless the user has limited oneDNN
 * itself. oneDNN accepts a limit only before its first kernel; if the plug-in is loaded a second
 * time, the first limit still holds. */
static void limit_vectors(void) {
    static const struct {
        const char *set;
        dnnl_cpu_isa_t isa;
    } limits[] = {{"baseline", dnnl_cpu_isa_sse41}, {"avx2", dnnl_cpu_isa_avx2}};
    if (getenv("ONEDNN_MAX_CPU_ISA") || getenv("DNNL_MAX_CPU_ISA")) return;
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        if (strcmp(mg_simd_used->name, limits[i].set) == 0) dnnl_set_max_cpu_isa(limits[i].isa);
}

/* The library ends the process where it can make no memory for code, or throws in a thread where
 * nobody catches. mg_dnnl_room is no help if several devices begin at once, so the library is not
 * used at all under a tight limit. */
static bool is_refused(void) {
    const uint64_t tight = (uint64_t)1 << 30; /* bytes */
    const char *use = getenv("MGPU_ONEDNN");
    return (use && strcmp(use, "no") == 0) || mg_memory_limit() < tight;
}

bool mg_dnnl_is_avx2(void) {
    return strcmp(mg_simd_used->name, "avx2") == 0;
}

bool mg_dnnl_is_avx512(void) {
    return strcmp(mg_simd_used->name, "avx512") == 0;
}

/* The version of the library that was loaded, which may not be that of its header. */
const char *mg_dnnl_text(char *text, size_t size) {
    const dnnl_version_t *v = dnnl_version();
    snprintf(text, size, ", oneDNN %d.%d.%d", v->major, v->minor, v->patch);
    return is_refused() ? "" : text;
}

/* The engine and stream are shared by all cpu devices; the last one to close destroys them. */
mg_status mg_dnnl_open(void) {
    if (is_refused()) return MG_OK;
    if (users == 0) {
        limit_vectors();
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
    if (users == 0 || --users > 0) return;
    dnnl_stream_destroy(stream);
    dnnl_engine_destroy(engine);
    engine = NULL;
}

dnnl_engine_t mg_dnnl_engine(void) {
    return engine;
}

dnnl_status_t mg_dnnl_room(atomic_bool *known) {
    enum { ROOM = 32 << 20 }; /* bytes: much more than the code of a kernel takes */
    if (atomic_load(known)) return dnnl_success;
    if (!mg_alloc_has_room(ROOM)) return dnnl_out_of_memory;
    atomic_store(known, true);
    return dnnl_success;
}

mg_status mg_dnnl_create(dnnl_primitive_t *primitive, const_dnnl_primitive_desc_t pd,
                         const mg_kernel_plan *plan) {
    atomic_bool known = false;
    MG_TRY(mg_dnnl_check(mg_dnnl_room(&known), plan));
    return mg_dnnl_check(dnnl_primitive_create(primitive, pd), plan);
}

/* The memory object gets its address in mg_dnnl_run. */
mg_status mg_dnnl_add(mg_dnnl_call *c, int arg, const dnnl_memory_desc_t *md,
                      const mg_kernel_plan *plan) {
    dnnl_memory_t memory;
    MG_TRY(mg_dnnl_check(dnnl_memory_create(&memory, md, engine, DNNL_MEMORY_NONE), plan));
    c->args[c->n++] = (dnnl_exec_arg_t){arg, memory};
    return MG_OK;
}

/* A run with the primitive's own memory objects, which this thread has taken. */
static dnnl_status_t run_taken(const mg_dnnl_call *c, void *const *addresses) {
    dnnl_status_t status = dnnl_success;
    for (int i = 0; i < c->n && status == dnnl_success; i++)
        status = dnnl_memory_set_data_handle(c->args[i].memory, addresses[i]);
    return status == dnnl_success ? dnnl_primitive_execute(c->primitive, stream, c->n, c->args)
                                  : status;
}

/* A run with temporary memory objects, because another thread has taken the primitive's. */
static dnnl_status_t run_beside(const mg_dnnl_call *c, void *const *addresses) {
    dnnl_exec_arg_t args[MG_DNNL_ARGUMENTS];
    dnnl_status_t status = dnnl_success;
    int n = 0;
    for (; n < c->n && status == dnnl_success; n++) {
        const dnnl_memory_desc_t *md;
        args[n] = (dnnl_exec_arg_t){c->args[n].arg, NULL};
        status = dnnl_memory_get_memory_desc(c->args[n].memory, &md);
        if (status == dnnl_success)
            status = dnnl_memory_create(&args[n].memory, md, engine, addresses[n]);
    }
    if (status == dnnl_success) status = dnnl_primitive_execute(c->primitive, stream, n, args);
    for (int i = 0; i < n; i++) dnnl_memory_destroy(args[i].memory);
    return status;
}

/* Whoever sets `taken` first may use the primitive's own memory objects. */
mg_status mg_dnnl_run(mg_dnnl_call *c, void *const *addresses, const mg_kernel_plan *plan) {
    MG_TRY(mg_dnnl_check(mg_dnnl_room(&c->ran), plan));
    /* the exchange returns whether another thread is running this primitive */
    if (atomic_exchange(&c->taken, true)) return mg_dnnl_check(run_beside(c, addresses), plan);
    const dnnl_status_t status = run_taken(c, addresses);
    atomic_store(&c->taken, false);
    return mg_dnnl_check(status, plan);
}

/* May be called again, and on a call that was made only in part. */
void mg_dnnl_drop(mg_dnnl_call *c) {
    for (int i = 0; i < c->n; i++) dnnl_memory_destroy(c->args[i].memory);
    if (c->primitive) dnnl_primitive_destroy(c->primitive);
    c->n = 0;
    c->primitive = NULL;
}

/* The primitive's scratchpad is its third argument. */
mg_status mg_dnnl_reorder(mg_dnnl_call *c, const dnnl_memory_desc_t *from,
                          const dnnl_memory_desc_t *to, mg_kernel_plan *plan) {
    dnnl_primitive_desc_t pd;
    dnnl_primitive_attr_t attr;
    MG_TRY(mg_dnnl_attributes(&attr, plan));
    const dnnl_status_t found =
        dnnl_reorder_primitive_desc_create(&pd, from, engine, to, engine, attr);
    dnnl_primitive_attr_destroy(attr);
    MG_TRY(mg_dnnl_check(found, plan));
    plan->scratch += mg_dnnl_scratch(pd);
    mg_status status = mg_dnnl_create(&c->primitive, pd, plan);
    if (status == MG_OK) status = mg_dnnl_add(c, DNNL_ARG_FROM, from, plan);
    if (status == MG_OK) status = mg_dnnl_add(c, DNNL_ARG_TO, to, plan);
    if (status == MG_OK)
        status = mg_dnnl_add(c, DNNL_ARG_SCRATCHPAD,
                             dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0), plan);
    dnnl_primitive_desc_destroy(pd);
    return status;
}

/* The caller destroys the attributes. */
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
