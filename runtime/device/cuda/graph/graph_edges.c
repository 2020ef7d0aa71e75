/* The edges of a CUDA graph: which captured call waits for which.
 *
 * By default a stream captures a chain, in which each kernel waits for the previous one. But a step
 * has many small independent kernels, and a GPU can run several at once. A call must wait for an
 * earlier one only if one of the two writes bytes that the other reads or writes. The program knows
 * all bytes that a call touches, including its scratch and reused parts of the arena. So before
 * each call is captured, the stream's capture dependencies are set to exactly the calls it
 * conflicts with.
 *
 * At the end the stream is made to depend on every leaf of the graph. Otherwise a library that
 * captures on its own stream (as NCCL does) would leave work that the capturing stream has not
 * joined, and the driver may refuse to end the capture. */
#include "core/alloc.h"
#include "device/cuda/context/context.h"
#include "device/cuda/graph/cuda_graph.h"
#include <string.h>

/* Byte ranges that one call may touch: concat and multi-tensor updates have hundreds. */
enum { MOST_RANGES = 2048 };

/* A vertex of the dependency graph: one call, or several that the program runs as one. */
typedef struct node {
    mg_range *ranges; /* owned: the bytes it reads or writes */
    int n_ranges;
    uint64_t *before; /* owned, a bit set: all nodes that it depends on, by any path */
    /* Owned: the graph nodes captured last. For a call that enqueued nothing, the nodes that the
     * stream depended on at that moment, so that waiting for the call means waiting for them. */
    CUgraphNode *ends;
    size_t n_ends;
} node;

typedef struct edge_builder {
    mg_device *device;
    node *nodes;
    int n;
    int words;  /* of a bit set over all nodes */
    int *waits; /* room for a list of all nodes */
} edge_builder;

/* ---- which node must wait for which ---- */

/* Whether one node writes bytes that the other touches. */
static bool ranges_conflict(const node *a, const node *b) {
    for (int i = 0; i < a->n_ranges; i++)
        for (int k = 0; k < b->n_ranges; k++) {
            const mg_range *x = &a->ranges[i], *y = &b->ranges[k];
            if ((x->written || y->written) && x->begin < y->end && y->begin < x->end) return true;
        }
    return false;
}

static bool has_bit(const uint64_t *bits, int i) {
    return bits[i / 64] >> (i % 64) & 1;
}

/* Writes to `waits` the nodes that node k needs an edge from, and returns their number. Going
 * backwards, a node that an edge already implies by transitivity needs none of its own. */
static int find_waits(edge_builder *b, int k) {
    int n = 0;
    node *now = &b->nodes[k];
    for (int i = k - 1; i >= 0; i--) {
        if (has_bit(now->before, i) || !ranges_conflict(&b->nodes[i], now)) continue;
        b->waits[n++] = i;
        now->before[i / 64] |= (uint64_t)1 << (i % 64);
        for (int w = 0; w < b->words; w++) now->before[w] |= b->nodes[i].before[w];
    }
    return n;
}

/* Writes the leaves, nodes that no other waits for, to `waits` and returns their number. */
static int find_leaves(edge_builder *b) {
    int n = 0;
    for (int i = 0; i < b->n; i++) {
        bool leaf = true;
        for (int k = i + 1; k < b->n && leaf; k++) leaf = !has_bit(b->nodes[k].before, i);
        if (leaf) b->waits[n++] = i;
    }
    return n;
}

/* ---- the stream's capture dependencies ---- */

/* The graph nodes that the stream's next work would depend on. *ends belongs to the driver and is
 * valid until the next call about this capture. */
static mg_status read_dependencies(const edge_builder *b, const CUgraphNode **ends, size_t *n) {
    const mg_cuda *s = b->device->state;
    const CUgraphEdgeData *edges;
    CUstreamCaptureStatus status;
    CUgraph graph;
    cuuint64_t id;
    MG_TRY(mg_cuda_check(
        b->device, mg_cu.cuStreamGetCaptureInfo(s->stream, &status, &id, &graph, ends, &edges, n),
        "record a call"));
    if (status == CU_STREAM_CAPTURE_STATUS_ACTIVE) return MG_OK; /* else the rest is not set */
    return mg_cuda_check(b->device, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "record a call");
}

/* Appends those of `ends` that are not in the list of n yet; returns the new length. */
static size_t add_ends(CUgraphNode *list, size_t n, const CUgraphNode *ends, size_t n_ends) {
    for (size_t i = 0, k; i < n_ends; i++) {
        for (k = 0; k < n && list[k] != ends[i];) k++;
        if (k == n) list[n++] = ends[i];
    }
    return n;
}

/* Makes the stream's next work depend on the n nodes in `waits`, and on nothing else but, with
 * `and_now`, what it depends on now. */
static mg_status set_dependencies(const edge_builder *b, int n, bool and_now) {
    const mg_cuda *s = b->device->state;
    const CUgraphNode *now = NULL;
    size_t n_now = 0, total = 0;
    if (and_now) MG_TRY(read_dependencies(b, &now, &n_now));
    size_t most = n_now + 1;
    for (int i = 0; i < n; i++) most += b->nodes[b->waits[i]].n_ends;
    CUgraphNode *list = mg_alloc(most * sizeof(CUgraphNode));
    if (!list) return MG_OOM;
    total = add_ends(list, total, now, n_now);
    for (int i = 0; i < n; i++) {
        const node *waited = &b->nodes[b->waits[i]];
        total = add_ends(list, total, waited->ends, waited->n_ends);
    }
    const CUresult r = mg_cu.cuStreamUpdateCaptureDependencies(s->stream, list, NULL, total,
                                                               CU_STREAM_SET_CAPTURE_DEPENDENCIES);
    mg_free(list);
    return mg_cuda_check(b->device, r, "record a call");
}

/* ---- nodes ---- */

/* A new node that touches these ranges. After an error its parts are for free_nodes. */
static mg_status add_node(edge_builder *b, const mg_range *ranges, int n) {
    node *now = &b->nodes[b->n++];
    now->ranges = mg_alloc((size_t)(n + 1) * sizeof *now->ranges);
    now->before = mg_alloc_zero((size_t)b->words * sizeof *now->before);
    if (!now->ranges || !now->before) return MG_OOM;
    if (n) memcpy(now->ranges, ranges, (size_t)n * sizeof *ranges);
    now->n_ranges = n;
    return MG_OK;
}

/* Adds the node of call i; *after is the next call. */
static mg_status add_call_node(edge_builder *b, mg_program *calls, const mg_run *run, int i,
                               int *after) {
    mg_range ranges[MOST_RANGES];
    const int n = mg_program_touches(calls, run, i, ranges, MOST_RANGES, after);
    if (n < 0) return mg_fail(MG_INTERNAL, "a call touches more than %d places", MOST_RANGES);
    return add_node(b, ranges, n);
}

/* The kernels of a collective get the highest priority: of what is ready it starts first, since
 * other GPUs wait for it. They keep few multiprocessors busy, but would come late if they waited
 * for all blocks of a large kernel beside them. A node that is no kernel has no priority. */
static void hurry(const edge_builder *b, const CUgraphNode *nodes, size_t n) {
    const CUlaunchAttributeValue value = {.priority = mg_cuda_of(b->device)->urgent};
    for (size_t i = 0; i < n && value.priority; i++)
        mg_cu.cuGraphKernelNodeSetAttribute(nodes[i], CU_LAUNCH_ATTRIBUTE_PRIORITY, &value);
}

/* Makes the stream depend on the nodes that the call must wait for, captures the call, and stores
 * its last graph nodes. */
static mg_status capture_call(edge_builder *b, int k, mg_program *calls, const mg_run *run, int i) {
    const CUgraphNode *ends;
    size_t n;
    node *now = &b->nodes[k];
    MG_TRY(set_dependencies(b, find_waits(b, k), false));
    MG_TRY(mg_program_record_calls(calls, run, i, i + 1));
    MG_TRY(read_dependencies(b, &ends, &n));
    now->ends = mg_alloc((n + 1) * sizeof(CUgraphNode));
    if (!now->ends) return MG_OOM;
    now->n_ends = n;
    if (n) memcpy(now->ends, ends, n * sizeof *ends);
    if (mg_program_is_collective(calls, run, i)) hurry(b, now->ends, n);
    return MG_OK;
}

/* Captures the kernel that advances the run's random state, after all calls that read it. */
static mg_status capture_rng_advance(edge_builder *b, const mg_run *run) {
    static const mg_range state = {&mg_program_rng, &mg_program_rng + 1, true};
    MG_TRY(add_node(b, &state, 1));
    MG_TRY(set_dependencies(b, find_waits(b, b->n - 1), false));
    return mg_cuda_advance_rng(b->device, run->draws);
}

static void free_nodes(edge_builder *b) {
    for (int k = 0; k < b->n; k++) {
        mg_free(b->nodes[k].ranges);
        mg_free(b->nodes[k].before);
        mg_free(b->nodes[k].ends);
    }
    mg_free(b->nodes);
    mg_free(b->waits);
}

mg_status mg_cuda_capture_calls(mg_device *d, mg_program *calls, const mg_run *run, int first,
                                int last, bool advances_rng) {
    const size_t most = (size_t)(last - first + 1); /* calls, and the advance of the random state */
    edge_builder b = {.device = d, .words = (int)most / 64 + 1};
    b.nodes = mg_alloc_zero(most * sizeof *b.nodes);
    b.waits = mg_alloc(most * sizeof *b.waits);
    mg_status status = b.nodes && b.waits ? MG_OK : MG_OOM;
    for (int i = first, after = first; after < last && status == MG_OK; i = after) {
        const int k = b.n;
        status = add_call_node(&b, calls, run, i, &after);
        if (status == MG_OK) status = capture_call(&b, k, calls, run, i);
    }
    if (status == MG_OK && advances_rng) status = capture_rng_advance(&b, run);
    if (status == MG_OK) status = set_dependencies(&b, find_leaves(&b), advances_rng);
    free_nodes(&b);
    return status;
}
