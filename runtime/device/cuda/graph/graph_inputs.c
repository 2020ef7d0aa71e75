/* Places: see places.h. A value gets one when its address has changed a few times, and often: data
 * that changes with the epoch is read where it lies. */
#include "device/cuda/graph/cuda_graph.h"
#include "core/alloc.h"
#include "device/cuda/context/memory.h"
#include "device/cuda/context/context.h"
#include <string.h>

enum { LARGEST = 8 << 20, CHANGES = 3, PER_CHANGE = 4 };

typedef struct value {
    int external;
    size_t bytes;
    bool made;        /* by the program, which else only reads it */
    mg_phase phase;   /* in which it is made; of what is read the first */
    const void *last; /* where it lay */
    unsigned runs, changes;
    void *place; /* owned; NULL: it has none */
} value;

struct mg_cuda_graph_inputs {
    mg_device *device;
    int n, n_external;
    void **external; /* n_external */
    value list[];
};

static size_t bytes_of(const mg_value *v) {
    return (size_t)mg_shape_count(&v->shape) * mg_dtype_size(v->dtype);
}

/* The values that may get a place. */
static void list_values(mg_cuda_graph_inputs *p, const mg_kernel_graph *graph) {
    for (int i = 0; i < graph->n_external; i++)
        p->list[i] = (value){.external = i, .bytes = bytes_of(&graph->values[i])};
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
        if (p->list[i].place) mg_device_free(p->device, p->list[i].place, p->list[i].bytes);
    mg_free(p->external);
    mg_free(p);
}

/* Counts, and gives it a place when it is time; without memory it goes without. */
static void look_at(value *v, mg_device *d, const void *address) {
    v->changes += v->runs > 0 && v->last != address;
    v->runs++;
    v->last = address;
    if (v->place || v->changes < CHANGES || v->changes * PER_CHANGE < v->runs) return;
    if (mg_device_alloc(d, v->bytes, &v->place) != MG_OK) {
        v->place = NULL;
        v->changes = 0;
        mg_error_clear();
    }
}

static mg_status copy(mg_device *d, void *to, const void *from, size_t bytes) {
    mg_cuda *s = d->state;
    pthread_mutex_lock(&s->turn);
    const mg_status status = mg_cuda_copy(d, to, from, bytes);
    pthread_mutex_unlock(&s->turn);
    return status;
}

static bool is_now(const value *v, const mg_run *run) {
    return run->phase == MG_BOTH_PHASES || run->phase == v->phase;
}

mg_status mg_cuda_graph_inputs_copy_in(mg_cuda_graph_inputs *p, const mg_run *run,
                                       void *const **external) {
    memcpy(p->external, run->external, (size_t)p->n_external * sizeof *p->external);
    for (int i = 0; i < p->n; i++) {
        value *v = &p->list[i];
        void **address = &p->external[v->external];
        if (is_now(v, run)) look_at(v, p->device, *address);
        if (!v->place) continue;
        if (is_now(v, run) && !v->made) MG_TRY(copy(p->device, v->place, *address, v->bytes));
        *address = v->place;
    }
    *external = p->external;
    return MG_OK;
}

mg_status mg_cuda_graph_inputs_copy_out(const mg_cuda_graph_inputs *p, const mg_run *run) {
    for (int i = 0; i < p->n; i++) {
        const value *v = &p->list[i];
        if (v->made && v->place && is_now(v, run))
            MG_TRY(copy(p->device, run->external[v->external], v->place, v->bytes));
    }
    return MG_OK;
}
