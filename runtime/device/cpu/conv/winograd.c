/* conv2d and its gradients with square filters by Winograd's algorithm. conv/winograd_sizes.c
 * decides which convolutions are computed like this, and how results are cut into tiles.
 * simd/winograd.c explains the algorithm and the names V, U, M and D.
 *
 * Results are computed in blocks of tiles, each by one thread with its own scratch; or, where the
 * filters are large, in strips of channels, whose filters each thread transforms for itself. The
 * filters' gradient sums over all tiles. Where dU is small, each thread computes partial sums over
 * some of the blocks, alone. Otherwise blocks are transformed by all threads together, then each
 * thread adds the block's products to its own elements of dU, or computes its own parts of dU if
 * there is only one block. The order of sums does not depend on the number of threads.
 * Convolutions with few channels and enough images go to conv/winograd_images.c. */
#include "device/cpu/conv/winograd.h"
#include "device/cpu/conv/conv.h"
#include "core/alloc.h"
#include "device/cpu/upcast.h"
#include <omp.h>
#include <string.h>

/* DEPTH: channels that a product sums at a time, so that its filters stay in the L1 cache. CHAIN:
 * terms of a partial sum, see mg_gemm_product. */
enum { DEPTH = 256, CHAIN = 16 };

/* ---- filters ---- */

/* The offset of weight (y, x), with all channels, in the rearranged filters: {tap, tap, phase and
 * channel, filter}, or if rotated {tap, tap, filter, phase and channel}. */
static int64_t arranged_at(const mg_winograd_conv *s, int64_t y, int64_t x) {
    const mg_tap_place row = mg_winograd_place(&s->y, y), column = mg_winograd_place(&s->x, x);
    const int64_t tap = row.tap * s->taps + column.tap;
    const int64_t phase = row.phase * s->y.step + column.phase;
    return tap * s->c * s->k + phase * (s->y.rotated ? s->result.phase : s->image.phase * s->k);
}

/* Rotates the filters w {side, side, c, k} by half a turn and exchanges their channel axes, SIDE
 * rows at a time, whose cache lines stay in the L1 cache. */
static void rotate_filters(const mg_winograd_conv *s, const float *w, float *rotated) {
    enum { SIDE = 16 };
    const int64_t rows = s->result.c, columns = s->c; /* of each weight's matrix of channels */
#pragma omp for collapse(2) schedule(static)
    for (int64_t i = 0; i < s->side * s->side; i++)
        for (int64_t first = 0; first < rows; first += SIDE) {
            const int64_t end = first + SIDE < rows ? first + SIDE : rows;
            const float *from = w + i * rows * columns;
            float *to = rotated + arranged_at(s, i / s->side, i % s->side);
            for (int64_t column = 0; column < columns; column++)
                for (int64_t row = first; row < end; row++)
                    to[column * s->k + row] = from[row * columns + column];
        }
}

/* Copies the filters w {side, side, c, k} to their places in the rearranged filters. */
static void arrange_filters(const mg_winograd_conv *s, const float *w, float *arranged) {
    const int64_t floats = s->image.c * s->k;
#pragma omp for schedule(static)
    for (int64_t i = 0; i < s->side * s->side; i++)
        memcpy(arranged + arranged_at(s, i / s->side, i % s->side), w + i * floats,
               (size_t)floats * sizeof *w);
}

/* The filters {taps, taps, c, k} of a run: w itself, or rearranged in scratch. Taps without a
 * weight are 0. */
static const float *prepared_filters(const mg_winograd_conv *s, const float *w, float *scratch) {
    if (!mg_winograd_is_arranged(s)) return w;
    if (s->y.step > 1) {
#pragma omp single
        memset(scratch, 0, s->filters_at * sizeof *scratch);
    }
    if (s->y.rotated)
        rotate_filters(s, w, scratch);
    else
        arrange_filters(s, w, scratch);
    return scratch;
}

/* ---- blocks ---- */

typedef struct block { /* n tiles of a region from `first` on */
    const mg_winograd_region *region;
    int64_t first, n;
} block;

/* The first block of region r that belongs to partial sum p; also the end of those of p - 1. */
static int64_t first_block(const mg_winograd_conv *s, int r, int64_t p) {
    return s->blocks[r] * p / s->partials;
}

/* The number of blocks in partial sum p. */
static int64_t blocks_of(const mg_winograd_conv *s, int64_t p) {
    int64_t sum = 0;
    for (int r = 0; r < s->n_regions; r++) sum += first_block(s, r, p + 1) - first_block(s, r, p);
    return sum;
}

/* Block number i of partial sum p, counted over all regions. */
static block block_at(const mg_winograd_conv *s, int64_t p, int64_t i) {
    int r = 0;
    for (int64_t n; i >= (n = first_block(s, r, p + 1) - first_block(s, r, p)); r++) i -= n;
    const int64_t first = (first_block(s, r, p) + i) * s->block[r];
    return (block){&s->regions[r], first, mg_smaller(s->block[r], mg_winograd_tiles(s, r) - first)};
}

static mg_winograd_planes planes_of(const mg_winograd_conv *s, float *at, int64_t plane) {
    return (mg_winograd_planes){at, s->regions[0].high, s->regions[0].wide, plane};
}

/* The plane of element e of a region's tiles. */
static int64_t plane_of(const mg_winograd_conv *s, const mg_winograd_region *r, int64_t e) {
    return e / r->wide * s->regions[0].wide + e % r->wide;
}

/* Copies the first `floats` floats of each plane to planes that other threads read. Stores past the
 * caches do not wait until those threads' caches have given up the lines: between cores that share
 * no cache, plain stores took ten times as long. A barrier must follow. */
static void publish(mg_winograd_planes from, int64_t floats, mg_winograd_planes to) {
    const mg_simd_movement *move = mg_simd_used->movement;
    for (int e = 0; e < from.high * from.wide; e++)
        move->stream(to.at + e * to.plane, from.at + e * from.plane, floats);
    move->end_stream();
}

/* ---- prefetching ---- */

/* Cache lines from `at` on, of which each step prefetches `per_step`. Products leave the memory bus
 * idle, so the images of the next block are prefetched between them. */
typedef struct prefetch {
    const char *at;
    int64_t lines, per_step;
} prefetch;

/* The rows of the images that a block reads, to be prefetched in `steps` steps. Nothing if they
 * would fill the L2 cache, as those of a region with few columns would. */
static prefetch prefetch_of(const mg_winograd_conv *s, const mg_winograd_image *g, block b,
                            const void *images, int64_t steps) {
    enum { MOST = 256 << 10 }; /* bytes */
    if (b.n <= 0) return (prefetch){0};
    const mg_winograd_region *r = b.region;
    const int64_t last = b.first + b.n - 1, results = r->high - r->taps + 1;
    const int64_t first_row = b.first / r->columns, last_row = last / r->columns; /* of tiles */
    int64_t top = r->y + first_row % r->rows * results;
    int64_t end = r->y + last_row % r->rows * results + r->high;
    top = first_row / r->rows * g->h + top * g->step - g->top;
    end = last_row / r->rows * g->h + end * g->step - g->top;
    if (top < 0) top = 0;
    if (end > s->images * g->h) end = s->images * g->h;
    const int64_t row_bytes = g->w * g->c * (int64_t)mg_dtype_size(g->dtype);
    const int64_t bytes = (end - top) * row_bytes;
    if (bytes <= 0 || bytes > MOST) return (prefetch){0};
    const int64_t lines = mg_divide_up(bytes, MG_LINE);
    return (prefetch){(const char *)images + top * row_bytes, lines, mg_divide_up(lines, steps)};
}

/* Prefetches into the L1 cache, from which lines go to L2: prefetching into L2 alone was slower on
 * a Zen 4. */
static void prefetch_step(prefetch *p) {
    for (int64_t i = 0; i < p->per_step && p->lines > 0; i++, p->lines--, p->at += MG_LINE)
        __builtin_prefetch(p->at);
}

/* ---- results, and the image's gradient ---- */

/* Computes M of a block from V and n strips of U. */
static void multiply_results(const mg_winograd_conv *s, block tiles, const float *v, const float *u,
                             int64_t n, float *m, prefetch next) {
    for (int64_t e = 0; e < tiles.region->high * tiles.region->wide; e++) {
        prefetch_step(&next);
        for (int64_t strip = 0; strip < n; strip++)
            for (int64_t c = 0; c < s->c; c += DEPTH) {
                const int64_t plane = plane_of(s, tiles.region, e);
                float *sums =
                    m + plane * s->result_plane + strip * s->largest_block * mg_float_strip();
                const int64_t depth = mg_smaller(DEPTH, s->c - c);
                const float *b =
                    u + plane * s->filter_plane + (strip * s->c + c) * mg_float_strip();
                const mg_gemm_product p = {.a = v + plane * s->image_plane + c,
                                           .ra = s->ld,
                                           .da = 1,
                                           .depth = depth,
                                           .run = DEPTH,
                                           .b = b,
                                           .columns = mg_float_strip(),
                                           .c = sums,
                                           .rc = mg_float_strip(),
                                           .sums = c > 0 ? sums : NULL,
                                           .chain = CHAIN,
                                           /* given filters are read once, in this order */
                                           .next = s->packed ? b + depth * mg_float_strip() : NULL,
                                           .next_bytes = depth * mg_float_strip() * 4};
                mg_simd_used->gemm[0]->multiply(&p, tiles.n);
            }
    }
}

/* The images of the block that this thread will probably compute after block i. Nothing where
 * filters, V and M fill the L2 cache by themselves: with 64 input and 64 output channels,
 * prefetching cost 2 %. */
static prefetch prefetch_after(const mg_winograd_conv *s, int64_t i, const void *x) {
    enum { MOST_FILTERS = 512 << 10 }; /* bytes */
    const mg_winograd_region *r = block_at(s, 0, i).region;
    const int64_t next = i + omp_get_num_threads();
    const int64_t filters = s->elements * s->filter_plane * (int64_t)sizeof(float);
    if (next >= blocks_of(s, 0) || filters > MOST_FILTERS) return (prefetch){0};
    return prefetch_of(s, &s->image, block_at(s, 0, next), x, r->high * r->wide);
}

/* The scratch of the thread with this number. By strips: also of the strip with this number, first
 * a strip of the filters, then one of M. */
static float *scratch_of(const mg_winograd_conv *s, float *scratch, int64_t number) {
    return scratch + s->threads_at + (size_t)number * s->thread_floats;
}

static void make_results(const mg_winograd_conv *s, const void *x, const float *u,
                         const float *bias, float *scratch, void *y) {
    const mg_simd_winograd *simd = mg_simd_used->winograd;
    const mg_winograd_finish finish = {bias, s->relu, s->past_caches, 0, s->result.c};
    float *v = scratch_of(s, scratch, omp_get_thread_num());
    float *m = v + s->elements * s->image_plane;
#pragma omp for schedule(dynamic)
    for (int64_t i = 0; i < blocks_of(s, 0); i++) {
        const block b = block_at(s, 0, i);
        const prefetch next = prefetch_after(s, i, x);
        simd->images(&s->image, b.region, x, b.first, b.n, planes_of(s, v, s->image_plane), s->ld);
        multiply_results(s, b, v, u, s->strips, m, next);
        simd->results(&s->result, b.region, planes_of(s, m, s->result_plane), s->largest_block, y,
                      b.first, b.n, &finish);
        if (s->past_caches) mg_simd_used->movement->end_stream();
    }
}

/* U of a strip: n channels from `first` on. */
static void transform_strip(const mg_winograd_conv *s, const float *filters, int64_t strip,
                            int64_t first, int64_t n, mg_winograd_planes u) {
    const mg_winograd_filters sizes = {s->taps, s->c, s->k};
    mg_simd_used->winograd->filters(&sizes, filters + first * s->k, u, strip, 0, n);
}

/* U of all strips, which all threads compute and read; those of strips lie `apart` floats apart.
 * Some channels at a time, because there may be fewer strips than threads. own: memory of this
 * thread. */
static void share_filters(const mg_winograd_conv *s, const float *filters, float *own, float *u,
                          size_t apart) {
    const int64_t share = mg_even_share(s->strips, s->c, MG_WINOGRAD_SHARE, 1, s->team);
    const mg_winograd_planes part =
        planes_of(s, own, MG_WINOGRAD_SHARE * mg_float_strip() + MG_WINOGRAD_PADDING);
#pragma omp for collapse(2) schedule(static)
    for (int64_t strip = 0; strip < s->strips; strip++)
        for (int64_t c = 0; c < s->c; c += share) {
            const int64_t n = mg_smaller(share, s->c - c);
            const mg_winograd_planes all =
                planes_of(s, u + (size_t)strip * apart + c * mg_float_strip(), s->filter_plane);
            transform_strip(s, filters, strip, c, n, s->team > 1 ? part : all);
            if (s->team > 1) publish(part, n * mg_float_strip(), all);
        }
}

/* The results of one strip, from V of a block and U of the strip. */
static void make_strip(const mg_winograd_conv *s, block b, int64_t strip, const float *v,
                       const float *u, const float *bias, float *scratch, void *y) {
    const int64_t first = strip * mg_float_strip(), end = first + mg_float_strip();
    const mg_winograd_finish finish = {bias, s->relu, s->past_caches, first,
                                       end < s->result.c ? end : s->result.c};
    float *m = scratch_of(s, scratch, omp_get_thread_num()) + s->results_at;
    multiply_results(s, b, v, u, 1, m, (prefetch){0});
    mg_simd_used->winograd->results(&s->result, b.region, planes_of(s, m, s->result_plane),
                                    s->largest_block, y, b.first, b.n, &finish);
    if (s->past_caches) mg_simd_used->movement->end_stream();
}

/* Computes a block where there are fewer strips than threads: the threads share the filters of all
 * strips, then some tiles of a strip at a time. */
static void share_strips(const mg_winograd_conv *s, block b, const float *v, const float *filters,
                         const float *bias, float *scratch, void *y) {
    enum { FEWEST = 8 }; /* tiles at a time */
    const int64_t share = mg_even_share(s->strips, b.n, b.n, FEWEST, s->team);
    float *own = scratch_of(s, scratch, omp_get_thread_num()) + s->results_at;
    share_filters(s, filters, own, scratch_of(s, scratch, 0), s->thread_floats);
#pragma omp for collapse(2) schedule(static)
    for (int64_t strip = 0; strip < s->strips; strip++)
        for (int64_t at = 0; at < b.n; at += share) {
            const block part = {b.region, b.first + at, mg_smaller(share, b.n - at)};
            make_strip(s, part, strip, v + at * s->ld, scratch_of(s, scratch, strip), bias, scratch,
                       y);
        }
}

/* V of a block, which all threads compute and read. own: memory of this thread. */
static void share_images(const mg_winograd_conv *s, block b, const void *x, float *own, float *v) {
    const mg_winograd_planes part = planes_of(s, own, MG_WINOGRAD_SHARE * s->ld);
#pragma omp for schedule(static)
    for (int64_t at = 0; at < b.n; at += MG_WINOGRAD_SHARE) {
        const int64_t n = mg_smaller(MG_WINOGRAD_SHARE, b.n - at);
        const mg_winograd_planes all = planes_of(s, v + at * s->ld, s->image_plane);
        mg_simd_used->winograd->images(&s->image, b.region, x, b.first + at, n,
                                       s->team > 1 ? part : all, s->ld);
        if (s->team > 1) publish(part, n * s->ld, all);
    }
}

/* Each strip's filters are transformed again for each block and used at once, while they are in the
 * caches. Those of all strips together would not fit. */
static void make_results_by_strips(const mg_winograd_conv *s, const void *x, const float *filters,
                                   const float *bias, float *scratch, void *y) {
    float *v = scratch + s->filters_at, *u = scratch_of(s, scratch, omp_get_thread_num());
    for (int64_t i = 0; i < blocks_of(s, 0); i++) {
        const block b = block_at(s, 0, i);
        share_images(s, b, x, u, v);
        if (s->strips < s->team) {
            share_strips(s, b, v, filters, bias, scratch, y);
            continue;
        }
#pragma omp for schedule(dynamic)
        for (int64_t strip = 0; strip < s->strips; strip++) {
            transform_strip(s, filters, strip, 0, s->c, planes_of(s, u, s->filter_plane));
            make_strip(s, b, strip, v, u, bias, scratch, y);
        }
    }
}

/* The same with transformed filters that are given. Each strip of them is read once for each
 * block. */
static void make_results_of_packed(const mg_winograd_conv *s, const void *x, const float *u,
                                   const float *bias, float *scratch, void *y) {
    enum { FEWEST = 8 }; /* tiles at a time */
    float *v = scratch + s->filters_at, *own = scratch_of(s, scratch, omp_get_thread_num());
    for (int64_t i = 0; i < blocks_of(s, 0); i++) {
        const block b = block_at(s, 0, i);
        const int64_t share = mg_even_share(s->strips, b.n, b.n, FEWEST, s->team);
        share_images(s, b, x, own, v);
#pragma omp for collapse(2) schedule(dynamic)
        for (int64_t strip = 0; strip < s->strips; strip++)
            for (int64_t at = 0; at < b.n; at += share) {
                const block part = {b.region, b.first + at, mg_smaller(share, b.n - at)};
                make_strip(s, part, strip, v + at * s->ld, u + mg_winograd_strip_at(s, strip), bias,
                           scratch, y);
            }
    }
}

static mg_status pack_filters(const mg_call *call) {
    const mg_winograd_conv *s = call->plan->state;
    float *packed = call->out[0];
#pragma omp parallel num_threads(s->team)
    {
        const float *filters = prepared_filters(s, call->in[0], call->scratch);
#pragma omp for collapse(2) schedule(static)
        for (int64_t strip = 0; strip < s->strips; strip++)
            for (int64_t c = 0; c < s->c; c += MG_WINOGRAD_SHARE) {
                float *u = packed + mg_winograd_strip_at(s, strip) + c * mg_float_strip();
                transform_strip(s, filters, strip, c, mg_smaller(MG_WINOGRAD_SHARE, s->c - c),
                                planes_of(s, u, s->filter_plane));
            }
    }
    return MG_OK;
}

const mg_kernel mg_winograd_packer = {.name = "Winograd filters", .run = pack_filters};

/* Input i, an array of floats: where it lies, or if the images are halves a copy. */
static const float *floats_of(const mg_call *call, int i, float *copy) {
    const mg_winograd_conv *s = call->plan->state;
    if (s->image.dtype == MG_F32) return call->in[i];
    mg_cpu_convert_port(&call->plan->in[i], MG_F32, call->in[i], copy, false);
    return copy;
}

static mg_status winograd_run_results(const mg_call *call) {
    const mg_winograd_conv *s = call->plan->state;
    const void *x = call->in[0];
    float *scratch = call->scratch, *u = scratch + s->filters_at, *copies = scratch + s->copies_at;
    const float *w = s->packed ? call->in[1] : floats_of(call, 1, copies);
    const float *bias = s->bias ? floats_of(call, 2, copies + mg_count(&call->plan->in[1])) : NULL;
#pragma omp parallel num_threads(s->team)
    {
        const float *filters = s->packed ? w : prepared_filters(s, w, scratch);
        if (s->by_strips && s->packed) {
            make_results_of_packed(s, x, w, bias, scratch, call->out[0]);
        } else if (s->by_strips) {
            make_results_by_strips(s, x, filters, bias, scratch, call->out[0]);
        } else if (s->packed) {
            make_results(s, x, w, bias, scratch, call->out[0]);
        } else {
            float *own = scratch_of(s, scratch, omp_get_thread_num());
            share_filters(s, filters, own, u, (size_t)(s->c * mg_float_strip()));
            make_results(s, x, u, bias, scratch, call->out[0]);
        }
    }
    return MG_OK;
}

/* ---- the filters' gradient ---- */

/* Adds the tiles of a block to dU of one element, channels [first, end) and a strip of filters, or
 * sets it to them. v, d: V and D of the block. */
static void add_block(const mg_winograd_conv *s, block b, int64_t e, int64_t strip, int64_t first,
                      int64_t end, const float *v, const float *d, bool add, float *du) {
    const int64_t plane = plane_of(s, b.region, e);
    float *sums = du + plane * s->filter_plane;
    const mg_gemm_product p = {.a = v + plane * s->image_plane + first,
                               .ra = 1,
                               .da = s->ld,
                               .depth = b.n,
                               .run = b.n,
                               .b = d + plane * s->result_plane +
                                    strip * s->largest_block * mg_float_strip(),
                               .columns = s->k - strip * mg_float_strip(),
                               .c = sums,
                               .rc = mg_float_strip(),
                               .sums = add ? sums : NULL,
                               .chain = CHAIN};
    mg_simd_used->gemm[0]->multiply(&p, end - first);
}

/* Computes V and D of a block with all threads: each takes a few tiles of x or of dy at a time. */
static void transform_block(const mg_winograd_conv *s, block b, const void *x, const void *dy,
                            float *v, float *d) {
    const mg_simd_winograd *simd = mg_simd_used->winograd;
    const int64_t share = mg_winograd_block(b.n, s->team, MG_WINOGRAD_SHARE);
    const int64_t shares = mg_divide_up(b.n, share);
#pragma omp for schedule(static)
    for (int64_t i = 0; i < 2 * shares; i++) {
        const int64_t at = i / 2 * share, n = b.n - at < share ? b.n - at : share;
        if (i % 2 == 0)
            simd->images(&s->image, b.region, x, b.first + at, n,
                         planes_of(s, v + at * s->ld, s->image_plane), s->ld);
        else
            simd->gradients(&s->result, b.region, dy, b.first + at, n,
                            planes_of(s, d + at * mg_float_strip(), s->result_plane),
                            s->largest_block);
    }
}

/* This thread's share of the images that a block reads, to be prefetched during the thread's share
 * of `steps` products. */
static prefetch prefetch_share(const mg_winograd_conv *s, const mg_winograd_image *g, block b,
                               const void *images, int64_t steps) {
    const int64_t team = omp_get_num_threads(), member = omp_get_thread_num();
    const int64_t first = b.n * member / team, end = b.n * (member + 1) / team;
    return prefetch_of(s, g, (block){b.region, b.first + first, end - first}, images,
                       mg_divide_up(steps, team));
}

/* Copies dw from the gradient of the rearranged filters. */
static void collect_gradients(const mg_winograd_conv *s, const float *arranged, float *dw) {
    const int64_t floats = s->image.c * s->k;
#pragma omp for schedule(static)
    for (int64_t i = 0; i < s->side * s->side; i++)
        memcpy(dw + i * floats, arranged + arranged_at(s, i / s->side, i % s->side),
               (size_t)floats * sizeof *dw);
}

/* Sums the products of the blocks of partial sum p in dU, then transforms it to dw. */
static void sum_blocks(const mg_winograd_conv *s, int64_t p, const void *x, const void *dy,
                       float *v, float *d, float *du, float *dw) {
    const mg_winograd_filters sizes = {s->taps, s->c, s->k};
    const int64_t floats = s->c * mg_float_strip(); /* of a strip of dU */
    for (int64_t i = 0, end = blocks_of(s, p); i < end; i++) {
        const block b = block_at(s, p, i);
        const block next = i + 1 < end ? block_at(s, p, i + 1) : (block){0};
        const int64_t products = b.region->high * b.region->wide * s->strips;
        prefetch images = prefetch_share(s, &s->image, next, x, products);
        prefetch gradients = prefetch_share(s, &s->result, next, dy, products);
        transform_block(s, b, x, dy, v, d);
#pragma omp for schedule(static)
        for (int64_t j = 0; j < products; j++) {
            const int64_t strip = j % s->strips;
            prefetch_step(&images);
            prefetch_step(&gradients);
            add_block(s, b, j / s->strips, strip, 0, s->c, v, d, i > 0, du + strip * floats);
        }
    }
#pragma omp for collapse(2) schedule(static)
    for (int64_t strip = 0; strip < s->strips; strip++)
        for (int64_t c = 0; c < s->c; c++)
            mg_simd_used->winograd->filter_gradients(
                &sizes, planes_of(s, du + strip * floats, s->filter_plane), dw, strip, c, c + 1);
}

/* The same by this thread alone, so that no other thread reads V, D and dU. A store to a line that
 * another core has read waits for that core's caches: between cores that share no cache, sum_blocks
 * took up to 2.4 times as long. */
static void sum_blocks_alone(const mg_winograd_conv *s, int64_t p, const void *x, const void *dy,
                             float *v, float *d, float *du, float *dw) {
    const mg_simd_winograd *simd = mg_simd_used->winograd;
    const mg_winograd_filters sizes = {s->taps, s->c, s->k};
    const int64_t floats = s->c * mg_float_strip(); /* of a strip of dU */
    for (int64_t i = 0, end = blocks_of(s, p); i < end; i++) {
        const block b = block_at(s, p, i);
        const block next = i + 1 < end ? block_at(s, p, i + 1) : (block){0};
        const int64_t steps = b.region->high * b.region->wide;
        prefetch images = prefetch_of(s, &s->image, next, x, steps);
        prefetch gradients = prefetch_of(s, &s->result, next, dy, steps);
        simd->images(&s->image, b.region, x, b.first, b.n, planes_of(s, v, s->image_plane), s->ld);
        simd->gradients(&s->result, b.region, dy, b.first, b.n, planes_of(s, d, s->result_plane),
                        s->largest_block);
        for (int64_t e = 0; e < steps; e++) {
            prefetch_step(&images);
            prefetch_step(&gradients);
            for (int64_t strip = 0; strip < s->strips; strip++)
                add_block(s, b, e, strip, 0, s->c, v, d, i > 0, du + strip * floats);
        }
    }
    for (int64_t strip = 0; strip < s->strips; strip++)
        simd->filter_gradients(&sizes, planes_of(s, du + strip * floats, s->filter_plane), dw,
                               strip, 0, s->c);
}

/* Computes all partial sums, and adds them in their order. */
static void add_partials(const mg_winograd_conv *s, const void *x, const void *dy, float *v,
                         float *d, float *du, float *partials, float *dw) {
    const int64_t weights = s->taps * s->taps * s->c * s->k;
    if (s->alone) {
        const size_t thread = (size_t)omp_get_thread_num(), own = thread * s->thread_floats;
        du += thread * mg_winograd_filters_floats(s);
#pragma omp for schedule(dynamic)
        for (int64_t p = 0; p < s->partials; p++)
            sum_blocks_alone(s, p, x, dy, v + own, d + own, du, partials + p * weights);
    } else {
        for (int64_t p = 0; p < s->partials; p++)
            sum_blocks(s, p, x, dy, v, d, du, partials + p * weights);
    }
#pragma omp for schedule(static)
    for (int64_t i = 0; i < weights; i++) {
        float sum = partials[i];
        for (int64_t p = 1; p < s->partials; p++) sum += partials[p * weights + i];
        dw[i] = sum;
    }
}

/* sum_blocks for a single block, part by part: dU, which may be many times as large as dw, stays in
 * the L2 cache of each thread. */
static void sum_parts(const mg_winograd_conv *s, const void *x, const void *dy, float *v, float *d,
                      float *du, float *dw) {
    const mg_winograd_filters sizes = {s->taps, s->c, s->k};
    const block b = block_at(s, 0, 0);
    du += (size_t)omp_get_thread_num() * mg_winograd_filters_floats(s);
    transform_block(s, b, x, dy, v, d);
#pragma omp for collapse(2) schedule(static)
    for (int64_t first = 0; first < s->c; first += s->part)
        for (int64_t strip = 0; strip < s->strips; strip++) {
            const int64_t end = mg_smaller(first + s->part, s->c);
            for (int64_t e = 0; e < s->elements; e++)
                add_block(s, b, e, strip, first, end, v, d, false, du);
            mg_simd_used->winograd->filter_gradients(&sizes, planes_of(s, du, s->filter_plane),
                                                     dw + first * s->k, strip, 0, end - first);
        }
}

static mg_status winograd_run_grad_weight(const mg_call *call) {
    const mg_winograd_conv *s = call->plan->state;
    const void *x = call->in[0], *dy = call->in[1];
    const bool halves = s->image.dtype != MG_F32;
    float *scratch = call->scratch, *dw = halves ? scratch + s->copies_at : call->out[0];
    float *du = scratch + s->filters_at, *v = scratch + s->threads_at;
    float *d = v + s->elements * s->image_plane,
          *arranged = mg_winograd_is_arranged(s) ? scratch : dw;
#pragma omp parallel num_threads(s->team)
    {
        if (s->part > 0)
            sum_parts(s, x, dy, v, d, du, arranged);
        else if (s->partials > 1)
            add_partials(s, x, dy, v, d, du, scratch + s->partials_at, arranged);
        else
            sum_blocks(s, 0, x, dy, v, d, du, arranged);
        if (arranged != dw) collect_gradients(s, arranged, dw);
    }
    if (halves) mg_cpu_convert_port(&call->plan->out[0], MG_F32, call->out[0], dw, true);
    return MG_OK;
}

#define WINOGRAD(id, what, runs)                                                                   \
    const mg_kernel mg_cpu_winograd_##id = {.op = #id,                                             \
                                            .name = "Winograd",                                    \
                                            .accepts = mg_winograd_accepts_##what,                 \
                                            .prepare = mg_winograd_prepare_##what,                 \
                                            .run = winograd_run_##runs,                            \
                                            .release = mg_free}
WINOGRAD(conv2d, forward, results);
WINOGRAD(conv2d_grad_input, grad_input, results);
WINOGRAD(conv2d_grad_weight, grad_weight, grad_weight);
#undef WINOGRAD
