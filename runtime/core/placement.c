/* Dealing out the rows of a batch: see placement.h.
 *
 * The result depends on the arguments alone, so it is the same wherever it is computed. */
#include "core/placement.h"
#include <math.h>

void mg_shards_deal(mg_shards *s, int n, int64_t rows, const double *weights) {
    double total = 0, before = 0;
    *s = (mg_shards){.n = n, .rows = rows};
    for (int i = 0; i < n; i++) total += weights ? weights[i] : 1;
    for (int i = 0; i < n; i++) {
        if (!weights) {
            s->count[i] = rows / n + (i < rows % n);
            s->first[i] = i ? s->first[i - 1] + s->count[i - 1] : 0;
            continue;
        }
        /* Borders are rounded, not counts, so that the counts always add up to rows. */
        s->first[i] = llround((double)rows * before / total);
        before += weights[i];
        s->count[i] = llround((double)rows * before / total) - s->first[i];
    }
}
