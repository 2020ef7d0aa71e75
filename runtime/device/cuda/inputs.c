/* Input places: see inputs.h. A value gets one when its address has changed a few times, and often:
 * data that changes with the epoch is read where it lies. */
#include "device/cuda/inputs.h"
#include "core/alloc.h"
#include "device/cuda/memory.h"
#include "device/cuda/state.h"
#include <string.h>

enum { LARGEST = 8 << 20, CHANGES = 3, PER_CHANGE = 4 };

typedef struct input {
    int external;
    size_t bytes;
    const void *last; /* where it lay */
    unsigned runs, changes;
    void *place; /* owned; NULL: it has none */
} input;

struct mg_cuda_inputs {
    mg_device *device;
    int n, n_external;
    void **external; /* n_external; behind it which are written, at first */
    input list[];
};

static size_t bytes_of(const mg_value *v) {
    return (size_t)mg_shape_count(&v->shape) * mg_dtype_size(v->dtype);
}

static void find_inputs(mg_cuda_inputs *in, const mg_work *work, bool *written) {
    for (int s = 0; s < work->n_steps; s++)
        for (int o = 0; o < work->steps[s].n_out; o++)
            if (work->steps[s].out[o] < work->n_external) written[work->steps[s].out[o]] = true;
    for (int i = 0; i < work->n_external; i++) {
        const size_t bytes = bytes_of(&work->values[i]);
        if (!written[i] && bytes > 0 && bytes <= LARGEST)
            in->list[in->n++] = (input){.external = i, .bytes = bytes};
    }
}

mg_cuda_inputs *mg_cuda_inputs_new(mg_device *d, const mg_work *work) {
    const size_t n = (size_t)work->n_external;
    mg_cuda_inputs *in = mg_alloc_zero(sizeof *in + n * sizeof *in->list);
    bool *written = mg_alloc_zero(n + 1);
    if (in) in->external = mg_alloc_zero((n + 1) * sizeof *in->external);
    if (in && in->external && written) {
        in->device = d;
        in->n_external = work->n_external;
        find_inputs(in, work, written);
    } else {
        mg_cuda_inputs_free(in);
        in = NULL;
    }
    mg_free(written);
    return in;
}

void mg_cuda_inputs_free(mg_cuda_inputs *in) {
    if (!in) return;
    for (int i = 0; i < in->n; i++)
        if (in->list[i].place) mg_device_give(in->device, in->list[i].place, in->list[i].bytes);
    mg_free(in->external);
    mg_free(in);
}

/* Counts, and gives it a place when it is time; without memory it goes without. */
static void look_at(input *x, mg_device *d, const void *address) {
    x->changes += x->runs > 0 && x->last != address;
    x->runs++;
    x->last = address;
    if (x->place || x->changes < CHANGES || x->changes * PER_CHANGE < x->runs) return;
    if (mg_device_take(d, x->bytes, &x->place) != MG_OK) {
        x->place = NULL;
        x->changes = 0;
        mg_error_clear();
    }
}

static mg_status bring(mg_device *d, const input *x, const void *from) {
    mg_cuda *s = d->state;
    pthread_mutex_lock(&s->turn);
    const mg_status status = mg_cuda_copy(d, x->place, from, x->bytes);
    pthread_mutex_unlock(&s->turn);
    return status;
}

mg_status mg_cuda_inputs_bring(mg_cuda_inputs *in, const mg_run *run, void *const **external) {
    memcpy(in->external, run->external, (size_t)in->n_external * sizeof *in->external);
    for (int i = 0; i < in->n; i++) {
        input *x = &in->list[i];
        void **address = &in->external[x->external];
        if (!run->commit) look_at(x, in->device, *address);
        if (!x->place) continue;
        if (!run->commit) MG_TRY(bring(in->device, x, *address));
        *address = x->place;
    }
    *external = in->external;
    return MG_OK;
}
