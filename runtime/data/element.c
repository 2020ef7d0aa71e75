/* Putting rows together into batches.
 *
 * A field of a fixed shape has its buffer from the start, and the source writes each row to its
 * place in it. Cells of varying shape are separate blocks until all are known; then they are copied
 * into one buffer, except texts, which stay separate. */
#include "data/element.h"
#include "core/alloc.h"
#include "device/buffer.h"
#include "device/device.h"
#include <stdatomic.h>
#include <string.h>

static atomic_llong rows_read;

int64_t mg_element_rows_read(void) {
    return atomic_load_explicit(&rows_read, memory_order_relaxed);
}

/* ---- the rows of this process ---- */

/* Deals the rows out over the devices of this process. */
static void deal(mg_shards *own, const mg_share *share, int64_t rows) {
    mg_shards all;
    mg_shards_deal(&all, share->total, rows, share->weights);
    *own = (mg_shards){.n = share->n, .rows = rows};
    memcpy(own->first, all.first + share->first, (size_t)share->n * sizeof own->first[0]);
    memcpy(own->count, all.count + share->first, (size_t)share->n * sizeof own->count[0]);
}

void mg_share_rows(const mg_share *share, int64_t rows, int64_t *from, int64_t *to) {
    mg_shards own;
    *from = 0, *to = rows;
    if (!share->total) return;
    deal(&own, share, rows);
    *from = own.first[0];
    *to = own.first[own.n - 1] + own.count[own.n - 1];
}

static bool any_varies(const mg_source *s) {
    bool varies = false;
    for (int k = 0; k < s->n_fields; k++) varies = varies || mg_field_varies(&s->field[k]);
    return varies;
}

/* Sets the rows to be read: those of the outermost batch, each of which may be several rows of the
 * source. Of an element in parts at least one row is read, since the shape of what is made of parts
 * follows from it. */
static void choose_rows(mg_element *e, const mg_element_kind *kind, const mg_rows *rows) {
    const mg_shape *batches = e->outer.rank > 0 ? &e->outer : &e->inner;
    e->from = 0, e->to = rows->n;
    if (!kind->share.total || batches->rank == 0 || rows->n == 0) return;
    if (e->outer.rank > 0 && any_varies(kind->source)) return;
    const int64_t each = rows->n / batches->dim[0];
    mg_share_rows(&kind->share, batches->dim[0], &e->from, &e->to);
    if (e->outer.rank > 0 && e->from == e->to) e->from = 0, e->to = 1;
    e->from *= each, e->to *= each;
}

/* ---- making room ---- */

/* The sizes of batches from .. to-1 as a shape. rows->dim lists the innermost batch first, a shape
 * the outermost. */
static mg_shape shape_of_batches(const mg_rows *rows, int from, int to) {
    mg_shape shape = {.rank = to - from};
    for (int i = from; i < to; i++) shape.dim[to - 1 - i] = rows->dim[i];
    return shape;
}

/* The shape of a part's batches followed by the shape of a cell. */
static mg_shape joined_shape(const mg_shape *batches, const mg_shape *cell) {
    mg_shape shape = *batches;
    for (int a = 0; a < cell->rank; a++) shape.dim[shape.rank++] = cell->dim[a];
    return shape;
}

static mg_status too_many_rows(int64_t n) {
    return mg_fail(MG_OOM, "out of memory: a batch of %lld rows", (long long)n);
}

/* The device in whose memory the rows of field k are put together. */
static mg_device *host_of(const mg_element_kind *kind, int k) {
    mg_device *d = kind->device[k];
    return mg_device_kind_is_host_visible(d->api) ? d : kind->host;
}

/* A buffer for all rows of a part. */
static mg_status make_buffer(mg_element *e, const mg_element_kind *kind, int64_t i,
                             const mg_shape *cell) {
    const int k = (int)(i % e->n_fields);
    mg_field_value *v = &e->value[i];
    size_t bytes;
    if (!mg_size_mul((size_t)e->part_rows, mg_cell_bytes(&e->field[k], cell), &bytes))
        return too_many_rows(e->part_rows);
    v->shape = joined_shape(&e->inner, cell);
    v->buffer = mg_buffer_new(host_of(kind, k), bytes);
    e->bytes += bytes;
    return v->buffer ? MG_OK : MG_OOM;
}

/* Empty cells for all rows of a part. */
static mg_status make_cells(mg_element *e, int64_t i) {
    size_t bytes;
    if (!mg_size_mul((size_t)e->part_rows, sizeof(mg_cell), &bytes))
        return too_many_rows(e->part_rows);
    e->value[i].shape = e->inner;
    e->value[i].cell = mg_alloc_zero(bytes);
    return e->value[i].cell ? MG_OK : MG_OOM;
}

mg_element *mg_element_new(const mg_element_kind *kind, const mg_rows *rows) {
    const mg_source *s = kind->source;
    const int dense = kind->dense < rows->rank ? kind->dense : rows->rank;
    const mg_shape outer = shape_of_batches(rows, dense, rows->rank);
    const int64_t n_parts = mg_shape_count(&outer), n = n_parts * s->n_fields;
    const size_t values = (size_t)n * sizeof(mg_field_value),
                 fields = (size_t)s->n_fields * (sizeof(mg_field) + sizeof(size_t));
    mg_element *e = mg_alloc_zero(sizeof *e + values + fields);
    if (!e) return NULL;
    e->field = (mg_field *)(void *)(e->value + n);
    e->cell_bytes = (size_t *)(void *)(e->field + s->n_fields);
    e->outer = outer;
    e->inner = shape_of_batches(rows, 0, dense);
    e->n_parts = n_parts;
    e->part_rows = rows->n / n_parts;
    e->n_fields = s->n_fields;
    choose_rows(e, kind, rows);
    memcpy(e->field, s->field, (size_t)s->n_fields * sizeof *e->field);
    for (int k = 0; k < e->n_fields; k++)
        if (!mg_field_varies(&e->field[k]))
            e->cell_bytes[k] = mg_cell_bytes(&e->field[k], &e->field[k].shape);
    for (int64_t i = 0; i < n; i++) {
        const mg_field *f = &e->field[i % e->n_fields];
        const mg_status status =
            mg_field_varies(f) ? make_cells(e, i) : make_buffer(e, kind, i, &f->shape);
        if (status == MG_OK) continue;
        mg_element_free(e);
        return NULL;
    }
    return e;
}

/* ---- reading ---- */

/* The cells of a row: places in buffers, or empty ones for fields that vary. */
static void cells_of_row(const mg_element *e, int64_t row, mg_cell cell[]) {
    const mg_field_value *part = e->value + row / e->part_rows * e->n_fields;
    for (int k = 0; k < e->n_fields; k++) {
        const size_t at = (size_t)(row % e->part_rows) * e->cell_bytes[k];
        if (part[k].cell)
            cell[k] = (mg_cell){0};
        else
            cell[k] = (mg_cell){e->field[k].shape, (char *)part[k].buffer->data + at};
    }
}

/* Stores the cells that the source has made for a row. */
static void keep_cells(mg_element *e, int64_t row, const mg_cell cell[]) {
    mg_field_value *part = e->value + row / e->part_rows * e->n_fields;
    for (int k = 0; k < e->n_fields; k++)
        if (part[k].cell) part[k].cell[row % e->part_rows] = cell[k];
}

static mg_status stopped(const mg_element_kind *kind) {
    return kind->stop(kind->context) ? mg_fail(MG_INTERRUPTED, "interrupted") : MG_OK;
}

/* Copies rows from .. to-1, blocks of one part at a time. */
static mg_status copy_rows(const mg_element *e, const mg_element_kind *kind, const mg_rows *rows,
                           int64_t from, int64_t to) {
    enum { BLOCK = 64 };
    int64_t row[BLOCK];
    mg_cell cell[e->n_fields];
    for (int n; from < to; from += n) {
        const int64_t in_part = e->part_rows - from % e->part_rows;
        MG_TRY(stopped(kind));
        for (n = 0; n < BLOCK && n < in_part && from + n < to; n++)
            row[n] = mg_rows_key(rows, from + n).row;
        cells_of_row(e, from, cell);
        kind->source->api->copy_rows(kind->source, row, n, cell);
    }
    return MG_OK;
}

/* For mg_activity_about: the origin of a row, as "cats.tfrecord: record 7". */
static void describe_row(const void *source, int64_t row, char *text, size_t room) {
    mg_source_describe(source, row, text, room);
}

mg_status mg_element_read(mg_element *e, const mg_element_kind *kind, const mg_rows *rows,
                          int64_t from, int64_t to, int64_t *failed) {
    mg_cell cell[e->n_fields];
    atomic_fetch_add_explicit(&rows_read, to - from, memory_order_relaxed);
    *failed = from;
    if (kind->source->api->copy_rows) return copy_rows(e, kind, rows, from, to);
    for (int64_t i = from; i < to; i++) {
        *failed = i;
        MG_TRY(stopped(kind));
        mg_activity_about(describe_row, kind->source, mg_rows_key(rows, i).row);
        cells_of_row(e, i, cell);
        const mg_status status = mg_source_read(kind->source, mg_rows_key(rows, i), cell);
        keep_cells(e, i, cell);
        MG_TRY(status);
    }
    return MG_OK;
}

/* ---- joining cells that vary ---- */

static mg_status differing_shapes(const mg_element *e, const mg_rows *rows, int64_t i,
                                  int64_t row) {
    const int64_t first = i / e->n_fields * e->part_rows;
    const mg_cell *cell = e->value[i].cell;
    return mg_fail(MG_USAGE,
                   "batch: rows %lld and %lld cannot be in one batch: their cells of field %d have "
                   "shapes %s and %s: bring them to one shape before :batch, or use :padded_batch",
                   (long long)mg_rows_key(rows, first).row + 1,
                   (long long)mg_rows_key(rows, first + row).row + 1, (int)(i % e->n_fields) + 1,
                   MG_SHAPE_TEXT(&cell[0].shape), MG_SHAPE_TEXT(&cell[row].shape));
}

/* Reads the first row, if it is not among those to be read but has the shapes of the batch. */
static mg_status read_shapes(mg_element *e, const mg_element_kind *kind, const mg_rows *rows) {
    int64_t failed;
    bool varies = false;
    for (int k = 0; k < e->n_fields; k++) varies = varies || e->value[k].cell;
    return varies && e->from > 0 ? mg_element_read(e, kind, rows, 0, 1, &failed) : MG_OK;
}

/* Moves the cells of value i into a buffer. */
static mg_status join_cells(mg_element *e, const mg_element_kind *kind, const mg_rows *rows,
                            int64_t i) {
    mg_field_value *v = &e->value[i];
    const mg_shape shape = v->cell[0].shape;
    const int64_t from = e->n_parts == 1 ? e->from : 0, to = e->n_parts == 1 ? e->to : e->part_rows;
    for (int64_t row = from; row < to; row++)
        if (!mg_shape_equal(&shape, &v->cell[row].shape)) return differing_shapes(e, rows, i, row);
    MG_TRY(make_buffer(e, kind, i, &shape));
    const size_t bytes = mg_cell_bytes(&e->field[i % e->n_fields], &shape);
    for (int64_t row = from; row < to; row++) {
        memcpy((char *)v->buffer->data + (size_t)row * bytes, v->cell[row].data, bytes);
        mg_free(v->cell[row].data);
        v->cell[row].data = NULL;
    }
    if (from > 0) mg_free(v->cell[0].data); /* read for its shape */
    mg_free(v->cell);
    v->cell = NULL;
    return MG_OK;
}

/* ---- to the devices ---- */

/* Replaces the buffer by a copy on its field's device, which is staged if elements are made
 * ahead. */
static mg_status send_to_device(mg_buffer **buffer, mg_device *device,
                                const mg_element_kind *kind) {
    mg_buffer *host = *buffer;
    if (kind->ahead) {
        const mg_staging what = {host->data, host->bytes, kind->stop, kind->context};
        *buffer = mg_buffer_stage(device, &what);
        mg_buffer_release(host);
        return *buffer ? MG_OK : mg_error_code();
    }
    mg_buffer *there = mg_buffer_new(device, host->bytes);
    if (!there) return mg_error_code();
    const mg_status status =
        mg_device_copy(device, there->data, host->device, host->data, host->bytes);
    *buffer = there;
    mg_buffer_release(host);
    return status;
}

/* Stages the rows of a batch in host memory for the devices that will share them. */
static mg_status send_rows(const mg_field_value *v, const mg_element_kind *kind) {
    mg_shards shards;
    const mg_staging how = {.stop = kind->stop, .context = kind->context};
    const int64_t rows = v->shape.dim[0];
    if (rows == 0) return MG_OK;
    if (kind->share.total)
        deal(&shards, &kind->share, rows);
    else
        mg_shards_deal(&shards, kind->n_shards, rows, kind->weights);
    return mg_buffer_stage_rows(v->buffer, &shards, kind->shard, v->buffer->bytes / (size_t)rows,
                                &how);
}

static int64_t text_bytes(const mg_element *e, const mg_field_value *v) {
    int64_t bytes = 0;
    for (int64_t row = 0; row < e->part_rows; row++) bytes += mg_shape_count(&v->cell[row].shape);
    return bytes;
}

mg_status mg_element_finish(mg_element *e, const mg_element_kind *kind, const mg_rows *rows) {
    MG_TRY(read_shapes(e, kind, rows));
    for (int64_t i = 0; i < e->n_parts * e->n_fields; i++) {
        const int k = (int)(i % e->n_fields);
        mg_field_value *v = &e->value[i];
        if (e->field[k].text) {
            e->bytes += (size_t)text_bytes(e, v);
            continue;
        }
        if (v->cell) MG_TRY(join_cells(e, kind, rows, i));
        if (v->buffer->device != kind->device[k])
            MG_TRY(send_to_device(&v->buffer, kind->device[k], kind));
        else if (kind->ahead && kind->n_shards && e->n_parts == 1 && e->inner.rank > 0)
            MG_TRY(send_rows(v, kind));
    }
    return MG_OK;
}

mg_status mg_element_join(const mg_element *e) {
    for (int64_t i = 0; i < e->n_parts * e->n_fields; i++)
        if (e->value[i].buffer) MG_TRY(mg_buffer_join(e->value[i].buffer));
    return MG_OK;
}

void mg_element_free(mg_element *e) {
    if (!e) return;
    for (int64_t i = 0; i < e->n_parts * e->n_fields; i++) {
        mg_field_value *v = &e->value[i];
        mg_buffer_release(v->buffer);
        for (int64_t row = 0; v->cell && row < e->part_rows; row++) mg_free(v->cell[row].data);
        mg_free(v->cell);
    }
    mg_free(e);
}
