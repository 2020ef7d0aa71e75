/* Stacking tensors: each is copied run by run, a run being as many bytes as lie next to one another
 * in both the tensor and its cell. Without padding, that is the whole tensor. */
#include "data/element.h"
#include "core/alloc.h"
#include "device/buffer.h"
#include "device/device.h"
#include <string.h>

static mg_status check_tensor(const mg_tensor *t, int64_t i, const mg_tensor *first,
                              const mg_shape *cell) {
    if (!t->buffer || !mg_device_kind_is_host_visible(t->device->api))
        return mg_fail(MG_USAGE, "stack: tensor %lld has no values in the host's memory",
                       (long long)i + 1);
    if (t->dtype != first->dtype)
        return mg_fail(MG_USAGE, "stack: tensor %lld is of dtype %s, the first of %s",
                       (long long)i + 1, mg_dtype_name((mg_dtype)t->dtype),
                       mg_dtype_name((mg_dtype)first->dtype));
    bool fits = t->shape.rank == cell->rank;
    for (int k = 0; fits && k < cell->rank; k++) fits = t->shape.dim[k] <= cell->dim[k];
    if (fits) return MG_OK;
    return mg_fail(MG_USAGE, "stack: tensor %lld of shape %s does not fit into %s",
                   (long long)i + 1, MG_SHAPE_TEXT(&t->shape), MG_SHAPE_TEXT(cell));
}

/* Fills `count` elements with the value, by copying the filled part repeatedly to double it. */
static void fill_cell(char *dst, mg_dtype dtype, double value, size_t count) {
    const size_t size = mg_dtype_size(dtype), bytes = count * size;
    if (bytes == 0) return;
    mg_from_double(dst, &value, dtype, 1);
    for (size_t done = size; done < bytes; done *= 2)
        memcpy(dst + done, dst, done < bytes - done ? done : bytes - done);
}

/* Copies src, of shape `s`, into the corner of a cell: run by run, with an index over the axes
 * before a run. */
static void copy_corner(char *dst, const char *src, const mg_shape *s, const mg_shape *cell,
                        size_t size) {
    int axis = s->rank;  /* the axes from here on are equal, so a run covers all of them */
    size_t entry = size; /* bytes of an entry of the axis before them */
    while (axis > 0 && s->dim[axis - 1] == cell->dim[axis - 1]) entry *= (size_t)s->dim[--axis];
    size_t run = entry, room = entry;
    if (axis > 0) {
        axis--;
        run *= (size_t)s->dim[axis], room *= (size_t)cell->dim[axis];
    }
    int64_t at[MG_MAX_RANK] = {0}, runs = mg_shape_count(s) > 0;
    for (int k = 0; k < axis; k++) runs *= s->dim[k];
    for (; runs > 0; runs--, src += run) {
        size_t offset = 0;
        for (int k = 0; k < axis; k++) offset = offset * (size_t)cell->dim[k] + (size_t)at[k];
        memcpy(dst + offset * room, src, run);
        for (int k = axis - 1; k >= 0 && ++at[k] == s->dim[k]; k--) at[k] = 0;
    }
}

/* Checks the tensors and sets *shape to that of the result. */
static mg_status check_stack(mg_tensor *const *tensors, int64_t n, const mg_shape *cell,
                             int64_t rows, mg_shape *shape) {
    for (int64_t i = 0; i < n; i++) MG_TRY(check_tensor(tensors[i], i, tensors[0], cell));
    if (cell->rank == MG_MAX_RANK)
        return mg_fail(MG_USAGE, "batch: elements of %d axes cannot be batched: %d are possible",
                       cell->rank, MG_MAX_RANK);
    *shape = (mg_shape){.rank = cell->rank + 1, .dim = {rows}};
    memcpy(shape->dim + 1, cell->dim, (size_t)cell->rank * sizeof cell->dim[0]);
    return mg_shape_check(shape, "batch");
}

mg_tensor *mg_stack(mg_tensor *const *tensors, int64_t n, const mg_shape *cell, double fill,
                    int64_t rows, int64_t first) {
    const mg_dtype dtype = (mg_dtype)tensors[0]->dtype;
    const size_t size = mg_dtype_size(dtype);
    mg_shape shape;
    if (check_stack(tensors, n, cell, rows, &shape) != MG_OK) return NULL;
    const size_t cell_bytes = size * (size_t)mg_shape_count(cell);
    mg_buffer *b = mg_buffer_new(tensors[0]->device, cell_bytes * (size_t)rows);
    if (!b) return NULL;
    for (int64_t i = 0; i < n; i++) {
        char *dst = (char *)b->data + (size_t)(first + i) * cell_bytes;
        if (!mg_shape_equal(&tensors[i]->shape, cell))
            fill_cell(dst, dtype, fill, (size_t)mg_shape_count(cell));
        copy_corner(dst, tensors[i]->buffer->data, &tensors[i]->shape, cell, size);
    }
    mg_tensor *t = mg_tensor_from_buffer(b, dtype, &shape);
    mg_buffer_release(b);
    return t;
}
