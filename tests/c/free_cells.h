/* Fixture: frees the cells of a row that a test has read. */
#ifndef TESTS_C_FREE_CELLS_H
#define TESTS_C_FREE_CELLS_H

#include "core/alloc.h"
#include "data/source.h"

/* Frees the blocks that the source has made: the cells of fields that vary. */
static inline void free_cells(const mg_source *s, mg_cell cell[]) {
    for (int k = 0; k < s->n_fields; k++)
        if (mg_field_varies(&s->field[k])) mg_free(cell[k].data), cell[k] = (mg_cell){0};
}

#endif
