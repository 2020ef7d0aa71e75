/* The form and the parameters of a fused group's kernel.
 *
 * A group is flat if every input has as many elements as the outputs, or one: then all tensors are
 * walked as one run. Otherwise the iteration space has axes, merged as far as possible, and each
 * broadcast input has strides. Threads load and store vectors of elements, as long as rows consist
 * of whole vectors. */
#include "device/cuda/launchers/fused_params.h"
#include "core/alloc.h"
#include "device/axes.h"
#include <string.h>

enum {
    ACCESS = 16,    /* the largest access of a thread, in bytes */
    MOST_WIDE = 4,  /* elements of a vector where registers are doubles, */
    MOST_NARROW = 8 /* and where they are floats: more need too many registers */
};

bool mg_fused_has_compiler(void) {
    char version[16];
    const bool has = mg_nvrtc_open(version) == MG_OK;
    mg_error_clear();
    return has;
}

/* ---- the form ---- */

/* Bytes of an element of output o, and below of input i. */
static size_t out_size(const mg_kernel_plan *plan, int o) {
    return mg_dtype_size(plan->out[o].value->dtype);
}

static size_t in_size(const mg_kernel_plan *plan, int i) {
    return mg_dtype_size(plan->in[i].value->dtype);
}

/* The shape of input i as the group reads it. */
static const mg_shape *in_shape(const mg_kernel_plan *plan, int i) {
    const mg_fused_extra *extra = mg_fused_extra_of(plan->step);
    return extra && extra->pooled == i ? extra->shape : &plan->in[i].value->shape;
}

/* Elements of the longest vector: so that the smallest dtype fills one access. */
static int longest_vector(const mg_kernel_plan *plan) {
    const mg_fused *e = plan->step->fused;
    const int most = e->wide ? MOST_WIDE : MOST_NARROW;
    size_t smallest = sizeof(double);
    for (int i = 0; i < e->n_inputs; i++)
        if (in_size(plan, i) < smallest) smallest = in_size(plan, i);
    for (int o = 0; o < e->n_outputs; o++)
        if (out_size(plan, o) < smallest) smallest = out_size(plan, o);
    return (int)(ACCESS / smallest) < most ? (int)(ACCESS / smallest) : most;
}

/* How input i is indexed; the axes are merged already. */
static enum mg_way way_of(const mg_kernel_plan *plan, int i, const mg_axes *axes,
                          const int64_t *stride) {
    const mg_shape *in = in_shape(plan, i), *out = mg_fused_shape(plan);
    if (mg_shape_equal(in, out)) return MG_WAY_WHOLE;
    if (mg_shape_count(in) == 1) return MG_WAY_ONE;
    if (mg_shape_count(in) == mg_shape_count(out)) return MG_WAY_WHOLE;
    return stride[axes->rank - 1] == 0 ? MG_WAY_ACROSS : MG_WAY_ALONG;
}

/* Whether rows consist of whole vectors of this length, at aligned offsets in every strided input.
 */
static bool vectors_fit(const mg_fused_params *g, const mg_axes *axes,
                        int64_t (*stride)[MG_MAX_RANK], int n_in, int vector) {
    const int last = axes->rank - 1;
    if (axes->dim[last] % vector != 0) return false;
    for (int i = 0; i < n_in; i++) {
        if (g->form.way[i] != MG_WAY_ALONG) continue;
        for (int k = 0; k < last; k++)
            if (stride[i][k] % vector != 0) return false;
        if (stride[i][last] != 1) return false;
    }
    return true;
}

/* Appends n words to the head; returns where they lie. */
static uint64_t *put_words(mg_fused_params *g, const void *words, size_t n) {
    uint64_t *at = &g->head[g->n_head];
    memcpy(at, words, n * sizeof *at);
    g->n_head += (int)n;
    return at;
}

/* Appends the axes and strides of a group that is not flat; the last axis counts vectors. */
static void put_axes(mg_fused_params *g, const mg_axes *axes, int64_t (*stride)[MG_MAX_RANK],
                     int n_in) {
    const int last = axes->rank - 1;
    for (int k = 0; k < axes->rank; k++) {
        const mg_axis a = mg_axis_of(k < last ? axes->dim[k] : axes->dim[k] / g->form.vector);
        put_words(g, &a, 2);
    }
    for (int i = 0; i < n_in; i++) {
        if (g->form.way[i] < MG_WAY_ALONG) continue;
        int64_t *own = (int64_t *)put_words(g, stride[i], (size_t)axes->rank);
        own[last] *= g->form.vector;
    }
    for (int i = 0; i < n_in; i++)
        if (g->form.way[i] >= MG_WAY_ALONG) put_words(g, &stride[i][last], 1);
}

/* At most `vector` rows, as vectors are powers of two. */
int64_t mg_fused_row(int64_t columns, int vector) {
    int64_t row = columns;
    while (row % vector != 0) row += columns;
    return row;
}

/* Whether the elements divide into runs that are both whole rows and whole vectors: column sums are
 * computed run by run. */
static bool has_whole_rows(const mg_shape *shape, int64_t n, int vector) {
    return n % mg_fused_row(shape->dim[shape->rank - 1], vector) == 0;
}

/* Sets how each input is indexed. Returns whether the group is flat. */
static bool find_ways(const mg_kernel_plan *plan, const mg_axes *axes,
                      int64_t (*stride)[MG_MAX_RANK], mg_fused_params *g) {
    bool flat = true;
    for (int i = 0; i < plan->step->fused->n_inputs; i++) {
        g->form.way[i] = (uint8_t)way_of(plan, i, axes, stride[i]);
        flat &= g->form.way[i] < MG_WAY_ALONG;
    }
    return flat;
}

/* The sizes of a max pool in the group; positions in the image must fit, too. */
static void put_pool(const mg_kernel_plan *plan, mg_fused_params *g) {
    const mg_fused_extra *extra = mg_fused_extra_of(plan->step);
    if (!extra || !extra->pool) return;
    const int image_input = extra->pooled >= 0 ? extra->pooled : plan->step->n_in - 1;
    const mg_shape *image = &plan->in[image_input].value->shape, *pooled = extra->shape;
    const mg_pool_attrs *a = extra->pool;
    g->form.pool = (mg_fused_pool){.spread = extra->spread + 1,
                                   .pooled = extra->pooled + 1,
                                   .keeps = extra->pooled >= 0 &&
                                            plan->step->n_out > plan->step->fused->n_outputs,
                                   .h = (int)image->dim[1],
                                   .w = (int)image->dim[2],
                                   .c = (int)image->dim[3],
                                   .oh = (int)pooled->dim[1],
                                   .ow = (int)pooled->dim[2],
                                   .rows = (int)a->size.v[0],
                                   .columns = (int)a->size.v[1],
                                   .down = (int)a->strides.v[0],
                                   .across = (int)a->strides.v[1]};
    g->form.wide_index |= mg_shape_count(image) > INT32_MAX;
}

/* Vectors are halved until they fit the rows, with sums the whole tensor, and with windows the
 * channels. */
void mg_fused_params_init(const mg_kernel_plan *plan, int summed, mg_fused_params *g) {
    const mg_fused *e = plan->step->fused;
    const mg_shape *shape = mg_fused_shape(plan);
    int64_t stride[MG_FUSE_MAX_INPUTS + 1][MG_MAX_RANK], *strides[MG_FUSE_MAX_INPUTS + 1];
    mg_axes axes = {.rank = shape->rank};
    g->n = mg_shape_count(shape);
    memcpy(axes.dim, shape->dim, sizeof axes.dim);
    for (int i = 0; i < e->n_inputs; i++) {
        mg_shape_strides(in_shape(plan, i), shape, stride[i]);
        strides[i] = stride[i];
    }
    axes.rank = mg_axes_merge(axes.rank, axes.dim, strides, e->n_inputs);
    const bool flat = find_ways(plan, &axes, stride, g);
    for (int o = 0; o < e->n_outputs; o++)
        g->form.out_dtype[o] = (uint8_t)plan->out[o].value->dtype;
    g->form.rank = flat ? 0 : axes.rank;
    g->form.wide_index = flat || g->n > INT32_MAX;
    g->form.tensors = 1;
    g->form.summed = summed;
    put_pool(plan, g);
    int vector = longest_vector(plan);
    while (vector > 1 && ((!flat && !vectors_fit(g, &axes, stride, e->n_inputs, vector)) ||
                          (summed && !has_whole_rows(shape, g->n, vector)) ||
                          (g->form.pool.h && g->form.pool.c % vector != 0)))
        vector /= 2;
    g->form.vector = vector;
    put_words(g, e->imm, (size_t)(e->n_imms > 0 ? e->n_imms : 1));
    if (!flat) put_axes(g, &axes, stride, e->n_inputs);
}

/* Groups with equal source share a kernel, whatever their sizes. */
mg_status mg_fused_kernel_want(const mg_kernel_plan *plan, const mg_fused_params *g,
                               const mg_cuda_module **kernel) {
    mg_string_buffer text = {0};
    mg_fused_source(&text, plan->step->fused, &g->form);
    MG_TRY(mg_string_buffer_status(&text));
    const mg_status status = mg_cuda_module_want(plan->device, "fused", text.s, kernel);
    mg_free(text.s);
    return status;
}

/* ---- addresses ---- */

/* To a whole vector, or to the largest access. */
static bool is_aligned(const void *p, size_t size, int vector) {
    const size_t bytes = size * (size_t)vector;
    return (uintptr_t)p % (bytes < ACCESS ? bytes : ACCESS) == 0;
}

/* Whether all tensors that are accessed by vectors are aligned to them. */
static bool all_aligned(const mg_fused_params *g, const mg_call *call) {
    const mg_fused *e = call->plan->step->fused;
    bool good = true;
    for (int i = 0; i < e->n_inputs; i++)
        if (g->form.way[i] == MG_WAY_WHOLE || g->form.way[i] == MG_WAY_ALONG)
            good &= is_aligned(call->in[i], in_size(call->plan, i), g->form.vector);
    for (int o = 0; o < e->n_outputs + g->form.pool.keeps; o++)
        good &= is_aligned(call->out[o], out_size(call->plan, o), g->form.vector);
    if (g->form.pool.spread)
        good &= is_aligned(call->in[e->n_inputs], in_size(call->plan, e->n_inputs), g->form.vector);
    return good;
}

uint64_t *mg_fused_put_tensor(const mg_fused_params *g, const mg_call *call, int64_t n,
                              int64_t first, uint64_t *at) {
    const mg_fused *e = call->plan->step->fused;
    *at++ = (uint64_t)n;
    *at++ = (uint64_t)first;
    *at++ = all_aligned(g, call);
    for (int i = 0; i < e->n_inputs; i++) *at++ = (uint64_t)(uintptr_t)call->in[i];
    if (g->form.pool.spread)
        *at++ = (uint64_t)(uintptr_t)call->in[e->n_inputs];
    else if (e->n_inputs == 0)
        *at++ = 0;
    for (int o = 0; o < e->n_outputs + g->form.pool.keeps; o++)
        *at++ = (uint64_t)(uintptr_t)call->out[o];
    return at;
}

/* ---- dividing by the size of an axis ---- */

/* Hacker's Delight, 10-9: n / size = (n * magic / 2^32 + n) / 2^shift. */
mg_axis mg_axis_of(int64_t size) {
    mg_axis a = {.size = size};
    if (size <= 0 || size > INT32_MAX) return a;
    while (((int64_t)1 << a.shift) < size) a.shift++;
    const uint64_t excess = ((uint64_t)1 << a.shift) - (uint64_t)size;
    a.magic = (uint32_t)((excess << 32) / (uint64_t)size + 1);
    return a;
}
