/* Transformed rows: a list of steps, each of which replaces the cell of one field.
 *
 * A field's cell moves through its steps: the source writes the first one, and the last step writes
 * the one that the caller wants. Intermediate cells are internal: cells of fixed size share one
 * block for the row, and cells that vary are freed as soon as the next step has read them.
 *
 * The source need only make the part of an image that the first step of its field reads. */
#include "data/sources/sources.h"
#include "core/alloc.h"
#include <stdalign.h>

enum { ALIGNMENT = 64, SMALL_SCRATCH = 8192 }; /* scratch up to this many bytes is on the stack */

typedef struct row_step {
    mg_transform *transform; /* retained */
    int field;
    bool first, last; /* of its field */
    mg_field in;      /* the field before the step */
    size_t offset;    /* of its input cell in the scratch; unused if the cell varies */
} row_step;

typedef struct transformed_source {
    mg_source base;
    mg_source *inner; /* retained */
    size_t scratch;   /* bytes for a row */
    int n_asking;     /* first steps of fields that can return the region they read */
    int n;
    row_step step[];
} transformed_source;

/* ---- reading ---- */

/* An empty cell, or one with memory at data, as reads and transforms expect it. */
static mg_cell cell_for(const mg_field *f, char *room) {
    if (mg_field_varies(f)) return (mg_cell){0};
    return (mg_cell){f->shape, room};
}

/* The cells for the inner source: the caller's for fields without steps. */
static void cells_for_inner(const transformed_source *s, mg_cell cell[], char *scratch,
                            mg_cell now[]) {
    for (int k = 0; k < s->base.n_fields; k++) now[k] = cell[k];
    for (int i = s->n - 1; i >= 0; i--) {
        const row_step *t = &s->step[i];
        now[t->field] = cell_for(&t->in, scratch + t->offset);
    }
}

/* For calling the region function of a step for a row. */
typedef struct asking {
    mg_wanted base;
    const row_step *step;
    mg_row_key key;
} asking;

static mg_status region_of_step(const mg_wanted *w, int64_t height, int64_t width, mg_region *r) {
    const asking *a = (const asking *)w;
    const mg_transform *t = a->step->transform;
    return t->api->region(t, a->key, &a->step->in, height, width, r);
}

/* Reads the row: for fields without steps, the caller's wanted regions are passed on. */
static mg_status read_inner(const transformed_source *s, mg_row_key key,
                            const mg_wanted *const wanted[], mg_cell now[]) {
    if (!s->n_asking && !wanted) return mg_source_read(s->inner, key, now);
    asking asks[s->n_asking + 1];
    const mg_wanted *of_inner[s->base.n_fields];
    for (int k = 0; k < s->base.n_fields; k++) of_inner[k] = wanted ? wanted[k] : NULL;
    for (int i = 0, n = 0; i < s->n; i++) {
        const row_step *t = &s->step[i];
        if (t->first) of_inner[t->field] = NULL;
        if (!t->first || !t->transform->api->region) continue;
        asks[n] = (asking){{region_of_step}, t, key};
        of_inner[t->field] = &asks[n++].base;
    }
    return mg_source_read_wanted(s->inner, key, of_inner, now);
}

/* Applies step i: now[field] becomes its result. */
static mg_status apply_step(const transformed_source *s, int i, mg_row_key key, mg_cell cell[],
                            char *scratch, mg_cell now[]) {
    const row_step *t = &s->step[i], *next = t + 1;
    mg_cell out = cell[t->field];
    if (!t->last) {
        while (next->field != t->field) next++;
        out = cell_for(&next->in, scratch + next->offset);
    }
    const mg_status status =
        t->transform->api->apply(t->transform, key, &t->in, &now[t->field], &out);
    if (mg_field_varies(&t->in)) mg_free(now[t->field].data);
    now[t->field] = out;
    return status;
}

/* Whether the cell of field k, before step i, is a block for mg_free. */
static bool is_block(const transformed_source *s, int k, int i) {
    for (; i < s->n; i++)
        if (s->step[i].field == k) return mg_field_varies(&s->step[i].in);
    return mg_field_varies(&s->base.field[k]);
}

static mg_status read_with(const transformed_source *s, mg_row_key key,
                           const mg_wanted *const wanted[], mg_cell cell[], char *scratch) {
    mg_cell now[s->base.n_fields];
    cells_for_inner(s, cell, scratch, now);
    mg_status status = read_inner(s, key, wanted, now);
    int i = 0;
    for (; status == MG_OK && i < s->n; i++) status = apply_step(s, i, key, cell, scratch, now);
    for (int k = 0; k < s->base.n_fields; k++) {
        if (status == MG_OK)
            cell[k] = now[k];
        else if (is_block(s, k, i))
            mg_free(now[k].data);
    }
    return status;
}

static mg_status read_row(mg_source *base, mg_row_key key, const mg_wanted *const wanted[],
                          mg_cell cell[]) {
    const transformed_source *s = (const transformed_source *)base;
    alignas(ALIGNMENT) char small[SMALL_SCRATCH];
    if (s->scratch <= sizeof small) return read_with(s, key, wanted, cell, small);
    char *scratch = mg_alloc(s->scratch);
    if (!scratch) return MG_OOM;
    const mg_status status = read_with(s, key, wanted, cell, scratch);
    mg_free(scratch);
    return status;
}

static mg_status prepare(mg_source *base) {
    return mg_source_prepare(((transformed_source *)base)->inner);
}

static void free_source(mg_source *base) {
    transformed_source *s = (transformed_source *)base;
    for (int i = 0; i < s->n; i++) mg_transform_release(s->step[i].transform);
    mg_source_release(s->inner);
    mg_free(s);
}

static void describe(const mg_source *base, int64_t row, char *text, size_t room) {
    mg_source_describe(((const transformed_source *)base)->inner, row, text, room);
}

static const mg_source_api api = {.name = "transform",
                                  .read_wanted = read_row,
                                  .prepare = prepare,
                                  .describe = describe,
                                  .free = free_source};

/* ---- making ---- */

/* Appends the step and reserves scratch memory for its input cell. */
static mg_status add_step(transformed_source *s, int field, mg_transform *transform) {
    row_step *t = &s->step[s->n];
    mg_field *f = &s->base.field[field];
    t->in = *f;
    MG_TRY(transform->api->infer(transform, &t->in, f));
    t->field = field;
    t->first = t->last = true;
    for (int i = 0; i < s->n; i++)
        if (s->step[i].field == field) s->step[i].last = t->first = false;
    if (t->first && transform->api->region) s->n_asking++;
    if (!mg_field_varies(&t->in)) {
        t->offset = s->scratch;
        const size_t bytes = mg_cell_bytes(&t->in, &t->in.shape) + ALIGNMENT - 1;
        s->scratch += bytes / ALIGNMENT * ALIGNMENT;
    }
    t->transform = mg_transform_retain(transform);
    s->n++;
    return MG_OK;
}

/* If the inner source is of this kind too, its steps are copied, so that one call applies all
 * steps. */
mg_source *mg_transformed_source(mg_source *inner, int field, mg_transform *transform) {
    const transformed_source *before =
        inner->api == &api ? (const transformed_source *)inner : NULL;
    const int n = before ? before->n : 0;
    transformed_source *s =
        mg_source_alloc(&api, sizeof *s + ((size_t)n + 1) * sizeof s->step[0], inner->n_fields);
    if (!s) return NULL;
    mg_source *rows = before ? before->inner : inner;
    s->inner = mg_source_retain(rows);
    mg_source_copy_fields(&s->base, rows);
    mg_status status = MG_OK;
    for (int i = 0; status == MG_OK && i < n; i++)
        status = add_step(s, before->step[i].field, before->step[i].transform);
    if (status == MG_OK) status = add_step(s, field, transform);
    if (status == MG_OK) return &s->base;
    mg_source_release(&s->base);
    return NULL;
}
