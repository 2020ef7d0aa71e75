/* Packing a row into one block of bytes, and unpacking it: see row_file.h. */
#include "data/sources/row_file.h"
#include "core/alloc.h"
#include <string.h>

static size_t bytes_of_sizes(const mg_field *f) {
    return mg_field_varies(f) ? (size_t)f->shape.rank * sizeof f->shape.dim[0] : 0;
}

size_t mg_packed_bytes(const mg_source *s, const mg_cell cell[]) {
    size_t bytes = 0;
    for (int k = 0; k < s->n_fields; k++)
        bytes += bytes_of_sizes(&s->field[k]) + mg_cell_bytes(&s->field[k], &cell[k].shape);
    return bytes;
}

void mg_pack_row(const mg_source *s, const mg_cell cell[], char *dst) {
    for (int k = 0; k < s->n_fields; k++) {
        const size_t sizes = bytes_of_sizes(&s->field[k]),
                     values = mg_cell_bytes(&s->field[k], &cell[k].shape);
        memcpy(dst, cell[k].shape.dim, sizes);
        memcpy(dst + sizes, cell[k].data, values);
        dst += sizes + values;
    }
}

static mg_status no_row(void) {
    return mg_fail(MG_DATA, "this is not a row");
}

/* Reads the sizes of a cell that varies, and allocates it; at most `left` bytes may follow. */
static mg_status unpack_sizes(const mg_field *f, const char *src, size_t left, mg_cell *cell) {
    const size_t sizes = bytes_of_sizes(f);
    size_t bytes = mg_dtype_size(f->dtype);
    mg_shape shape = {.rank = f->shape.rank};
    if (left < sizes) return no_row();
    memcpy(shape.dim, src, sizes);
    for (int a = 0; a < shape.rank; a++) {
        const int64_t wanted = f->shape.dim[a];
        if (shape.dim[a] < 0 || (wanted >= 0 && shape.dim[a] != wanted)) return no_row();
        if (!mg_size_mul(bytes, (size_t)shape.dim[a], &bytes)) return no_row();
    }
    if (bytes > left - sizes) return no_row();
    cell->shape = shape;
    cell->data = mg_alloc(bytes);
    return cell->data ? MG_OK : MG_OOM;
}

mg_status mg_unpack_row(const mg_source *s, const char *src, size_t bytes, mg_cell cell[]) {
    for (int k = 0; k < s->n_fields; k++) {
        const mg_field *f = &s->field[k];
        const size_t sizes = bytes_of_sizes(f);
        if (sizes) MG_TRY(unpack_sizes(f, src, bytes, &cell[k]));
        const size_t values = mg_cell_bytes(f, &cell[k].shape);
        if (bytes < sizes + values) return no_row();
        memcpy(cell[k].data, src + sizes, values);
        src += sizes + values;
        bytes -= sizes + values;
    }
    return bytes ? no_row() : MG_OK;
}
