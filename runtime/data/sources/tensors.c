/* Rows of tensors: reading one is a memcpy for each tensor. */
#include "data/sources/sources.h"
#include "device/device.h"
#include "core/alloc.h"
#include <string.h>

typedef struct rows_of {
    mg_tensor *tensor; /* retained */
    size_t row_bytes;
} rows_of;

typedef struct tensors_source {
    mg_source base;
    rows_of part[]; /* of each field */
} tensors_source;

/* Copies field by field, so that the inner loop does nothing but copy. */
static void copy_rows(const mg_source *base, const int64_t row[], int n, const mg_cell cell[]) {
    const tensors_source *s = (const tensors_source *)base;
    for (int k = 0; k < base->n_fields; k++) {
        const size_t bytes = s->part[k].row_bytes;
        const char *rows = s->part[k].tensor->buffer->data;
        char *dst = cell[k].data;
        for (int i = 0; i < n; i++)
            memcpy(dst + (size_t)i * bytes, rows + (size_t)row[i] * bytes, bytes);
    }
}

static mg_status read_row(mg_source *base, int64_t row, mg_cell cell[]) {
    copy_rows(base, &row, 1, cell);
    return MG_OK;
}

static void free_source(mg_source *base) {
    tensors_source *s = (tensors_source *)base;
    for (int k = 0; k < base->n_fields; k++) mg_tensor_release(s->part[k].tensor);
    mg_free(s);
}

static const mg_source_api api = {
    .name = "from_tensors", .read = read_row, .free = free_source, .copy_rows = copy_rows};

static mg_status check_tensors(mg_tensor *const *tensors, int n) {
    for (int k = 0; k < n; k++) {
        const mg_tensor *t = tensors[k];
        if (!t->buffer || !mg_device_kind_is_host_visible(t->device->api))
            return mg_fail(
                MG_USAGE,
                "from_tensors: tensor %d is not in the host's memory: move it with :to \"cpu\"",
                k + 1);
        if (t->shape.rank == 0)
            return mg_fail(MG_USAGE,
                           "from_tensors: tensor %d is a single number, but its first axis must be "
                           "rows",
                           k + 1);
        if (t->shape.dim[0] != tensors[0]->shape.dim[0])
            return mg_fail(MG_USAGE, "from_tensors: tensor 1 has %lld rows but tensor %d has %lld",
                           (long long)tensors[0]->shape.dim[0], k + 1, (long long)t->shape.dim[0]);
    }
    return MG_OK;
}

mg_source *mg_tensors_source(mg_tensor *const *tensors, int n) {
    if (check_tensors(tensors, n) != MG_OK) return NULL;
    tensors_source *s = mg_source_alloc(&api, sizeof *s + (size_t)n * sizeof s->part[0], n);
    if (!s) return NULL;
    s->base.n_rows = tensors[0]->shape.dim[0];
    s->base.cheap = true;
    for (int k = 0; k < n; k++) {
        mg_tensor *t = s->part[k].tensor = mg_tensor_retain(tensors[k]);
        mg_field *f = &s->base.field[k];
        f->dtype = (mg_dtype)t->dtype;
        f->shape = mg_shape_of(t->shape.rank - 1, t->shape.dim + 1);
        s->part[k].row_bytes = mg_cell_bytes(f, &f->shape);
    }
    return &s->base;
}
