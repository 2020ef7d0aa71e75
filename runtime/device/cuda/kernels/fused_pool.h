/* Max pools in fused groups: one whose gradient's dy the group makes, or one whose result the group
 * reads. Generated text includes this after the vector types, and defines POOL_...: the sizes of
 * the image (H, W, C), of the pooled image (OH, OW), of windows (ROWS, COLUMNS), and the strides
 * (DOWN, ACROSS).
 *
 *     SPREAD   the dtype of dy. Each thread puts its elements of dy where the maximum of their
 *              window is, and 0 into the other cells of result SPREAD_RESULT. The image is the last
 *              input
 *     POOLED   the dtype of the image, input POOLED_INPUT: an element of the pooled image is found
 *              where the group needs it
 *
 * Windows do not overlap and lie within the image, so each cell is written once: with a window
 * belong the cells up to the next window, or to the image's edge. The maximum of a window is its
 * first one in row order; NaN counts as larger than any number. */

/* The first cell of a window, and how many rows and columns of cells belong to it. */
typedef struct part {
    INDEX first;
    int rows, columns;
} part;

/* The window of element i of the pooled image. */
DEVICE part part_of(INDEX i) {
    const INDEX pixel = i / POOL_C, row = pixel / POOL_OW;
    const int x = (int)(pixel - row * POOL_OW), y = (int)(row % POOL_OH);
    const INDEX top = row / POOL_OH * POOL_H + (INDEX)(y * POOL_DOWN);
    part w = {(top * POOL_W + (INDEX)(x * POOL_ACROSS)) * POOL_C + i % POOL_C,
              y == POOL_OH - 1 ? POOL_H - y * POOL_DOWN : POOL_DOWN,
              x == POOL_OW - 1 ? POOL_W - x * POOL_ACROSS : POOL_ACROSS};
    return w;
}

/* Whether v wins against the best so far. */
DEVICE int is_better(REAL v, REAL top) {
    return v > top || (v != v && top == top);
}

#define CELL(w, row, column) ((w).first + (INDEX)(((row)*POOL_W + (column)) * POOL_C))

#ifdef SPREAD

/* Spreads element i. */
DEVICE void spread_element(const tensor *t, INDEX i, JOIN(type, SPREAD) dy) {
    const JOIN(type, SPREAD) *x = (const JOIN(type, SPREAD) *)t->in[INPUTS - 1];
    JOIN(type, SPREAD) *dx = (JOIN(type, SPREAD) *)t->out[SPREAD_RESULT];
    const part w = part_of(i);
    int best = 0;
    REAL top = JOIN(load, SPREAD)(x[w.first]);
    ROLLED
    for (int k = 1; k < POOL_ROWS * POOL_COLUMNS; k++) {
        const REAL v = JOIN(load, SPREAD)(x[CELL(w, k / POOL_COLUMNS, k % POOL_COLUMNS)]);
        if (!is_better(v, top)) continue;
        top = v;
        best = k;
    }
    ROLLED
    for (int r = 0; r < w.rows; r++) ROLLED
    for (int c = 0; c < w.columns; c++) {
        const int hit = r < POOL_ROWS && c < POOL_COLUMNS && best == r * POOL_COLUMNS + c;
        dx[CELL(w, r, c)] = hit ? dy : JOIN(store, SPREAD)(K(0));
    }
}

/* Spreads the VECTOR elements from i on, which are neighbouring channels. */
DEVICE void spread_vector(const tensor *t, INDEX i, JOIN(vector, SPREAD) dy) {
    const JOIN(type, SPREAD) *x = (const JOIN(type, SPREAD) *)t->in[INPUTS - 1];
    JOIN(type, SPREAD) *dx = (JOIN(type, SPREAD) *)t->out[SPREAD_RESULT];
    const part w = part_of(i);
    int best[VECTOR] = {0};
    REAL top[VECTOR];
    UNROLL
    for (int k = 0; k < POOL_ROWS * POOL_COLUMNS; k++) {
        const JOIN(vector, SPREAD) now =
            *(const JOIN(vector, SPREAD) *)(x + CELL(w, k / POOL_COLUMNS, k % POOL_COLUMNS));
        UNROLL
        for (int j = 0; j < VECTOR; j++) {
            const REAL v = JOIN(load, SPREAD)(now.at[j]);
            if (k > 0 && !is_better(v, top[j])) continue;
            top[j] = v;
            best[j] = k;
        }
    }
    for (int r = 0; r < w.rows; r++)
        for (int c = 0; c < w.columns; c++) {
            const int cell = r < POOL_ROWS && c < POOL_COLUMNS ? r * POOL_COLUMNS + c : -1;
            JOIN(vector, SPREAD) y;
            UNROLL
            for (int j = 0; j < VECTOR; j++)
                y.at[j] = best[j] == cell ? dy.at[j] : JOIN(store, SPREAD)(K(0));
            JOIN(write, SPREAD)(dx + CELL(w, r, c), y);
        }
}

#endif

#ifdef POOLED

/* Element i of the pooled image. */
DEVICE JOIN(type, POOLED) pooled_element(const tensor *t, INDEX i) {
    const JOIN(type, POOLED) *x = (const JOIN(type, POOLED) *)t->in[POOLED_INPUT];
    const part w = part_of(i);
    JOIN(type, POOLED) best = x[w.first];
    ROLLED
    for (int k = 1; k < POOL_ROWS * POOL_COLUMNS; k++) {
        const JOIN(type, POOLED) now = x[CELL(w, k / POOL_COLUMNS, k % POOL_COLUMNS)];
        if (is_better(JOIN(load, POOLED)(now), JOIN(load, POOLED)(best))) best = now;
    }
    return best;
}

/* The VECTOR elements from i on, which are neighbouring channels. */
DEVICE JOIN(vector, POOLED) pooled_vector(const tensor *t, INDEX i) {
    const JOIN(type, POOLED) *x = (const JOIN(type, POOLED) *)t->in[POOLED_INPUT];
    const part w = part_of(i);
    JOIN(vector, POOLED) best = *(const JOIN(vector, POOLED) *)(x + w.first);
    UNROLL
    for (int k = 1; k < POOL_ROWS * POOL_COLUMNS; k++) {
        const JOIN(vector, POOLED) now =
            *(const JOIN(vector, POOLED) *)(x + CELL(w, k / POOL_COLUMNS, k % POOL_COLUMNS));
        UNROLL
        for (int j = 0; j < VECTOR; j++)
            if (is_better(JOIN(load, POOLED)(now.at[j]), JOIN(load, POOLED)(best.at[j])))
                best.at[j] = now.at[j];
    }
    return best;
}

#endif
