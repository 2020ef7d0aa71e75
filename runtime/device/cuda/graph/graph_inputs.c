/* Stable addresses for the external values of a program that move from run to run.
 *
 * A CUDA graph is valid for one list of addresses. Most external values (weights, optimizer state)
 * keep their addresses, but the batch of a loop, or a returned loss, has another address in every
 * run. Such a value gets memory owned by the program: inputs are copied in before a run, results
 * are copied out after it, and the graph uses only that memory.
 *
 * A copy costs time too, so a value gets its memory only after its address has changed CHANGES
 * times and in at least every PER_CHANGE-th run: data that changes once per epoch is read in place.
 */
#include "core/alloc.h"
#include "core/threads.h"
#include "device/cuda/context/context.h"
#include "device/cuda/graph/cuda_graph.h"
#include <string.h>

/* Larger values (bytes) are never copied: a new graph costs less. */
enum { LARGEST = 8 << 20, CHANGES = 3, PER_CHANGE = 4 };

typedef struct value {
    int external; /* its index among the program's external values */
    size_t bytes;
    bool made;         /* the program writes it; otherwise it only reads it */
    mg_phase phase;    /* the phase that writes it; of an input, the first phase */
    const void *last;  /* its address in the previous run */
    unsigned runs;     /* seen so far */
    unsigned changes;  /* runs whose address differed from the previous one's */
    void *own_address; /* owned: the stable memory; NULL while it is used in place */
} value;

struct mg_cuda_graph_inputs {
    mg_device *device;
    int n, n_external;
    void **external; /* n_external addresses: the addresses that the graph uses in this run */
    value list[];    /* n values that are small enough */
};

/* Fills the list with the values that may get stable memory. */
static void list_values(mg_cuda_graph_inputs *p, const mg_kernel_graph *graph) {
    for (int i = 0; i < graph->n_external; i++)
        p->list[i] = (value){.external = i, .bytes = mg_value_bytes(&graph->values[i])};
    for (int s = 0; s < graph->n_steps; s++)
        for (int o = 0; o < graph->steps[s].n_out; o++) {
            if (graph->steps[s].out[o] >= graph->n_external) continue;
            value *v = &p->list[graph->steps[s].out[o]];
            v->made = true;
            v->phase = s < graph->n_compute ? MG_COMPUTE : MG_COMMIT;
        }
    for (int i = 0; i < graph->n_external; i++)
        if (p->list[i].bytes > 0 && p->list[i].bytes <= LARGEST) p->list[p->n++] = p->list[i];
}

/* The list has room for all external values, of which it holds those that may move. */
mg_cuda_graph_inputs *mg_cuda_graph_inputs_new(mg_device *d, const mg_kernel_graph *graph) {
    const size_t n = (size_t)graph->n_external;
    mg_cuda_graph_inputs *p = mg_alloc_zero(sizeof *p + n * sizeof *p->list);
    if (!p) return NULL;
    p->device = d;
    p->n_external = graph->n_external;
    p->external = mg_alloc_zero((n + 1) * sizeof *p->external);
    if (!p->external) {
        mg_cuda_graph_inputs_free(p);
        return NULL;
    }
    list_values(p, graph);
    return p;
}

void mg_cuda_graph_inputs_free(mg_cuda_graph_inputs *p) {
    if (!p) return;
    for (int i = 0; i < p->n; i++)
        if (p->list[i].own_address)
            mg_device_free(p->device, p->list[i].own_address, p->list[i].bytes);
    mg_free(p->external);
    mg_free(p);
}

/* Counts the run and the change of address, and allocates stable memory once the counts reach the
 * limits. If that fails, the value is used in place and counting starts again. The same happens
 * after an interrupt, which is not taken here. */
static void count_run(value *v, mg_device *d, const void *address) {
    v->changes += v->runs > 0 && v->last != address;
    v->runs++;
    v->last = address;
    if (v->own_address || v->changes < CHANGES || v->changes * PER_CHANGE < v->runs) return;
    const mg_status status = mg_device_alloc(d, v->bytes, &v->own_address);
    if (status != MG_OK) {
        if (status == MG_INTERRUPTED) mg_interrupt_by(mg_interrupt_signal());
        v->own_address = NULL;
        v->changes = 0;
        mg_error_clear();
    }
}

/* On the device's stream: before the graph, or after it. */
static mg_status copy_value(mg_device *d, void *to, const void *from, size_t bytes) {
    mg_cuda *s = d->state;
    pthread_mutex_lock(&s->turn);
    const mg_status status = mg_cuda_copy(d, to, from, bytes);
    pthread_mutex_unlock(&s->turn);
    return status;
}

/* Whether this run reads the input, or writes the result. */
static bool is_used_in(const value *v, const mg_run *run) {
    return run->phase == MG_BOTH_PHASES || run->phase == v->phase;
}

/* A value that got its memory in this run is copied there in this very run. */
mg_status mg_cuda_graph_inputs_copy_in(mg_cuda_graph_inputs *p, const mg_run *run,
                                       void *const **external) {
    memcpy(p->external, run->external, (size_t)p->n_external * sizeof *p->external);
    for (int i = 0; i < p->n; i++) {
        value *v = &p->list[i];
        void **address = &p->external[v->external];
        if (is_used_in(v, run)) count_run(v, p->device, *address);
        if (!v->own_address) continue;
        if (is_used_in(v, run) && !v->made)
            MG_TRY(copy_value(p->device, v->own_address, *address, v->bytes));
        *address = v->own_address;
    }
    *external = p->external;
    return MG_OK;
}

mg_status mg_cuda_graph_inputs_copy_out(const mg_cuda_graph_inputs *p, const mg_run *run) {
    for (int i = 0; i < p->n; i++) {
        const value *v = &p->list[i];
        if (v->made && v->own_address && is_used_in(v, run))
            MG_TRY(copy_value(p->device, run->external[v->external], v->own_address, v->bytes));
    }
    return MG_OK;
}
