/* Joined sources. Both kinds hold an array of sources; a zipped row is read from all of them, a
 * concatenated row from one of them. */
#include "data/sources/sources.h"
#include "core/alloc.h"
#include <stdio.h>
#include <string.h>

typedef struct joined_source {
    mg_source base;
    int n;
    mg_source *part[]; /* retained */
} joined_source;

static mg_status prepare(mg_source *base) {
    const joined_source *s = (const joined_source *)base;
    for (int i = 0; i < s->n; i++) MG_TRY(mg_source_prepare(s->part[i]));
    return MG_OK;
}

static void free_source(mg_source *base) {
    joined_source *s = (joined_source *)base;
    for (int i = 0; i < s->n; i++) mg_source_release(s->part[i]);
    mg_free(s);
}

static joined_source *new_joined(const mg_source_api *api, mg_source *const *sources, int n,
                                 int n_fields) {
    joined_source *s = mg_source_alloc(api, sizeof *s + (size_t)n * sizeof s->part[0], n_fields);
    if (!s) return NULL;
    s->base.cheap = true;
    for (; s->n < n; s->n++) {
        s->part[s->n] = mg_source_retain(sources[s->n]);
        s->base.cheap = s->base.cheap && sources[s->n]->cheap;
    }
    return s;
}

static mg_source *refused(joined_source *s) {
    mg_source_release(&s->base);
    return NULL;
}

/* ---- side by side ---- */

static mg_status read_zipped(mg_source *base, mg_row_key key, const mg_wanted *const wanted[],
                             mg_cell cell[]) {
    const joined_source *s = (const joined_source *)base;
    for (int i = 0; i < s->n; i++) {
        MG_TRY(mg_source_read_wanted(s->part[i], key, wanted, cell));
        cell += s->part[i]->n_fields;
        if (wanted) wanted += s->part[i]->n_fields;
    }
    return MG_OK;
}

/* The first source describes the row. */
static void describe_zipped(const mg_source *base, int64_t row, char *text, size_t room) {
    mg_source_describe(((const joined_source *)base)->part[0], row, text, room);
}

static const mg_source_api zipped = {.name = "zip",
                                     .read_wanted = read_zipped,
                                     .prepare = prepare,
                                     .describe = describe_zipped,
                                     .free = free_source};

mg_source *mg_zipped_source(mg_source *const *sources, int n) {
    int n_fields = 0;
    for (int i = 0; i < n; i++) n_fields += sources[i]->n_fields;
    joined_source *s = new_joined(&zipped, sources, n, n_fields);
    if (!s) return NULL;
    mg_field *field = s->base.field;
    s->base.n_rows = sources[0]->n_rows;
    for (int i = 0; i < n; i++) {
        const mg_source *p = sources[i];
        if (p->n_rows < s->base.n_rows) s->base.n_rows = p->n_rows;
        memcpy(field, p->field, (size_t)p->n_fields * sizeof *field);
        field += p->n_fields;
    }
    return &s->base;
}

/* ---- one after the other ---- */

/* Makes room for the cells that have a fixed shape in this source, but not in all. */
static mg_status make_room(const mg_source *all, const mg_source *part, mg_cell cell[]) {
    for (int k = 0; k < all->n_fields; k++) {
        const mg_field *f = &part->field[k];
        if (!mg_field_varies(&all->field[k]) || mg_field_varies(f)) continue;
        cell[k].shape = f->shape;
        cell[k].data = mg_alloc(mg_cell_bytes(f, &f->shape));
        if (!cell[k].data) return MG_OOM;
    }
    return MG_OK;
}

/* The source that has the row; *row becomes the row's number in it. */
static mg_source *part_of(const joined_source *s, int64_t *row) {
    int i = 0;
    for (; *row >= s->part[i]->n_rows; i++) *row -= s->part[i]->n_rows;
    return s->part[i];
}

static mg_status read_concatenated(mg_source *base, mg_row_key key, const mg_wanted *const wanted[],
                                   mg_cell cell[]) {
    mg_source *part = part_of((const joined_source *)base, &key.row);
    MG_TRY(make_room(base, part, cell));
    return mg_source_read_wanted(part, key, wanted, cell);
}

/* Rows without a file keep their number among all rows. */
static void describe_concatenated(const mg_source *base, int64_t row, char *text, size_t room) {
    const int64_t in_all = row;
    const mg_source *part = part_of((const joined_source *)base, &row);
    if (part->api->describe)
        mg_source_describe(part, row, text, room);
    else
        snprintf(text, room, "row %lld", (long long)in_all + 1);
}

static const mg_source_api concatenated = {.name = "concatenate",
                                           .read_wanted = read_concatenated,
                                           .prepare = prepare,
                                           .describe = describe_concatenated,
                                           .free = free_source};

static int strings_of(const mg_field *f) {
    return f->texts ? f->texts : f->text;
}

/* Merges `other` into f: the common properties of both fields. `part` and `k` (from 0) are for the
 * message. */
static mg_status merge_field(mg_field *f, const mg_field *other, int part, int k) {
    if (f->texts != other->texts)
        return mg_fail(
            MG_USAGE,
            "concatenate: field %d has a string count of %d in dataset 1, but %d in dataset %d",
            k + 1, strings_of(f), strings_of(other), part + 1);
    if (f->dtype != other->dtype || f->text != other->text)
        return mg_fail(MG_USAGE, "concatenate: field %d is %s in dataset 1, but %s in dataset %d",
                       k + 1, f->text ? "string" : mg_dtype_name(f->dtype),
                       other->text ? "string" : mg_dtype_name(other->dtype), part + 1);
    if (f->shape.rank != other->shape.rank)
        return mg_fail(MG_USAGE,
                       "concatenate: field %d has shape %s in dataset 1, but %s in dataset %d",
                       k + 1, MG_SHAPE_TEXT(&f->shape), MG_SHAPE_TEXT(&other->shape), part + 1);
    for (int a = 0; a < f->shape.rank; a++)
        if (f->shape.dim[a] != other->shape.dim[a]) f->shape.dim[a] = -1;
    return MG_OK;
}

/* Adds the rows of part i; s already has the fields of the first part. */
static mg_status append_part(mg_source *s, const mg_source *part, int i) {
    if (part->n_fields != s->n_fields)
        return mg_fail(MG_USAGE,
                       "concatenate: elements have %d parts in dataset 1, but %d in dataset %d",
                       s->n_fields, part->n_fields, i + 1);
    for (int k = 0; k < s->n_fields; k++) MG_TRY(merge_field(&s->field[k], &part->field[k], i, k));
    if (__builtin_add_overflow(s->n_rows, part->n_rows, &s->n_rows))
        return mg_fail(MG_USAGE, "concatenate: too many rows");
    return MG_OK;
}

mg_source *mg_concatenated_source(mg_source *const *sources, int n) {
    joined_source *s = new_joined(&concatenated, sources, n, sources[0]->n_fields);
    if (!s) return NULL;
    for (int k = 0; k < s->base.n_fields; k++) s->base.field[k] = sources[0]->field[k];
    for (int i = 0; i < n; i++)
        if (append_part(&s->base, sources[i], i) != MG_OK) return refused(s);
    return &s->base;
}
