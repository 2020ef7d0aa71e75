/* How an order produces its elements: each stage has two operations, `next` (append one element)
 * and `leap` (skip n elements), and both call the stage before.
 *
 * A shuffle keeps a window of elements, gives one of them out at random and fills its place with
 * the next, as tf.data's shuffle does. Its random numbers are Philox words with key = seed, ordinal
 * = the stage's pass and index = the element's position, so every machine shuffles in the same way.
 * Each round of a cycle is a pass of the stages before it with its own number, so they shuffle
 * differently in each round.
 *
 * Seeking is a leap from the beginning of the pass. It costs nothing for batch, cycle and take, but
 * a shuffle has to replay its draws. */
#include "data/order.h"
#include "core/alloc.h"
#include "core/rng.h"
#include <assert.h>
#include <string.h>

enum { STEPS_BETWEEN_CHECKS = 4096 };
enum { STREAM = 0x6f726400 }; /* of random words: separates them from other uses of the seed */

/* A stage and its state in the current pass. */
typedef struct order_stage {
    mg_stage spec;
    int64_t length; /* elements in a pass */
    int rank;       /* of its elements: the batches and windows up to this one */
    uint64_t pass;
    int64_t at; /* elements given out in this pass */
    /* cycle: the current round, and the elements given out in it */
    uint64_t round;
    int64_t round_at;
    /* shuffle and window: `held` entries of `stride` numbers each (an element's sizes, then its row
       numbers), with room for `room` */
    int64_t *window; /* owned */
    int64_t held, room, stride;
    mg_rows element; /* the element being put into the window */
    int64_t base;    /* window: the number of the first entry's element */
} order_stage;

struct mg_order {
    int n;
    bool (*stop)(void *context);
    void *context;
    uint64_t epoch;       /* the pass of stage 0 that the last seek began with */
    uint32_t steps;       /* since the last seek, for check_stop */
    order_stage stages[]; /* stage 0 gives the row numbers 0, 1, 2, ...; the caller's follow */
};

/* ---- lengths ---- */

static int64_t saturating_product(int64_t a, int64_t b) {
    int64_t product;
    return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

/* The number of elements of the stage before that a whole window spans. */
static int64_t span_of(const mg_stage *s) {
    const int64_t steps = saturating_product(s->n - 1, s->stride);
    return steps < INT64_MAX ? steps + 1 : steps;
}

/* The length of a pass after stage s, given the length before it. */
static int64_t length_after(const mg_stage *s, int64_t before) {
    switch (s->kind) {
    case MG_SHUFFLE: return before;
    case MG_BATCH:
        if (before == MG_ENDLESS) return before;
        return before / s->n + (before % s->n > 0 && !s->drop_remainder);
    case MG_CYCLE:
        return saturating_product(before, s->n); /* a product that overflows counts as endless */
    case MG_TAKE: return before < s->n ? before : s->n;
    case MG_SKIP:
        if (before == MG_ENDLESS) return before;
        return before < s->n ? 0 : before - s->n;
    case MG_SHARD:
        if (before == MG_ENDLESS) return before;
        return before <= s->index ? 0 : (before - s->index - 1) / s->n + 1;
    case MG_WINDOW:
        if (before == MG_ENDLESS) return before;
        if (!s->drop_remainder) return before / s->shift + (before % s->shift > 0);
        return before < span_of(s) ? 0 : (before - span_of(s)) / s->shift + 1;
    }
    return 0;
}

/* The maximum number of row numbers of an element before stage i. */
static int64_t most_rows(const mg_order *o, int i) {
    int64_t most = 1;
    for (int k = 1; k < i; k++) {
        if (!mg_stage_is_batch(&o->stages[k].spec)) continue;
        const int64_t n = o->stages[k].spec.n, before = o->stages[k - 1].length;
        most = saturating_product(most, n < before ? n : before);
    }
    return most;
}

/* ---- growing blocks ---- */

/* Makes room for `wanted` entries of `stride` numbers each, at least doubling it. MG_OOM. */
static mg_status grow_rows(int64_t **block, int64_t *room, int64_t wanted, int64_t stride) {
    if (wanted <= *room) return MG_OK;
    const int64_t entries = wanted < 2 * *room ? 2 * *room : wanted;
    size_t bytes;
    if (!mg_size_mul((size_t)entries, (size_t)stride, &bytes) ||
        !mg_size_mul(bytes, sizeof **block, &bytes))
        return mg_fail(MG_OOM, "out of memory: %lld elements of %lld rows each", (long long)entries,
                       (long long)stride);
    int64_t *larger = mg_realloc(*block, bytes);
    if (!larger) return MG_OOM;
    *block = larger;
    *room = entries;
    return MG_OK;
}

/* Appends n row numbers. */
static mg_status append_rows(mg_rows *rows, const int64_t *number, int64_t n) {
    MG_TRY(grow_rows(&rows->number, &rows->capacity, rows->n + n, 1));
    memcpy(rows->number + rows->n, number, (size_t)n * sizeof *number);
    rows->n += n;
    return MG_OK;
}

/* ---- passes ---- */

/* The pass number of the stages before cycle s in its current round: no two rounds share one. */
static uint64_t pass_of_round(const order_stage *s) {
    return s->spec.n == MG_ENDLESS ? (s->pass << 32) + s->round
                                   : s->pass * (uint64_t)s->spec.n + s->round;
}

/* MG_INTERRUPTED if the `stop` of mg_order_set_stop returns true; it is called every few thousand
 * elements. */
static mg_status check_stop(mg_order *o) {
    if (o->steps++ % STEPS_BETWEEN_CHECKS || !o->stop || !o->stop(o->context)) return MG_OK;
    return mg_fail(MG_INTERRUPTED, "interrupted");
}

/* Puts stage i and all before it at the beginning of a pass. */
static void start_pass(mg_order *o, int i, uint64_t pass) {
    for (; i >= 0; i--) {
        order_stage *s = &o->stages[i];
        s->pass = pass;
        s->round = 0;
        s->at = s->round_at = s->held = s->base = 0;
        if (i > 0 && s->spec.kind == MG_CYCLE) pass = pass_of_round(s);
    }
}

/* Begins the cycle's next round if its current one has no element left. */
static void begin_round(mg_order *o, int i) {
    order_stage *s = &o->stages[i];
    if (s->round_at < o->stages[i - 1].length) return;
    s->round++;
    s->round_at = 0;
    start_pass(o, i - 1, pass_of_round(s));
}

/* ---- stage_next: appends stage i's next element to rows and sets its sizes ----
 *
 * The caller makes sure that there is one (at < length). */

static mg_status stage_next(mg_order *o, int i, mg_rows *rows);
static mg_status stage_leap(mg_order *o, int i, int64_t n);

/* The error for elements of sizes a and b in one batch. MG_SHAPE_TEXT prints the outermost size
 * first. */
static mg_status differing_sizes(const int64_t *a, const int64_t *b, int rank) {
    mg_shape one = {.rank = rank}, two = one;
    for (int k = 0; k < rank; k++) one.dim[k] = a[rank - 1 - k], two.dim[k] = b[rank - 1 - k];
    return mg_fail(
        MG_USAGE,
        "batch: batches of sizes %s and %s cannot be batched again: give the batch before "
        "{drop_remainder = true}",
        MG_SHAPE_TEXT(&one), MG_SHAPE_TEXT(&two));
}

/* Makes one element of the next spec.n elements of the stage before, or of the remaining ones: one
 * dimension more. */
static mg_status next_batch(mg_order *o, int i, mg_rows *rows) {
    const order_stage *s = &o->stages[i], *before = s - 1;
    const int64_t left = before->length - before->at, count = s->spec.n < left ? s->spec.n : left;
    int64_t first[MG_MAX_RANK];
    for (int64_t k = 0; k < count; k++) {
        MG_TRY(stage_next(o, i - 1, rows));
        const size_t bytes = (size_t)rows->rank * sizeof first[0];
        if (k == 0) memcpy(first, rows->dim, bytes);
        if (memcmp(first, rows->dim, bytes) != 0)
            return differing_sizes(first, rows->dim, rows->rank);
    }
    rows->dim[rows->rank++] = count;
    return MG_OK;
}

/* A 64-bit random number, scaled to the number of held entries. One Philox block serves two
 * positions. */
int64_t mg_order_draw(uint64_t seed, uint64_t pass, uint64_t at, int64_t held) {
    uint32_t words[4];
    mg_philox(words, at / 2, pass, (uint32_t)seed, STREAM + (uint32_t)(seed >> 32));
    const uint32_t *w = words + 2 * (at % 2);
    return (int64_t)(((unsigned __int128)((uint64_t)w[0] << 32 | w[1]) * (uint64_t)held) >> 64);
}

/* Appends the next element of the stage before to the window. */
static mg_status hold_next(mg_order *o, int i) {
    order_stage *s = &o->stages[i];
    const int rank = s[-1].rank;
    mg_rows *e = &s->element;
    MG_TRY(grow_rows(&s->window, &s->room, s->held + 1, s->stride));
    e->n = 0;
    MG_TRY(stage_next(o, i - 1, e));
    int64_t *place = s->window + s->held * s->stride;
    memcpy(place, e->dim, (size_t)rank * sizeof *place);
    memcpy(place + rank, e->number, (size_t)e->n * sizeof *place);
    s->held++;
    return MG_OK;
}

/* Appends an entry of the window to rows. */
static mg_status append_entry(const order_stage *s, const int64_t *entry, mg_rows *rows) {
    int64_t n = 1;
    rows->rank = s[-1].rank;
    for (int k = 0; k < rows->rank; k++) n *= rows->dim[k] = entry[k];
    return append_rows(rows, entry + rows->rank, n);
}

/* Fills the window from the stage before and sets *entry to the next entry to give out. */
static mg_status draw_entry(mg_order *o, int i, int64_t **entry) {
    order_stage *s = &o->stages[i];
    const order_stage *before = s - 1;
    while (s->held < s->spec.n && before->at < before->length) MG_TRY(hold_next(o, i));
    *entry = s->window + mg_order_draw(s->spec.seed, s->pass, (uint64_t)s->at, s->held) * s->stride;
    return MG_OK;
}

/* The last entry takes the place of the one given out. */
static void remove_entry(order_stage *s, int64_t *entry) {
    const int64_t *last = s->window + --s->held * s->stride;
    if (entry != last) memcpy(entry, last, (size_t)s->stride * sizeof *entry);
}

static mg_status next_shuffled(mg_order *o, int i, mg_rows *rows) {
    order_stage *s = &o->stages[i];
    int64_t *entry;
    MG_TRY(draw_entry(o, i, &entry));
    MG_TRY(append_entry(s, entry, rows));
    remove_entry(s, entry);
    return MG_OK;
}

/* Drops the entries before element number `first`, and skips those that are not held yet. */
static mg_status advance_window(mg_order *o, int i, int64_t first) {
    order_stage *s = &o->stages[i];
    const int64_t gone = first - s->base, kept = s->held - gone;
    if (kept < 0) MG_TRY(stage_leap(o, i - 1, -kept));
    s->held = kept > 0 ? kept : 0;
    if (gone > 0 && kept > 0)
        memmove(s->window, s->window + gone * s->stride,
                (size_t)(kept * s->stride) * sizeof *s->window);
    s->base = first;
    return MG_OK;
}

/* Makes one element of the window that begins at element at * shift, or of the rest of it: one
 * dimension more. */
static mg_status next_window(mg_order *o, int i, mg_rows *rows) {
    order_stage *s = &o->stages[i];
    const int64_t first = saturating_product(s->at, s->spec.shift), stride = s->spec.stride;
    const int64_t left = (s[-1].length - first - 1) / stride + 1;
    const int64_t count = s->spec.n < left ? s->spec.n : left;
    MG_TRY(advance_window(o, i, first));
    while (s->held <= (count - 1) * stride) MG_TRY(hold_next(o, i));
    const size_t bytes = (size_t)s[-1].rank * sizeof *s->window;
    for (int64_t k = 0; k < count; k++) {
        const int64_t *entry = s->window + k * stride * s->stride;
        if (memcmp(s->window, entry, bytes) != 0)
            return differing_sizes(s->window, entry, s[-1].rank);
        MG_TRY(append_entry(s, entry, rows));
    }
    rows->dim[rows->rank++] = count;
    return MG_OK;
}

/* The number of elements of the stage before that a shard has consumed after giving out n. */
static int64_t used_by_shard(const mg_stage *s, int64_t n) {
    const int64_t more = n ? saturating_product(n - 1, s->n) : 0;
    return n == 0 ? 0 : more > INT64_MAX - s->index - 1 ? INT64_MAX : more + s->index + 1;
}

/* Cycle, skip, take and shard pass on an element of the stage before. A skip leaps first, once a
 * pass; a shard each time. */
static mg_status next_of_kind(mg_order *o, int i, mg_rows *rows) {
    order_stage *s = &o->stages[i];
    switch (s->spec.kind) {
    case MG_SHUFFLE: return next_shuffled(o, i, rows);
    case MG_BATCH: return next_batch(o, i, rows);
    case MG_CYCLE: begin_round(o, i), s->round_at++; break;
    case MG_SKIP:
        if (s->at == 0) MG_TRY(stage_leap(o, i - 1, s->spec.n));
        break;
    case MG_TAKE: break;
    case MG_SHARD: MG_TRY(stage_leap(o, i - 1, s->at == 0 ? s->spec.index : s->spec.n - 1)); break;
    case MG_WINDOW: return next_window(o, i, rows);
    }
    return stage_next(o, i - 1, rows);
}

/* Stage 0. (After 2^63 rows, numbers and epochs start again from 0.) */
static mg_status next_row(const mg_order *o, mg_rows *rows) {
    const order_stage *s = &o->stages[0];
    const uint64_t passes = s->pass - o->epoch;
    int64_t number = s->at;
    if (passes) number += (int64_t)(passes % (uint64_t)(INT64_MAX / s->length)) * s->length;
    rows->rank = 0;
    return append_rows(rows, &number, 1);
}

static mg_status stage_next(mg_order *o, int i, mg_rows *rows) {
    order_stage *s = &o->stages[i];
    assert(s->at < s->length);
    MG_TRY(check_stop(o));
    MG_TRY(i == 0 ? next_row(o, rows) : next_of_kind(o, i, rows));
    s->at++;
    return MG_OK;
}

/* ---- stage_leap: skips stage i's next n elements, or all that are left ---- */

/* Whole rounds are skipped by arithmetic; the stages before leap within the round that remains. */
static mg_status leap_cycle(mg_order *o, int i, int64_t n) {
    order_stage *s = &o->stages[i];
    const int64_t round = o->stages[i - 1].length, left = round - s->round_at;
    if (n > left) {
        s->round += 1 + (uint64_t)((n - left) / round);
        s->round_at = 0;
        start_pass(o, i - 1, pass_of_round(s));
        n = (n - left) % round;
    }
    s->round_at += n;
    return stage_leap(o, i - 1, n);
}

/* Every draw depends on the window, so none can be skipped. */
static mg_status leap_shuffle(mg_order *o, int i, int64_t n) {
    order_stage *s = &o->stages[i];
    for (int64_t *entry; n > 0; n--) {
        MG_TRY(draw_entry(o, i, &entry));
        remove_entry(s, entry);
        s->at++;
    }
    return MG_OK;
}

static mg_status stage_leap(mg_order *o, int i, int64_t n) {
    order_stage *s = &o->stages[i];
    if (n > s->length - s->at) n = s->length - s->at;
    if (n == 0) return MG_OK;
    if (i > 0) {
        switch (s->spec.kind) {
        case MG_SHUFFLE: return leap_shuffle(o, i, n);
        case MG_BATCH: MG_TRY(stage_leap(o, i - 1, saturating_product(n, s->spec.n))); break;
        case MG_CYCLE: MG_TRY(leap_cycle(o, i, n)); break;
        case MG_SKIP:
            if (s->at == 0) MG_TRY(stage_leap(o, i - 1, s->spec.n));
            MG_TRY(stage_leap(o, i - 1, n));
            break;
        case MG_TAKE: MG_TRY(stage_leap(o, i - 1, n)); break;
        case MG_SHARD:
            MG_TRY(stage_leap(o, i - 1,
                              used_by_shard(&s->spec, s->at + n) - used_by_shard(&s->spec, s->at)));
            break;
        case MG_WINDOW: break; /* next_window leaps */
        }
    }
    s->at += n;
    return MG_OK;
}

/* ---- orders ---- */

/* Nothing is drawn yet: the windows of shuffles are allocated as they fill. */
mg_order *mg_order_new(int64_t n_rows, const mg_stage *stages, int n_stages) {
    mg_order *o = mg_alloc_zero(sizeof *o + ((size_t)n_stages + 1) * sizeof o->stages[0]);
    if (!o) return NULL;
    o->n = n_stages + 1;
    o->stages[0].length = n_rows;
    for (int i = 1; i < o->n; i++) {
        order_stage *s = &o->stages[i];
        s->spec = stages[i - 1];
        assert(s->spec.n >= 0);
        s->length = length_after(&s->spec, s[-1].length);
        s->rank = s[-1].rank + mg_stage_is_batch(&s->spec);
        /* a window entry holds the sizes and the rows; INT64_MAX makes grow_rows fail with MG_OOM
         */
        const int64_t most = most_rows(o, i);
        s->stride = most < INT64_MAX - MG_MAX_RANK ? most + s[-1].rank : INT64_MAX;
    }
    if (o->stages[n_stages].rank <= MG_MAX_RANK) return o;
    mg_fail(MG_USAGE, "batch: more than %d batches of batches", MG_MAX_RANK);
    mg_order_free(o);
    return NULL;
}

void mg_order_set_stop(mg_order *o, bool (*stop)(void *context), void *context) {
    o->stop = stop;
    o->context = context;
}

void mg_order_free(mg_order *o) {
    if (!o) return;
    for (int i = 0; i < o->n; i++) {
        mg_free(o->stages[i].window);
        mg_free(o->stages[i].element.number);
    }
    mg_free(o);
}

int64_t mg_order_length(const mg_order *o) {
    return o->stages[o->n - 1].length;
}

/* Also repairs the state after a failure, because it restarts the pass. */
mg_status mg_order_seek(mg_order *o, uint64_t pass, int64_t element) {
    o->steps = 0;
    start_pass(o, o->n - 1, pass);
    o->epoch = o->stages[0].pass;
    return stage_leap(o, o->n - 1, element);
}

mg_status mg_order_next(mg_order *o, mg_rows *rows, bool *got) {
    const order_stage *last = &o->stages[o->n - 1];
    rows->n = 0;
    rows->n_rows = o->stages[0].length;
    rows->epoch = o->epoch;
    *got = last->at < last->length;
    return *got ? stage_next(o, o->n - 1, rows) : MG_OK;
}
