/* Fingerprints of tensors and sources: see fingerprint.h. */
#include "data/fingerprint.h"
#include "core/alloc.h"
#include "device/buffer.h"
#include "device/device.h"
#include "io/hash.h"
#include <string.h>

enum {
    ALL = 4 << 20,         /* bytes up to which all are read: 1 ms or less */
    BLOCK = 4 << 10,       /* of larger tensors: a page */
    FAR_BLOCK = 256 << 10, /* of tensors that are not in host memory: each block is a copy */
    ROWS = 4,
    CHEAP_ROWS = 64 /* of a source; of one where reading a row is a memory copy */
};

static void add_int(mg_hash *h, int64_t value) {
    mg_hash_add(h, &value, sizeof value);
}

static void add_shape(mg_hash *h, mg_dtype dtype, const mg_shape *shape) {
    add_int(h, (int64_t)dtype);
    mg_hash_add(h, shape->dim, (size_t)shape->rank * sizeof shape->dim[0]);
}

/* ---- tensors ---- */

/* Adds `bytes` bytes of device memory; room: for them, if they are not in host memory. */
static mg_status add_bytes(mg_hash *h, mg_device *d, const char *src, size_t bytes, void *room) {
    if (room) MG_TRY(d->api->copy_out(d, room, src, bytes));
    mg_hash_add(h, room ? room : src, bytes);
    return MG_OK;
}

/* The blocks begin at equal distances; the last one ends where the tensor does. */
static mg_status add_values(mg_hash *h, const mg_tensor *t, size_t block, void *room) {
    const size_t bytes = mg_tensor_bytes(t), n = bytes > ALL ? ALL / block : 1;
    if (n == 1) block = bytes;
    for (size_t i = 0; i < n && bytes; i++) {
        const size_t at = n == 1 ? 0 : (bytes - block) / (n - 1) * i;
        const size_t from = i + 1 == n ? bytes - block : at;
        MG_TRY(add_bytes(h, t->device, (const char *)t->buffer->data + from, block, room));
    }
    return MG_OK;
}

mg_status mg_fingerprint_tensor(const mg_tensor *t, uint64_t *hash) {
    mg_hash h;
    void *room = NULL;
    size_t block = BLOCK;
    mg_hash_begin(&h);
    add_shape(&h, (mg_dtype)t->dtype, &t->shape);
    if (!mg_device_kind_is_host_visible(t->device->api)) {
        const size_t bytes = mg_tensor_bytes(t);
        block = FAR_BLOCK;
        room = mg_alloc(bytes > ALL ? block : bytes + 1);
        if (!room) return MG_OOM;
    }
    const mg_status status = add_values(&h, t, block, room);
    mg_free(room);
    *hash = mg_hash_end(&h);
    return status;
}

/* ---- sources ---- */

static void free_varying(const mg_source *s, mg_cell cell[]) {
    for (int k = 0; k < s->n_fields; k++)
        if (mg_field_varies(&s->field[k])) mg_free(cell[k].data);
}

/* Cells of a fixed shape lie one after another in `room`. */
static void add_row(mg_hash *h, mg_source *s, int64_t row, char *room, size_t bytes) {
    mg_cell cell[s->n_fields];
    memset(room, 0, bytes);
    for (int k = 0; k < s->n_fields; k++) {
        cell[k] = (mg_cell){0};
        if (mg_field_varies(&s->field[k])) continue;
        cell[k] = (mg_cell){s->field[k].shape, room};
        room += mg_cell_bytes(&s->field[k], &cell[k].shape);
    }
    const mg_status status = mg_source_read(s, (mg_row_key){.row = row}, cell);
    for (int k = 0; k < s->n_fields && status == MG_OK; k++) {
        add_shape(h, s->field[k].dtype, &cell[k].shape);
        mg_hash_add(h, cell[k].data, mg_cell_bytes(&s->field[k], &cell[k].shape));
    }
    free_varying(s, cell);
}

mg_status mg_fingerprint_source(mg_source *s, uint64_t *hash) {
    mg_hash h;
    size_t bytes = 0;
    mg_hash_begin(&h);
    add_int(&h, s->n_rows);
    for (int k = 0; k < s->n_fields; k++) {
        add_shape(&h, s->field[k].dtype, &s->field[k].shape);
        if (!mg_field_varies(&s->field[k]))
            bytes += mg_cell_bytes(&s->field[k], &s->field[k].shape);
    }
    const mg_status status = mg_source_prepare(s);
    if (status == MG_INTERRUPTED) return status;
    char *room = mg_alloc(bytes + 1);
    if (!room) return MG_OOM;
    const int64_t most = s->cheap ? CHEAP_ROWS : ROWS, n = s->n_rows < most ? s->n_rows : most;
    for (int64_t i = 0; i < n && status == MG_OK; i++)
        add_row(&h, s, n == 1 ? 0 : (s->n_rows - 1) * i / (n - 1), room, bytes);
    mg_free(room);
    *hash = mg_hash_end(&h);
    return MG_OK;
}
