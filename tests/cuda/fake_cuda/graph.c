/* CUDA graphs: the nodes that a stream recorded and their dependencies. An executable graph is a
 * copy with an order of its nodes.
 *
 * The order is the valid one that is furthest from the recorded one: of all nodes whose
 * dependencies are done, the last recorded runs next. So a missing dependency gives wrong results
 * here instead of now and then on a GPU. */
#include "gpu.h"
#include <stdlib.h>
#include <string.h>

typedef struct contents {
    int refs; /* of the executable graph, and of launches that have not run */
    struct CUgraph_st graph;
    size_t *order; /* node numbers as they run; owned */
} contents;

struct CUgraphExec_st {
    contents *now;
};

bool fake_cuda_places_set(fake_cuda_places *places, const size_t *at, size_t n) {
    size_t *own = malloc((n + 1) * sizeof *own);
    if (!own) return false;
    if (n) memcpy(own, at, n * sizeof *own);
    free(places->at);
    *places = (fake_cuda_places){own, n};
    return true;
}

/* Frees all nodes, and tells the owners of their arguments. */
static void clear_graph(struct CUgraph_st *g) {
    for (size_t i = 0; i < g->n; i++) {
        const fake_cuda_node *n = &g->nodes[i];
        if (n->held) n->held(n->args, -1);
        free(n->args);
        free(n->waits);
    }
    free(g->nodes);
    *g = (struct CUgraph_st){0};
}

/* Copies the node with its arguments and dependencies, and finds its counter of replays. */
bool fake_cuda_graph_add(CUgraph g, const fake_cuda_node *like) {
    fake_cuda_places waits = {0};
    /* Grows geometrically, so that long captures stay linear. */
    if (g->n == g->room) {
        fake_cuda_node *more = realloc(g->nodes, (g->room * 2 + 32) * sizeof *more);
        if (!more) return false;
        g->nodes = more;
        g->room = g->room * 2 + 32;
    }
    fake_cuda_node node = *like;
    node.args = malloc(node.bytes + 1);
    if (!node.args || !fake_cuda_places_set(&waits, like->waits, like->n_waits)) return false;
    node.waits = waits.at;
    if (node.bytes) memcpy(node.args, like->args, node.bytes);
    node.replays = fake_cuda_counter_of("", node.name, " in graph");
    if (node.held) node.held(node.args, 1);
    g->nodes[g->n++] = node;
    return true;
}

/* Appends copies of all nodes; false without memory. */
static bool copy_graph(struct CUgraph_st *to, const struct CUgraph_st *from) {
    for (size_t i = 0; i < from->n; i++)
        if (!fake_cuda_graph_add(to, &from->nodes[i])) return false;
    return true;
}

/* Whether all dependencies of the node are done. */
static bool may_run(const fake_cuda_node *n, const bool *done) {
    for (size_t i = 0; i < n->n_waits; i++)
        if (!done[n->waits[i]]) return false;
    return true;
}

/* The order in which the nodes run: see the head of the file. Owned by the caller; NULL without
 * memory. */
static size_t *find_order(const struct CUgraph_st *g) {
    size_t *order = malloc((g->n + 1) * sizeof *order);
    bool *done = calloc(g->n + 1, sizeof *done);
    for (size_t k = 0; k < g->n && order && done; k++) {
        /* From the end: the last node that is not done and whose dependencies are. One exists,
           since a node depends on earlier ones only. */
        size_t i = g->n - 1;
        while (done[i] || !may_run(&g->nodes[i], done)) i--;
        order[k] = i;
        done[i] = true;
    }
    free(done);
    return order;
}

/* Runs one node now. */
static void run_node(const fake_cuda_node *n) {
    void *args = malloc(n->bytes + 1); /* a copy for each replay: the work may change it */
    if (!args) return;
    if (n->bytes) memcpy(args, n->args, n->bytes);
    n->work(args);
    free(args);
    fake_cuda_add(n->replays);
}

/* Runs a graph: all its nodes, in its order. */
static void run_nodes(const contents *c) {
    for (size_t i = 0; i < c->graph.n; i++) run_node(&c->graph.nodes[c->order[i]]);
}

static contents *hold(contents *c) {
    __atomic_add_fetch(&c->refs, 1, __ATOMIC_SEQ_CST);
    return c;
}

/* Frees it with the last reference. Accepts NULL. */
static void let_go(contents *c) {
    if (!c || __atomic_sub_fetch(&c->refs, 1, __ATOMIC_SEQ_CST) > 0) return;
    clear_graph(&c->graph);
    free(c->order);
    free(c);
}

/* A copy of the graph, with the order in which it runs; NULL without memory. */
static contents *contents_of(const struct CUgraph_st *graph) {
    contents *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    c->refs = 1;
    if (copy_graph(&c->graph, graph) && (c->order = find_order(graph))) return c;
    let_go(c);
    return NULL;
}

/* An executable graph that was made from it is a copy and stays valid. */
CUresult cuGraphDestroy(CUgraph graph) {
    ENTER(cuGraphDestroy);
    if (!graph) return CUDA_ERROR_INVALID_VALUE;
    clear_graph(graph);
    free(graph);
    return CUDA_SUCCESS;
}

/* There are no node objects here, so this only returns the number of nodes. */
CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *n) {
    ENTER(cuGraphGetNodes);
    if (!graph || nodes) return CUDA_ERROR_INVALID_VALUE;
    *n = graph->n;
    return CUDA_SUCCESS;
}

CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, unsigned long long flags) {
    ENTER(cuGraphInstantiate);
    if (!graph || flags) return CUDA_ERROR_INVALID_VALUE;
    *exec = calloc(1, sizeof **exec);
    if (*exec && ((*exec)->now = contents_of(graph))) return CUDA_SUCCESS;
    free(*exec);
    *exec = NULL;
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Launches that have not run hold a reference to their contents. */
CUresult cuGraphExecDestroy(CUgraphExec exec) {
    ENTER(cuGraphExecDestroy);
    if (!exec) return CUDA_ERROR_INVALID_VALUE;
    let_go(exec->now);
    free(exec);
    return CUDA_SUCCESS;
}

/* Whether two graphs have the same topology: the same work functions with the same dependencies. */
static bool same_nodes(const struct CUgraph_st *a, const struct CUgraph_st *b) {
    if (a->n != b->n) return false;
    for (size_t i = 0; i < a->n; i++)
        if (a->nodes[i].work != b->nodes[i].work || a->nodes[i].n_waits != b->nodes[i].n_waits ||
            memcmp(a->nodes[i].waits, b->nodes[i].waits,
                   a->nodes[i].n_waits * sizeof *a->nodes[i].waits) != 0)
            return false;
    return true;
}

/* Takes the kernels, addresses and other arguments of `graph`, which must have the same topology;
 * else it fails as the real one does, and `exec` stays as it is. Launches before are not changed.
 */
CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info) {
    ENTER(cuGraphExecUpdate);
    if (!exec || !graph || !info) return CUDA_ERROR_INVALID_VALUE;
    const bool same = same_nodes(&exec->now->graph, graph);
    memset(info, 0, sizeof *info);
    info->result =
        same ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    if (!same) return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    contents *fresh = contents_of(graph);
    if (!fresh) return CUDA_ERROR_OUT_OF_MEMORY;
    let_go(exec->now);
    exec->now = fresh;
    return CUDA_SUCCESS;
}

/* The work of cuGraphLaunch: contents that it holds. */
static void run_launched(void *args) {
    contents *c = *(contents **)args;
    run_nodes(c);
    let_go(c);
}

/* The same in another graph: an executable graph, which must still live. */
static void run_child(void *args) {
    run_nodes((*(CUgraphExec *)args)->now);
}

/* Whether a collective is in it, which waits for other GPUs. */
static bool waits_for_others(const contents *c) {
    for (size_t i = 0; i < c->graph.n; i++)
        if (c->graph.nodes[i].held) return true;
    return false;
}

/* On a stream that captures, the whole graph becomes one node. */
CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
    ENTER(cuGraphLaunch);
    if (!exec) return CUDA_ERROR_INVALID_VALUE;
    const CUresult r = fake_cuda_stream_error(stream);
    if (r != CUDA_SUCCESS) return r;
    if (fake_cuda_capturing(stream))
        return fake_cuda_enqueue(stream, "cuGraphLaunch", run_child, &exec, sizeof exec);
    contents *c = hold(exec->now);
    return waits_for_others(c)
               ? fake_cuda_enqueue_apart(stream, "cuGraphLaunch", run_launched, NULL, &c, sizeof c)
               : fake_cuda_enqueue(stream, "cuGraphLaunch", run_launched, &c, sizeof c);
}
