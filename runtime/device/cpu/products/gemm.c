/* Matrix products. The result is cut into blocks, which threads share. A block's sums are computed
 * a few hundred terms at a time: the first factor's part is read once, the second is packed into
 * strips of columns, and the sums of a strip are kept in scratch until they are written to the
 * result, with bias and relu (simd/gemm_loops.h). Where the result is small and the sums are long,
 * the sums are cut into parts (split-K), which threads share as well. */
#include "device/cpu/products/gemm.h"
#include <omp.h>
#include <string.h>

enum {
    DEPTH = 256,   /* terms of the sums that are read at a time */
    CHAIN = 64,    /* terms of a partial sum: see mg_gemm_product */
    ROWS = 192,    /* rows of a block, at most */
    COLUMNS = 256, /* columns of a block, at most */
    FEWEST_COLUMNS = 64,
    GROUP = 16,        /* strips of b that are packed at a time */
    PADDING = 16,      /* elements after a row, so that rows do not share cache sets */
    PARTS = 16,        /* parts of a sum, at most */
    LEAST_PART = 1024, /* terms of a part, at least */
    FEW_BLOCKS = 16,   /* sums are cut into parts if there are fewer blocks than that */
    BLOCKS_PER_THREAD = 4,
    SERIAL_BELOW = 1 << 17, /* multiply-adds up to which one thread is faster */
    MOST_PACKED = 1 << 22   /* elements of b up to which all of it is packed */
};

static size_t whole_lines(size_t bytes) {
    return (bytes + MG_LINE - 1) / MG_LINE * MG_LINE;
}

static const mg_simd_gemm *loops_of(const mg_gemm *g) {
    return mg_simd_used->gemm[g->wide];
}

static int64_t size_of(const mg_gemm *g) {
    return g->wide ? sizeof(double) : sizeof(float);
}

/* ---- reading factors ---- */

void mg_read_run(const mg_factor *f, int64_t from, int64_t n, void *to) {
    const char *at = f->at;
    if (mg_dtype_is_half(f->dtype))
        mg_simd_used->conversions->load_f32(to, at + from * 2, f->dtype, (int)n);
    else
        memcpy(to, at + from * mg_factor_size(f), (size_t)(n * mg_factor_size(f)));
}

void mg_read_matrix(const mg_factor *f, int64_t row, int64_t rows, int64_t column, int64_t n,
                    void *to, int64_t to_row) {
    const int64_t size = mg_factor_size(f);
    for (int64_t i = 0; i < rows; i++)
        mg_read_run(f, (row + i) * f->row + column, n, (char *)to + i * to_row * size);
}

/* ---- blocks ---- */

/* The number of blocks of the result. */
static int64_t blocks_of(const mg_gemm *g) {
    return mg_divide_up(g->m, g->rows) * mg_divide_up(g->n, g->columns);
}

static size_t block_bytes(const mg_gemm *g) {
    const int64_t strip = loops_of(g)->strip;
    return whole_lines((size_t)(g->rows * mg_divide_up(g->columns, strip) * strip * size_of(g)));
}

/* Blocks of about equal heights, in whole tiles of the loops; smaller blocks where some threads
 * would get none. */
static void choose_blocks(mg_gemm *g) {
    const mg_simd_gemm *loops = loops_of(g);
    const int64_t wanted = g->team > 1 ? g->team * BLOCKS_PER_THREAD : 1;
    const int64_t even = mg_divide_up(g->m, mg_divide_up(g->m, ROWS));
    g->rows = mg_smaller(mg_divide_up(even, loops->tile) * loops->tile, g->m);
    g->columns = mg_smaller(COLUMNS, mg_divide_up(g->n, loops->strip) * loops->strip);
    while (blocks_of(g) * g->parts < wanted && g->columns > FEWEST_COLUMNS)
        g->columns = mg_divide_up(g->columns / 2, loops->strip) * loops->strip;
    while (blocks_of(g) * g->parts < wanted && g->rows > 2 * loops->tile)
        g->rows = mg_divide_up(g->rows / 2, loops->tile) * loops->tile;
    while (blocks_of(g) * g->parts < wanted && g->columns > loops->strip)
        g->columns = mg_divide_up(g->columns / 2, loops->strip) * loops->strip;
}

/* Depends on the sizes only, not on the threads, so that the order of additions does too. */
static int64_t parts_of(int64_t m, int64_t n, int64_t k) {
    const int64_t blocks = mg_divide_up(m, ROWS) * mg_divide_up(n, COLUMNS);
    if (blocks >= FEW_BLOCKS || k < 2 * LEAST_PART) return 1;
    return mg_smaller(PARTS, k / LEAST_PART);
}

/* A thread's scratch holds, in this order: a block's part of a; a strip of b before it is packed;
 * up to GROUP packed strips; the block's sums. This is the size of the first. */
static size_t left_bytes(const mg_gemm *g) {
    const int64_t by_lanes = g->rows * (g->depth + PADDING);
    const int64_t by_steps = g->depth * (g->rows + PADDING);
    return whole_lines((size_t)(mg_larger(by_lanes, by_steps) * size_of(g)));
}

static size_t strip_bytes(const mg_gemm *g) {
    return whole_lines((size_t)(g->depth * loops_of(g)->strip * size_of(g)));
}

size_t mg_gemm_packed_bytes(const mg_gemm *g) {
    const int64_t strip = loops_of(g)->strip, strips = mg_divide_up(g->n, strip);
    return whole_lines((size_t)(strips * strip * g->k * size_of(g)));
}

static void choose_scratch(mg_gemm *g, mg_dtype t) {
    g->packed_at = mg_dtype_is_half(t) ? whole_lines((size_t)g->n * sizeof(float)) : 0;
    g->parts_at = g->packed_at + (g->packed && !g->given ? mg_gemm_packed_bytes(g) : 0);
    g->threads_at =
        g->parts_at + (g->parts > 1 ? (size_t)(g->parts * blocks_of(g)) * block_bytes(g) : 0);
    g->thread = left_bytes(g) + (1 + GROUP) * strip_bytes(g) + block_bytes(g);
    g->scratch = g->threads_at + (size_t)g->team * g->thread;
}

static mg_gemm plan_for_team(int64_t m, int64_t n, int64_t k, mg_dtype t, int team) {
    mg_gemm g = {.m = m,
                 .n = n,
                 .k = k,
                 .wide = t == MG_F64,
                 .rows = 1,
                 .columns = 1,
                 .depth = mg_smaller(k, DEPTH),
                 .parts = 1,
                 .team = team};
    if (m == 0 || n == 0) return g;
    g.parts = parts_of(m, n, k);
    choose_blocks(&g);
    g.packed = m > g.rows && g.parts == 1 && n * k <= MOST_PACKED;
    choose_scratch(&g, t);
    return g;
}

mg_gemm mg_gemm_plan(int64_t m, int64_t n, int64_t k, mg_dtype t) {
    return plan_for_team(m, n, k, t, m * n * k > SERIAL_BELOW ? mg_cpu_threads() : 1);
}

mg_gemm mg_gemm_plan_single(int64_t m, int64_t n, int64_t k, mg_dtype t) {
    return plan_for_team(m, n, k, t, 1);
}

mg_gemm mg_gemm_plan_packed(int64_t m, int64_t n, int64_t k) {
    mg_gemm g = mg_gemm_plan(m, n, k, MG_F32);
    g.packed = g.given = true;
    if (m > 0 && n > 0) choose_scratch(&g, MG_F32);
    return g;
}

/* ---- a run ---- */

typedef struct run { /* of a product */
    const mg_gemm *g;
    const mg_factor *a, *b;
    const mg_gemm_result *y;
    char *scratch;
} run;

typedef struct block { /* a block of the result, and the terms [from, end) of its sums */
    int64_t row, rows, column, columns, from, end;
} block;

/* Part `part` of block i. */
static block block_at(const mg_gemm *g, int64_t i, int64_t part) {
    const int64_t wide = mg_divide_up(g->n, g->columns);
    const int64_t row = i / wide * g->rows, column = i % wide * g->columns;
    return (block){row,
                   mg_smaller(g->rows, g->m - row),
                   column,
                   mg_smaller(g->columns, g->n - column),
                   g->k * part / g->parts,
                   g->k * (part + 1) / g->parts};
}

/* Where b lies that is packed as a whole. */
static char *packed_at(const run *r) {
    return r->g->given ? (char *)(uintptr_t)r->b->at : r->scratch + r->g->packed_at;
}

/* ---- writing ---- */

/* The bias from a column on, in the dtype of the sums, or NULL. */
static const char *bias_at(const run *r, int64_t column) {
    if (!r->y->bias) return NULL;
    const char *bias = mg_dtype_is_half(r->y->dtype) ? r->scratch : r->y->bias;
    return bias + column * size_of(r->g);
}

/* Writes the sums of the strip that begins at column `done` of a block, line by line of the
 * result. */
static void write_strip(const run *r, const block *b, int64_t done, const char *sums) {
    const mg_gemm_result *y = r->y;
    const int64_t strip = loops_of(r->g)->strip, size = size_of(r->g), first = b->column + done;
    const int64_t stored = (int64_t)mg_dtype_size(y->dtype);
    mg_gemm_sums s = {.columns = mg_smaller(strip, b->columns - done),
                      .bias = bias_at(r, first),
                      .relu = y->relu,
                      .dtype = y->dtype};
    for (int64_t i = 0; i < b->rows; i += s.rows) {
        const int64_t at = b->row + i, x = at % y->columns, line = at / y->columns;
        const int64_t image = line / y->lines * y->image, row = line % y->lines * y->line;
        s.rows = mg_smaller(y->columns - x, b->rows - i);
        s.at = sums + i * strip * size;
        loops_of(r->g)->write(&s, (char *)y->at + (image + row + x * y->pixel + first) * stored,
                              y->pixel);
    }
}

/* Writes all of a block's sums, {strips, rows, strip}. */
static void write_block(const run *r, const block *b, const char *sums) {
    const int64_t strip = loops_of(r->g)->strip, size = size_of(r->g);
    for (int64_t done = 0; done < b->columns; done += strip)
        write_strip(r, b, done, sums + done * b->rows * size);
}

/* ---- multiplying ---- */

/* Packs the terms [from, end) of `columns` columns of b, from `column` on, into strips that lie
 * `apart` bytes from each other. `lanes` has room for a strip before it is packed. If the rows of b
 * are steps, each is read across all columns at once, in memory order. */
static void pack_strips(const run *r, int64_t column, int64_t columns, int64_t from, int64_t end,
                        char *lanes, char *to, int64_t apart) {
    const mg_simd_gemm *loops = loops_of(r->g);
    const mg_factor *b = r->b;
    const int64_t strip = loops->strip, depth = end - from;
    if (b->by_steps) {
        const int64_t stored = (int64_t)mg_dtype_size(b->dtype);
        loops->pack_steps((const char *)b->at + (from * b->row + column) * stored, b->dtype, b->row,
                          depth, columns, to, apart / size_of(r->g));
        return;
    }
    const bool pairs = b->read == mg_read_matrix && mg_dtype_is_half(b->dtype) && b->row % 2 == 0;
    for (int64_t done = 0; done < columns; done += strip, to += apart) {
        const int64_t n = mg_smaller(strip, columns - done), row = column + done;
        if (pairs) {
            const uint16_t *halves = (const uint16_t *)b->at + row * b->row + from;
            loops->pack_lanes(halves, b->dtype, b->row, n, depth, to);
        } else {
            b->read(b, row, n, from, depth, lanes, depth);
            loops->pack_lanes(lanes, r->g->wide ? MG_F64 : MG_F32, depth, n, depth, to);
        }
    }
}

/* Reads the block's rows of a to `copy`, or leaves them in place if the loops can read them there:
 * a matrix whose rows are lanes, of the right dtype. */
static mg_gemm_product read_left(const run *r, const block *b, int64_t from, int64_t end,
                                 char *copy) {
    const mg_factor *a = r->a;
    const int64_t depth = end - from;
    mg_gemm_product p = {
        .a = copy, .ra = depth + PADDING, .da = 1, .depth = depth, .run = depth, .chain = CHAIN};
    if (a->by_steps) {
        p.ra = 1;
        p.da = b->rows + PADDING;
        a->read(a, from, depth, b->row, b->rows, copy, p.da);
    } else if (a->read == mg_read_matrix && !mg_dtype_is_half(a->dtype)) {
        p.a = (const char *)a->at + (b->row * a->row + from) * size_of(r->g);
        p.ra = a->row;
    } else {
        a->read(a, b->row, b->rows, from, depth, copy, p.ra);
    }
    return p;
}

/* How many of a block's first columns are written to the result directly, not by way of scratch:
 * those that fill vectors, if the result is a plain matrix and the sums are not cut into parts. */
static int64_t straight_columns(const run *r, const block *b) {
    const int64_t strip = loops_of(r->g)->strip, rest = b->columns % strip;
    const bool is_matrix = r->y->columns == r->g->m;
    if (!is_matrix || r->g->parts > 1 || r->g->k == 0) return 0;
    return rest * 2 == strip ? b->columns : b->columns - rest;
}

/* Where the sums of the columns from `done` on go, and what is added to them. All strips use the
 * same scratch if no partial sums are kept, so that they stay in the L1 cache. */
static void choose_target(const run *r, const block *b, int64_t done, int64_t from, int64_t end,
                          char *sums, mg_gemm_product *p) {
    const mg_gemm_result *y = r->y;
    const int64_t size = size_of(r->g), strip = loops_of(r->g)->strip, column = b->column + done;
    const bool keeps_sums = r->g->parts > 1 || b->end - b->from > r->g->depth;
    char *at = sums + (keeps_sums ? done * b->rows * size : 0);
    p->sums = from > b->from ? at : NULL;
    p->columns = b->columns - done;
    if (end < b->end || done >= straight_columns(r, b)) {
        p->c = at;
        p->rc = strip;
        p->stored = MG_F32;
        p->bias = NULL;
        p->relu = false;
        return;
    }
    p->c = (char *)y->at + (b->row * y->pixel + column) * (int64_t)mg_dtype_size(y->dtype);
    p->rc = y->pixel;
    p->stored = y->dtype;
    p->bias = bias_at(r, column);
    p->relu = y->relu;
}

/* Prefetches a part of the block's terms [from, end) of b, which are packed next: as much of them
 * as the strip at `done` is of the block. */
static void prefetch_terms(const run *r, const block *b, int64_t from, int64_t end, int64_t done) {
    const mg_factor *f = r->b;
    if (r->g->packed || f->read != mg_read_matrix) return;
    const int64_t size = (int64_t)mg_dtype_size(f->dtype);
    const int64_t next = mg_smaller(done + loops_of(r->g)->strip, b->columns);
    int64_t row = b->column + done, stop = b->column + next, column = from, width = end - from;
    if (f->by_steps) {
        row = from + (end - from) * done / b->columns;
        stop = from + (end - from) * next / b->columns;
        column = b->column;
        width = b->columns;
    }
    for (; row < stop; row++) {
        const char *at = (const char *)f->at + (row * f->row + column) * size;
        for (int64_t i = 0; i < width * size; i += MG_LINE) __builtin_prefetch(at + i, 0, 2);
    }
}

/* Has the loops prefetch the panel of a given b that the block reads after the one at `done`. */
static void prefetch_panel(const run *r, const block *b, int64_t from, int64_t end, int64_t done,
                           mg_gemm_product *p) {
    const mg_gemm *g = r->g;
    const int64_t strip = loops_of(g)->strip;
    if (!g->given) return;
    done += strip;
    if (done >= b->columns) {
        done = 0;
        from = end;
        end = mg_smaller(end + g->depth, b->end);
    }
    const bool last = from == end;
    p->next_bytes = (end - from) * strip * size_of(g);
    p->next = last ? NULL : packed_at(r) + ((b->column + done) * g->k + from * strip) * size_of(g);
}

/* Adds the terms [from, end) to a block's sums, and writes those that are complete, unless they are
 * a part's. Strips that are not packed yet are packed a few at a time. */
static void add_terms(const run *r, const block *b, int64_t from, int64_t end, char *own,
                      char *sums) {
    const mg_gemm *g = r->g;
    const mg_simd_gemm *loops = loops_of(g);
    const int64_t size = size_of(g), strip = loops->strip;
    const bool writes = end == b->end && g->parts == 1;
    char *lanes = own + left_bytes(g), *packed = lanes + strip_bytes(g);
    mg_gemm_product p = read_left(r, b, from, end, own);
    for (int64_t done = 0; done < b->columns; done += strip) {
        const int64_t left = b->columns - done, column = b->column + done;
        const int64_t number = done / strip % GROUP, apart = (end - from) * strip * size;
        if (!g->packed && number == 0)
            pack_strips(r, column, mg_smaller(GROUP * strip, left), from, end, lanes, packed,
                        apart);
        p.b = g->packed ? packed_at(r) + (column * g->k + from * strip) * size
                        : packed + number * apart;
        choose_target(r, b, done, from, end, sums, &p);
        prefetch_panel(r, b, from, end, done, &p);
        prefetch_terms(r, b, end, mg_smaller(end + g->depth, b->end), done);
        loops->multiply(&p, b->rows);
        if (writes && done >= straight_columns(r, b)) write_strip(r, b, done, p.c);
    }
}

/* Computes the sums of a block. They are written to the result, or kept as {strips, rows, strip} if
 * they are a part's. */
static void multiply_block(const run *r, const block *b, char *own, char *sums) {
    if (b->from == b->end) { /* sums of no terms */
        memset(sums, 0, block_bytes(r->g));
        write_block(r, b, sums);
    }
    for (int64_t from = b->from, end; from < b->end; from = end) {
        end = mg_smaller(from + r->g->depth, b->end);
        add_terms(r, b, from, end, own, sums);
    }
}

/* ---- running ---- */

/* Packs all of b. */
static void pack_all(const run *r, char *own, char *to) {
    const mg_gemm *g = r->g;
    const int64_t strip = loops_of(g)->strip, size = size_of(g), group = GROUP * strip;
#pragma omp for collapse(2) schedule(static)
    for (int64_t column = 0; column < g->n; column += group)
        for (int64_t from = 0; from < g->k; from += DEPTH)
            pack_strips(r, column, mg_smaller(group, g->n - column), from,
                        mg_smaller(from + DEPTH, g->k), own,
                        to + (column * g->k + from * strip) * size, g->k * strip * size);
}

size_t mg_gemm_packing_scratch(const mg_gemm *g) {
    return (size_t)g->team * strip_bytes(g);
}

void mg_gemm_pack(const mg_gemm *g, const mg_factor *b, void *packed, void *scratch) {
    const run r = {.g = g, .b = b};
    if (g->m == 0 || g->n == 0) return;
#pragma omp parallel num_threads(g->team)
    {
        const size_t own = (size_t)omp_get_thread_num() * strip_bytes(g);
        pack_all(&r, (char *)scratch + own, packed);
    }
}

/* Before the blocks: converts a bias in float16 or bfloat16 to float, and packs b if all of it is
 * packed. */
static void prepare_operands(const run *r) {
    const mg_gemm *g = r->g;
    char *own = r->scratch + g->threads_at + (size_t)omp_get_thread_num() * g->thread;
    if (r->y->bias && mg_dtype_is_half(r->y->dtype)) {
#pragma omp single nowait
        mg_simd_used->conversions->load_f32((float *)(void *)r->scratch, r->y->bias, r->y->dtype,
                                            (int)g->n);
    }
    if (g->packed && !g->given) pack_all(r, own + left_bytes(g), packed_at(r));
    if (!g->packed) {
#pragma omp barrier
    }
}

/* The sums of part `part` of block i, where sums are cut into parts. */
static char *part_at(const run *r, int64_t i, int64_t part) {
    const size_t number = (size_t)(part * blocks_of(r->g) + i);
    return r->scratch + r->g->parts_at + number * block_bytes(r->g);
}

static void run_by_parts(const run *r, char *own) {
    const mg_gemm *g = r->g;
    const int64_t blocks = blocks_of(g);
#pragma omp for schedule(dynamic)
    for (int64_t i = 0; i < blocks * g->parts; i++) {
        const block b = block_at(g, i % blocks, i / blocks);
        multiply_block(r, &b, own, part_at(r, i % blocks, i / blocks));
    }
#pragma omp for schedule(static)
    for (int64_t i = 0; i < blocks; i++) {
        const block b = block_at(g, i, 0);
        const int64_t strip = loops_of(g)->strip;
        const int64_t n = b.rows * mg_divide_up(b.columns, strip) * strip;
        for (int64_t part = 1; part < g->parts; part++)
            loops_of(g)->add(part_at(r, i, 0), part_at(r, i, part), n);
        write_block(r, &b, part_at(r, i, 0));
    }
}

static void run_by_blocks(const run *r, char *own) {
    char *sums = own + left_bytes(r->g) + (1 + GROUP) * strip_bytes(r->g);
#pragma omp for schedule(dynamic)
    for (int64_t i = 0; i < blocks_of(r->g); i++) {
        const block b = block_at(r->g, i, 0);
        multiply_block(r, &b, own, sums);
    }
}

void mg_gemm_run(const mg_gemm *g, const mg_factor *a, const mg_factor *b, const mg_gemm_result *y,
                 void *scratch) {
    const run r = {g, a, b, y, scratch};
    if (g->m == 0 || g->n == 0) return;
#pragma omp parallel num_threads(g->team)
    {
        char *own = r.scratch + g->threads_at + (size_t)omp_get_thread_num() * g->thread;
        prepare_operands(&r);
        if (g->parts > 1)
            run_by_parts(&r, own);
        else
            run_by_blocks(&r, own);
    }
}

/* Each row is given to `write` as the sums of one row whose strips follow each other, so it can be
 * written onto itself. */
void mg_finish_rows(float *y, int64_t rows, int64_t n, const float *bias, bool relu) {
    if (!bias && !relu) return;
#pragma omp parallel for num_threads(mg_cpu_team(rows *n)) schedule(static)
    for (int64_t i = 0; i < rows; i++) {
        const mg_gemm_sums row = {.at = y + i * n,
                                  .apart = mg_float_strip(),
                                  .rows = 1,
                                  .columns = n,
                                  .bias = bias,
                                  .relu = relu,
                                  .dtype = MG_F32};
        mg_simd_used->gemm[0]->write(&row, y + i * n, n);
    }
}
