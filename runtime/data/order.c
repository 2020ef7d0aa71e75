/* Stages of an order: each draws from the one before by next, or leaves elements out by leap.
 *
 * A shuffle keeps a window of elements, gives out one of them by chance and takes the next in its
 * place, as tf.data's does. The chances are Philox words: key = seed, ordinal = the shuffle's own
 * pass, index = the element, so every machine shuffles alike. Each round of a cycle is a pass of
 * the stages before it, with a number of its own: they shuffle anew. */
#include "data/order.h"
#include "core/alloc.h"
#include "core/rng.h"
#include <assert.h>
#include <string.h>

enum { STEPS_BETWEEN_LOOKS = 4096 };
enum { STREAM = 0x6f726400 }; /* of random numbers, apart from other users of a seed */

typedef struct stage {
    mg_stage spec;
    int64_t length; /* elements in a pass */
    int rank;       /* batches so far */
    uint64_t pass;
    int64_t at; /* elements given out in this pass */
    /* of a cycle */
    uint64_t round;
    int64_t round_at;
    /* of a shuffle: `held` entries of `stride` numbers, the element's sizes and then its rows */
    int64_t *window; /* owned */
    int64_t held, room, stride;
    mg_rows element; /* on its way into the window */
} stage;

struct mg_order {
    int n;
    bool (*stop)(void *context);
    void *context;
    uint32_t steps; /* since it was asked first */
    stage stages[]; /* the first one counts rows */
};

/* ---- lengths ---- */

static int64_t saturating_product(int64_t a, int64_t b) {
    int64_t product;
    return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

static int64_t length_after(const mg_stage *s, int64_t before) {
    switch (s->kind) {
    case MG_SHUFFLE: return before;
    case MG_BATCH:
        if (before == MG_ENDLESS) return before;
        return before / s->n + (before % s->n > 0 && !s->drop_remainder);
    case MG_CYCLE: return saturating_product(before, s->n); /* too many to count is endless */
    case MG_TAKE: return before < s->n ? before : s->n;
    case MG_SKIP:
        if (before == MG_ENDLESS) return before;
        return before < s->n ? 0 : before - s->n;
    }
    return 0;
}

/* Row numbers in the largest element before stage i. */
static int64_t most_rows(const mg_order *o, int i) {
    int64_t most = 1;
    for (int k = 1; k < i; k++) {
        if (o->stages[k].spec.kind != MG_BATCH) continue;
        const int64_t n = o->stages[k].spec.n, before = o->stages[k - 1].length;
        most = saturating_product(most, n < before ? n : before);
    }
    return most;
}

/* ---- blocks of numbers ---- */

/* Room for `wanted` entries of `stride` numbers; it doubles. */
static mg_status grow(int64_t **block, int64_t *room, int64_t wanted, int64_t stride) {
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

static mg_status append(mg_rows *rows, const int64_t *row, int64_t n) {
    MG_TRY(grow(&rows->row, &rows->capacity, rows->n + n, 1));
    memcpy(rows->row + rows->n, row, (size_t)n * sizeof *row);
    rows->n += n;
    return MG_OK;
}

/* ---- passes ---- */

/* A pass number for the stages before the cycle, such that no other round has it. */
static uint64_t pass_of_round(const stage *s) {
    return s->spec.n == MG_ENDLESS ? (s->pass << 32) + s->round
                                   : s->pass * (uint64_t)s->spec.n + s->round;
}

/* Whether to go on. */
static mg_status look(mg_order *o) {
    if (o->steps++ % STEPS_BETWEEN_LOOKS || !o->stop || !o->stop(o->context)) return MG_OK;
    return mg_fail(MG_INTERRUPTED, "interrupted");
}

/* Puts stage i and those before it at the beginning of the pass. */
static void start(mg_order *o, int i, uint64_t pass) {
    for (; i >= 0; i--) {
        stage *s = &o->stages[i];
        s->pass = pass;
        s->round = 0;
        s->at = s->round_at = s->held = 0;
        if (i > 0 && s->spec.kind == MG_CYCLE) pass = pass_of_round(s);
    }
}

/* Makes sure that the cycle's round has an element left. */
static void turn(mg_order *o, int i) {
    stage *s = &o->stages[i];
    if (s->round_at < o->stages[i - 1].length) return;
    s->round++;
    s->round_at = 0;
    start(o, i - 1, pass_of_round(s));
}

/* ---- next: appends stage i's next element to rows and sets its sizes; there must be one ---- */

static mg_status next(mg_order *o, int i, mg_rows *rows);
static mg_status leap(mg_order *o, int i, int64_t n);

static mg_status differing_sizes(const int64_t *a, const int64_t *b, int rank) {
    mg_shape one = {.rank = rank}, two = one;
    for (int k = 0; k < rank; k++) one.dim[k] = a[rank - 1 - k], two.dim[k] = b[rank - 1 - k];
    return mg_fail(
        MG_USAGE,
        "batch: batches of sizes %s and %s cannot be batched again: give the batch before "
        "{drop_remainder = true}",
        MG_SHAPE_TEXT(&one), MG_SHAPE_TEXT(&two));
}

static mg_status next_batch(mg_order *o, int i, mg_rows *rows) {
    const stage *s = &o->stages[i], *before = s - 1;
    const int64_t left = before->length - before->at, count = s->spec.n < left ? s->spec.n : left;
    int64_t first[MG_MAX_RANK];
    for (int64_t k = 0; k < count; k++) {
        MG_TRY(next(o, i - 1, rows));
        const size_t bytes = (size_t)rows->rank * sizeof first[0];
        if (k == 0) memcpy(first, rows->dim, bytes);
        if (memcmp(first, rows->dim, bytes) != 0)
            return differing_sizes(first, rows->dim, rows->rank);
    }
    rows->dim[rows->rank++] = count;
    return MG_OK;
}

/* Which of the window's entries comes next: a function of seed, pass and position. */
static int64_t chance(const stage *s) {
    const uint64_t seed = s->spec.seed, at = (uint64_t)s->at;
    uint32_t words[4];
    mg_philox(words, at / 2, s->pass, (uint32_t)seed, STREAM + (uint32_t)(seed >> 32));
    const uint32_t *w = words + 2 * (at % 2);
    return (int64_t)(((unsigned __int128)((uint64_t)w[0] << 32 | w[1]) * (uint64_t)s->held) >> 64);
}

/* Fills the window and chooses the entry that comes next. */
static mg_status draw(mg_order *o, int i, int64_t **entry) {
    stage *s = &o->stages[i];
    const stage *before = s - 1;
    mg_rows *e = &s->element;
    while (s->held < s->spec.n && before->at < before->length) {
        MG_TRY(grow(&s->window, &s->room, s->held + 1, s->stride));
        e->n = 0;
        MG_TRY(next(o, i - 1, e));
        int64_t *place = s->window + s->held * s->stride;
        memcpy(place, e->dim, (size_t)s->rank * sizeof *place);
        memcpy(place + s->rank, e->row, (size_t)e->n * sizeof *place);
        s->held++;
    }
    *entry = s->window + chance(s) * s->stride;
    return MG_OK;
}

/* The window's last entry takes its place. */
static void remove_entry(stage *s, int64_t *entry) {
    const int64_t *last = s->window + --s->held * s->stride;
    if (entry != last) memcpy(entry, last, (size_t)s->stride * sizeof *entry);
}

static mg_status next_shuffled(mg_order *o, int i, mg_rows *rows) {
    stage *s = &o->stages[i];
    int64_t *entry, n = 1;
    MG_TRY(draw(o, i, &entry));
    for (int k = 0; k < s->rank; k++) n *= rows->dim[k] = entry[k];
    rows->rank = s->rank;
    MG_TRY(append(rows, entry + s->rank, n));
    remove_entry(s, entry);
    return MG_OK;
}

static mg_status next_of_kind(mg_order *o, int i, mg_rows *rows) {
    stage *s = &o->stages[i];
    switch (s->spec.kind) {
    case MG_SHUFFLE: return next_shuffled(o, i, rows);
    case MG_BATCH: return next_batch(o, i, rows);
    case MG_CYCLE: turn(o, i), s->round_at++; break;
    case MG_SKIP:
        if (s->at == 0) MG_TRY(leap(o, i - 1, s->spec.n));
        break;
    case MG_TAKE: break;
    }
    return next(o, i - 1, rows);
}

static mg_status next(mg_order *o, int i, mg_rows *rows) {
    stage *s = &o->stages[i];
    assert(s->at < s->length);
    MG_TRY(look(o));
    if (i == 0) rows->rank = 0;
    MG_TRY(i == 0 ? append(rows, &s->at, 1) : next_of_kind(o, i, rows));
    s->at++;
    return MG_OK;
}

/* ---- leap: leaves out stage i's next n elements, or all that are left ---- */

static mg_status leap_cycle(mg_order *o, int i, int64_t n) {
    stage *s = &o->stages[i];
    const int64_t round = o->stages[i - 1].length, left = round - s->round_at;
    if (n > left) {
        s->round += 1 + (uint64_t)((n - left) / round);
        s->round_at = 0;
        start(o, i - 1, pass_of_round(s));
        n = (n - left) % round;
    }
    s->round_at += n;
    return leap(o, i - 1, n);
}

static mg_status leap_shuffle(mg_order *o, int i, int64_t n) {
    stage *s = &o->stages[i];
    for (int64_t *entry; n > 0; n--) {
        MG_TRY(draw(o, i, &entry));
        remove_entry(s, entry);
        s->at++;
    }
    return MG_OK;
}

static mg_status leap(mg_order *o, int i, int64_t n) {
    stage *s = &o->stages[i];
    if (n > s->length - s->at) n = s->length - s->at;
    if (n == 0) return MG_OK;
    if (i > 0) {
        switch (s->spec.kind) {
        case MG_SHUFFLE: return leap_shuffle(o, i, n);
        case MG_BATCH: MG_TRY(leap(o, i - 1, saturating_product(n, s->spec.n))); break;
        case MG_CYCLE: MG_TRY(leap_cycle(o, i, n)); break;
        case MG_SKIP:
            if (s->at == 0) MG_TRY(leap(o, i - 1, s->spec.n));
            MG_TRY(leap(o, i - 1, n));
            break;
        case MG_TAKE: MG_TRY(leap(o, i - 1, n)); break;
        }
    }
    s->at += n;
    return MG_OK;
}

/* ---- orders ---- */

mg_order *mg_order_new(int64_t n_rows, const mg_stage *stages, int n_stages) {
    mg_order *o = mg_alloc_zero(sizeof *o + ((size_t)n_stages + 1) * sizeof o->stages[0]);
    if (!o) return NULL;
    o->n = n_stages + 1;
    o->stages[0].length = n_rows;
    for (int i = 1; i < o->n; i++) {
        stage *s = &o->stages[i];
        s->spec = stages[i - 1];
        assert(s->spec.n >= (s->spec.kind == MG_SHUFFLE || s->spec.kind == MG_BATCH));
        s->length = length_after(&s->spec, s[-1].length);
        s->rank = s[-1].rank + (s->spec.kind == MG_BATCH);
        const int64_t most = most_rows(o, i);
        s->stride = most < INT64_MAX - s->rank ? most + s->rank : INT64_MAX;
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
        mg_free(o->stages[i].element.row);
    }
    mg_free(o);
}

int64_t mg_order_length(const mg_order *o) {
    return o->stages[o->n - 1].length;
}

mg_status mg_order_seek(mg_order *o, uint64_t pass, int64_t element) {
    o->steps = 0;
    start(o, o->n - 1, pass);
    return leap(o, o->n - 1, element);
}

mg_status mg_order_next(mg_order *o, mg_rows *rows, bool *got) {
    const stage *last = &o->stages[o->n - 1];
    rows->n = 0;
    *got = last->at < last->length;
    return *got ? next(o, o->n - 1, rows) : MG_OK;
}
