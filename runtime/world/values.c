/* Sums of values among the ranks: see values.h. */
#include "world/values.h"
#include "core/alloc.h"
#include "world/exchange.h"
#include "world/world.h"
#include <math.h>
#include <string.h>

/* Of all calls here. The first call opens it, at the same point on all ranks. */
static uint32_t next_tag(void) {
    static mg_channel channel;
    static bool is_open;
    if (!is_open) channel = mg_channel_open();
    is_open = true;
    return mg_channel_tag(&channel);
}

mg_status mg_world_meet_for_values(int64_t number, uint32_t flags) {
    bool differs;
    MG_TRY(mg_world_meet(MG_AT_VALUES, number, 0, &differs));
    return mg_world_agree(flags);
}

mg_status mg_world_sum(const void *in, void *out, int64_t count, mg_dtype t) {
    if (mg_world_size() == 1) {
        memcpy(out, in, (size_t)count * mg_dtype_size(t));
        return MG_OK;
    }
    return mg_exchange_reduce(next_tag(), in, out, count, t, MG_REDUCE_SUM, -1);
}

mg_status mg_world_swap(int peer, const void *out, void *in, size_t bytes) {
    if (mg_world_size() == 1) return MG_OK;
    return mg_exchange_swap(next_tag(), peer, out, in, bytes);
}

/* ---- the largest numbers ---- */

typedef struct sent { /* one number that a rank sends */
    int64_t at;
    float value;
} sent;

static void swap_floats(float *a, float *b) {
    const float kept = *a;
    *a = *b;
    *b = kept;
}

/* The k-th largest of the magnitudes (k from 1), which it puts into another order: quickselect. */
static float find_kth(float *m, int64_t count, int64_t k) {
    int64_t first = 0, last = count - 1;
    while (first < last) {
        const float pivot = m[first + (last - first) / 2];
        int64_t i = first, j = last;
        while (i <= j) {
            while (m[i] > pivot) i++;
            while (m[j] < pivot) j--;
            if (i <= j) swap_floats(&m[i++], &m[j--]);
        }
        if (k - 1 <= j)
            last = j;
        else if (k - 1 >= i)
            first = i;
        else
            break;
    }
    return m[k - 1];
}

/* Moves the k numbers of greatest magnitude to `list`, in their order; `room` holds count floats.
 */
static void take_largest(float *values, int64_t count, int64_t k, float *room, sent *list) {
    for (int64_t i = 0; i < count; i++) room[i] = fabsf(values[i]);
    const float limit = find_kth(room, count, k);
    int64_t above = 0, n = 0;
    for (int64_t i = 0; i < count; i++) above += fabsf(values[i]) > limit;
    int64_t equal = k - above; /* so many of those at the limit */
    for (int64_t i = 0; i < count && n < k; i++) {
        const float m = fabsf(values[i]);
        if (m < limit || (m == limit && equal-- <= 0)) continue;
        list[n++] = (sent){i, values[i]};
        values[i] = 0;
    }
}

static mg_status gather_sent(sent *all, int64_t largest, int size) {
    size_t *bytes = mg_alloc((size_t)size * sizeof *bytes);
    if (!bytes) return MG_OOM;
    for (int r = 0; r < size; r++) bytes[r] = (size_t)largest * sizeof *all;
    const mg_status status = mg_exchange_gather(next_tag(), all, bytes);
    mg_free(bytes);
    return status;
}

mg_status mg_world_sum_largest(float *values, float *total, int64_t count, int64_t largest) {
    const int size = mg_world_size();
    sent *all = mg_alloc_zero((size_t)size * (size_t)largest * sizeof *all);
    if (!all) return MG_OOM;
    take_largest(values, count, largest, total, all + mg_world_rank() * largest);
    const mg_status status = size > 1 ? gather_sent(all, largest, size) : MG_OK;
    memset(total, 0, (size_t)count * sizeof *total);
    for (int64_t i = 0; i < size * largest && status == MG_OK; i++)
        total[all[i].at] += all[i].value;
    mg_free(all);
    return status;
}
