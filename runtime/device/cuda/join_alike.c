/* Fused groups in a row that do the same to different tensors, such as the casts of all weights to
 * a half: they are marked alike, as the updates of variables are, and then are one launch. */
#include "device/cuda/join.h"
#include <string.h>

static bool is_group(const mg_step *s) {
    return s->fused && s->alike == 1 && s->n_out == s->fused->n_outputs;
}

static bool does_the_same(const mg_step *a, const mg_step *b) {
    return is_group(b) && memcmp(a->fused, b->fused, sizeof *a->fused) == 0;
}

/* One of them may still read what another makes: that is seen when calls are put together. */
void mg_join_alike(mg_joiner *j) {
    for (int i = 0, n; i < j->work->n_compute; i += n) {
        mg_step *s = &j->steps[i];
        for (n = 1; is_group(s) && i + n < j->work->n_compute && does_the_same(s, &s[n]);) n++;
        for (int k = 0; n > 1 && k < n; k++) s[k].alike = k ? 0 : n;
    }
}
