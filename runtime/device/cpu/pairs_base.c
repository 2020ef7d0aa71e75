/* The paired loops for any processor, and the choice among the tables. */
#define TABLE mg_pairs_base
#include "device/cpu/pairs_body.h"

/* Rows and columns of the tables; -1: none. */
static int row_of(int op) {
    static const int rows[MG_PAIR_FIRSTS] = {MG_EW_add, MG_EW_sub,    MG_EW_mul,
                                             MG_EW_div, MG_EW_square, MG_EW_sqrt};
    for (int i = 0; i < MG_PAIR_FIRSTS; i++)
        if (rows[i] == op) return i;
    return -1;
}

static int column_of(int op, int place) {
    switch (op) {
    case MG_EW_add: return 0;
    case MG_EW_sub: return place == 0 ? 1 : 2;
    case MG_EW_mul: return 3;
    case MG_EW_div: return place == 0 ? 4 : 5;
    case MG_EW_sqrt: return 6;
    default: return -1;
    }
}

mg_loop_f32 *mg_pair_loop(int first, int second, int place) {
    const int row = row_of(first), column = column_of(second, place);
    const mg_loops *best = mg_loops_best();
    if (row < 0 || column < 0) return NULL;
    if (best == &mg_loops_avx512) return mg_pairs_avx512[row][column];
    return best == &mg_loops_avx2 ? mg_pairs_avx2[row][column] : mg_pairs_base[row][column];
}
