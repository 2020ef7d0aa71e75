/* Cutting work into units that the threads of a team can share evenly. */
#include "device/cpu/cpu.h"

int64_t mg_even_share(int64_t places, int64_t n, int64_t most, int64_t least, int64_t team) {
    int64_t best = mg_smaller(most, n), best_share = INT64_MAX;
    for (int64_t pieces = mg_divide_up(n, best); team > 1; pieces++) {
        const int64_t size = mg_divide_up(n, pieces), units = places * mg_divide_up(n, size);
        const int64_t share = mg_divide_up(units, team) * size;
        if (size < least && pieces > 1) break;
        if (share < best_share) best = size, best_share = share;
        if (16 * share * team <= 17 * places * n || size == 1) break; /* 6 % over the mean */
    }
    return best;
}
