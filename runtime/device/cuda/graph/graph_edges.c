/* A graph of what must come before what, instead of a chain.
 *
 * The stream records a chain: each kernel behind the one before. But a step has many small kernels
 * that have nothing to do with each other, and a GPU has room for several at once. A call must wait
 * for an earlier one only if one of the two writes bytes that the other touches; all that a call
 * touches is known, its scratch and the reuse of the arena included. So before each call the place
 * where the stream records is moved behind just those calls. */
#include "device/cuda/graph/cuda_graph.h"
#include "core/alloc.h"
#include "device/cuda/context/context.h"
#include <string.h>

enum { MOST_RANGES = 2048 };

typedef struct node { /* a call, and those that run together with it */
    mg_range *ranges;
    int n_ranges;
    uint64_t *before;  /* bits: the nodes it comes after, by any path */
    CUgraphNode *ends; /* what it recorded last; of a call without work: what it would come after */
    size_t n_ends;
} node;

typedef struct apart {
    mg_device *device;
    node *nodes;
    int n, words;
} apart;

/* ---- what must come before what ---- */

static bool meet(const node *a, const node *b) {
    for (int i = 0; i < a->n_ranges; i++)
        for (int k = 0; k < b->n_ranges; k++) {
            const mg_range *x = &a->ranges[i], *y = &b->ranges[k];
            if ((x->written || y->written) && x->begin < y->end && y->begin < x->end) return true;
        }
    return false;
}

static bool has(const uint64_t *bits, int i) {
    return bits[i / 64] >> (i % 64) & 1;
}

/* The nodes that number k waits for itself, the latest first; their predecessors are implied. */
static int find_waits(apart *a, int k, int *waits) {
    int n = 0;
    node *now = &a->nodes[k];
    for (int i = k - 1; i >= 0; i--) {
        if (has(now->before, i) || !meet(&a->nodes[i], now)) continue;
        waits[n++] = i;
        now->before[i / 64] |= (uint64_t)1 << (i % 64);
        for (int w = 0; w < a->words; w++) now->before[w] |= a->nodes[i].before[w];
    }
    return n;
}

/* ---- recording ---- */

static mg_status read_place(const apart *a, const CUgraphNode **ends, size_t *n) {
    const mg_cuda *s = a->device->state;
    const CUgraphEdgeData *edges;
    CUstreamCaptureStatus status;
    CUgraph graph;
    cuuint64_t id;
    MG_TRY(mg_cuda_check(
        a->device, mg_cu.cuStreamGetCaptureInfo(s->stream, &status, &id, &graph, ends, &edges, n),
        "record a call"));
    if (status == CU_STREAM_CAPTURE_STATUS_ACTIVE) return MG_OK; /* else the rest says nothing */
    return mg_cuda_check(a->device, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "record a call");
}

/* Once each. */
static size_t add_ends(CUgraphNode *list, size_t n, const node *now) {
    for (size_t i = 0, k; i < now->n_ends; i++) {
        for (k = 0; k < n && list[k] != now->ends[i];) k++;
        if (k == n) list[n++] = now->ends[i];
    }
    return n;
}

/* Behind the ends of the nodes in `waits`. */
static mg_status move_behind(const apart *a, const int *waits, int n) {
    const mg_cuda *s = a->device->state;
    size_t most = 0, n_behind = 0;
    for (int i = 0; i < n; i++) most += a->nodes[waits[i]].n_ends;
    CUgraphNode *behind = mg_alloc((most + 1) * sizeof *behind);
    if (!behind) return MG_OOM;
    for (int i = 0; i < n; i++) n_behind = add_ends(behind, n_behind, &a->nodes[waits[i]]);
    const CUresult r = mg_cu.cuStreamUpdateCaptureDependencies(s->stream, behind, NULL, n_behind,
                                                               CU_STREAM_SET_CAPTURE_DEPENDENCIES);
    mg_free(behind);
    return mg_cuda_check(a->device, r, "record a call");
}

static mg_status record_node(apart *a, int k, mg_program *calls, const mg_run *run, int i,
                             int *waits) {
    const CUgraphNode *ends;
    size_t n;
    node *now = &a->nodes[k];
    MG_TRY(move_behind(a, waits, find_waits(a, k, waits)));
    MG_TRY(mg_program_record_calls(calls, run, i, i + 1));
    MG_TRY(read_place(a, &ends, &n));
    now->ends = mg_alloc((n + 1) * sizeof(CUgraphNode));
    if (!now->ends) return MG_OOM;
    now->n_ends = n;
    if (n) memcpy(now->ends, ends, n * sizeof *ends);
    return MG_OK;
}

static mg_status measure(apart *a, mg_program *calls, const mg_run *run, int *i) {
    mg_range ranges[MOST_RANGES];
    node *now = &a->nodes[a->n];
    const int n = mg_program_touches(calls, run, *i, ranges, MOST_RANGES, i);
    if (n < 0) return mg_fail(MG_INTERNAL, "a call touches more than %d places", MOST_RANGES);
    now->ranges = mg_alloc((size_t)(n + 1) * sizeof *now->ranges);
    now->before = mg_alloc_zero((size_t)a->words * sizeof *now->before);
    a->n++;
    if (!now->ranges || !now->before) return MG_OOM;
    memcpy(now->ranges, ranges, (size_t)n * sizeof *ranges);
    now->n_ranges = n;
    return MG_OK;
}

/* Behind all calls that read the random state. */
static mg_status end_behind_draws(apart *a, int *waits) {
    static const mg_range state = {&mg_program_rng, &mg_program_rng + 1, true};
    node *now = &a->nodes[a->n];
    now->ranges = mg_alloc(sizeof *now->ranges);
    now->before = mg_alloc_zero((size_t)a->words * sizeof *now->before);
    a->n++;
    if (!now->ranges || !now->before) return MG_OOM;
    now->ranges[0] = state;
    now->n_ranges = 1;
    return move_behind(a, waits, find_waits(a, a->n - 1, waits));
}

mg_status mg_cuda_capture_calls(mg_device *d, mg_program *calls, const mg_run *run, int first,
                                int last) {
    apart a = {.device = d, .words = (last - first + 1) / 64 + 1};
    a.nodes = mg_alloc_zero((size_t)(last - first + 1) * sizeof *a.nodes); /* and the end */
    int *waits = mg_alloc((size_t)(last - first + 1) * sizeof *waits);
    mg_status status = a.nodes && waits ? MG_OK : MG_OOM;
    for (int i = first, after = first; after < last && status == MG_OK; i = after) {
        const int k = a.n;
        status = measure(&a, calls, run, &after);
        if (status == MG_OK) status = record_node(&a, k, calls, run, i, waits);
    }
    if (status == MG_OK) status = end_behind_draws(&a, waits);
    for (int k = 0; k < a.n; k++) {
        mg_free(a.nodes[k].ranges);
        mg_free(a.nodes[k].before);
        mg_free(a.nodes[k].ends);
    }
    mg_free(a.nodes);
    mg_free(waits);
    return status;
}
