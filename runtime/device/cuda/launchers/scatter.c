/* scatter_add: a tensor of zeros to which slices of dy are added at positions given by ids. It is
 * the gradient of gather.
 *
 * Several slices may go to the same position, and their order must not depend on timing. With few
 * ids, each result looks through all of them. Otherwise the pairs (id, position) are sorted by id
 * with a stable radix sort, and slices with equal ids, now neighbours, are added up in that order:
 * in pieces of the sorted list, whose sums at the borders a second kernel joins
 * (kernels/scatter.cu). The number of pieces depends on the shapes alone, so that all GPUs compute
 * the same bits. */
#include "core/alloc.h"
#include "device/cuda/kernels.h"
#include "device/cuda/kernels/movement_params.h"
#include "ops/attrs.h"
#include "ops/loops.h"

/* FEW: up to this many ids there is no sort. DIGIT_BITS: bits of one pass of the radix sort. */
enum { THREADS = 256, FEW = 128, DIGIT_BITS = 8 };

typedef struct state {
    scatter_params sums;
    sort_params sort;
    int passes;                                  /* of the sort; 0: few ids, no sort */
    size_t entries[2], counts, partial, scratch; /* offsets in scratch, and its size */
    CUfunction few, count, place, pieces, join;
} state;

/* Limits of 32-bit counting. */
static const char *accepts_scatter(const mg_kernel_plan *plan) {
    const mg_scatter_attrs *a = plan->step->attrs;
    if (mg_shape_count(&plan->in[1].value->shape) > INT32_MAX / 2) return "2^30 ids";
    return a->size > INT32_MAX ? "2^31 slices" : NULL;
}

/* ---- preparing ---- */

/* Reserves n elements at the end of scratch, aligned; returns their offset. */
static size_t reserve(size_t *end, int64_t n, size_t size) {
    const size_t at = *end;
    *end = (at + (size_t)n * size + 63) / 64 * 64;
    return at;
}

/* Divides the ids among blocks, and reserves two buffers of entries, which the passes use in turns,
 * and the digit counts of all blocks. */
static void plan_sort(state *s) {
    const int64_t n = s->sums.n;
    int64_t blocks = (n + 1023) / 1024, per_block;
    if (blocks > MG_SORT_BLOCKS) blocks = MG_SORT_BLOCKS;
    per_block = ((n + blocks - 1) / blocks + MG_SORT_THREADS - 1) / MG_SORT_THREADS;
    s->sort = (sort_params){.size = s->sums.size,
                            .n = (unsigned)n,
                            .per_block = (unsigned)per_block * MG_SORT_THREADS,
                            .id_bytes = s->sums.id_bytes};
    for (int64_t rest = s->sums.size; rest > 0; rest >>= DIGIT_BITS) s->passes++;
    for (int i = 0; i < 2; i++) s->entries[i] = reserve(&s->scratch, n, sizeof(uint64_t));
    s->counts = reserve(&s->scratch, blocks * MG_DIGITS, sizeof(unsigned));
}

/* Chooses the length of a piece: short enough for threads to fill a GPU, and long enough that there
 * are few partial sums. `real` is the size of a number in the arithmetic type. */
static void plan_sums(state *s, size_t real) {
    scatter_params *p = &s->sums;
    for (p->piece = 32; p->piece < 1024 && p->n * p->columns / p->piece > 1 << 18;) p->piece *= 2;
    p->pieces = (p->n + p->piece - 1) / p->piece;
    for (p->width = 1; p->width < 32 && p->width < p->columns;) p->width *= 2;
    s->partial = reserve(&s->scratch, 2 * p->pieces * p->columns, real);
}

/* Either the kernel for few ids, or the sort and the sums. */
static mg_status find_kernels(mg_device *d, mg_dtype t, state *s) {
    if (s->passes == 0) return mg_cuda_find_typed(d, "scatter_few", t, &s->few);
    MG_TRY(mg_cuda_find(d, "sort_count", &s->count));
    MG_TRY(mg_cuda_find(d, "sort_scatter", &s->place));
    MG_TRY(mg_cuda_find_typed(d, "scatter_pieces", t, &s->pieces));
    return mg_cuda_find_typed(d, "scatter_join", t, &s->join);
}

/* Without a sort each result compares all ids: that is right for few ids, or for little work in
 * total. */
static mg_status prepare_scatter(mg_kernel_plan *plan) {
    const mg_scatter_attrs *a = plan->step->attrs;
    const mg_value *dx = plan->out[0].value, *ids = plan->in[1].value;
    const mg_axis_view v = mg_axis_view_of(&dx->shape, a->axis);
    const mg_dtype t = dx->dtype;
    state *s = plan->state = mg_alloc_zero(sizeof *s);
    if (!s) return MG_OOM;
    s->sums = (scatter_params){.n = mg_shape_count(&ids->shape),
                               .size = v.n,
                               .inner = v.inner,
                               .columns = v.outer * v.inner,
                               .id_bytes = (int)mg_dtype_size(ids->dtype)};
    const int64_t count = mg_shape_count(&dx->shape);
    if (s->sums.n > FEW || (s->sums.n > 0 && count > (1 << 24) / s->sums.n)) {
        plan_sort(s);
        plan_sums(s, t == MG_F64 || t == MG_I64 || t == MG_I32 || t == MG_U8 ? 8 : 4);
    }
    plan->scratch = s->scratch;
    return find_kernels(plan->device, t, s);
}

/* ---- running ---- */

/* *sorted: the entries (id << 32 | position) in order. The first pass reads the ids themselves. */
static mg_status sort_entries(const mg_call *call, const uint64_t **sorted) {
    const mg_device *d = call->plan->device;
    const state *s = call->plan->state;
    char *scratch = call->scratch;
    sort_params p = s->sort;
    const int64_t blocks = (p.n + p.per_block - 1) / p.per_block;
    p.ids = call->in[1];
    p.counts = (unsigned *)(void *)(scratch + s->counts);
    for (int pass = 0; pass < s->passes; pass++) {
        p.shift = 32 + (unsigned)(pass * DIGIT_BITS);
        p.out = (unsigned long long *)(void *)(scratch + s->entries[pass % 2]);
        MG_TRY(mg_cuda_launch(d, s->count, blocks, MG_SORT_THREADS, 0, &p));
        MG_TRY(mg_cuda_launch(d, s->place, blocks, MG_SORT_THREADS, 0, &p));
        p.ids = NULL;
        p.in = p.out;
    }
    *sorted = (const uint64_t *)(const void *)p.in;
    return MG_OK;
}

/* Positions that no id names keep the zeros written first. */
static mg_status run_scatter(const mg_call *call) {
    mg_device *d = call->plan->device;
    const state *s = call->plan->state;
    const mg_value *dx = call->plan->out[0].value;
    const int64_t count = mg_shape_count(&dx->shape);
    const size_t bytes = (size_t)count * mg_dtype_size(dx->dtype);
    const uint64_t *sorted;
    scatter_params p = s->sums;
    p.dy = call->in[0], p.ids = call->in[1], p.dx = call->out[0];
    if (count == 0) return MG_OK;
    if (s->passes == 0)
        return mg_cuda_launch(d, s->few, mg_cuda_blocks(d, count, THREADS), THREADS, 0, &p);
    MG_TRY(sort_entries(call, &sorted));
    p.entries = (const unsigned long long *)sorted;
    p.partial = (char *)call->scratch + s->partial;
    MG_TRY(mg_cuda_check(d,
                         mg_cu.cuMemsetD8Async((CUdeviceptr)(uintptr_t)call->out[0], 0, bytes,
                                               mg_cuda_of(d)->stream),
                         "clear a tensor"));
    MG_TRY(mg_cuda_launch(d, s->pieces, mg_cuda_blocks(d, p.pieces * p.columns, THREADS), THREADS,
                          0, &p));
    const int64_t tasks = p.pieces * ((p.columns + p.width - 1) / p.width);
    return mg_cuda_launch(d, s->join, mg_cuda_blocks(d, tasks * THREADS, THREADS), THREADS, 0, &p);
}

const mg_kernel mg_cuda_scatter_add = {.op = "scatter_add",
                                       .name = "scatter_add",
                                       .accepts = accepts_scatter,
                                       .prepare = prepare_scatter,
                                       .run = run_scatter,
                                       .release = mg_free};
