/* Graphs: what a stream recorded, as a list in its order. An executable one is a copy. */
#include "gpu.h"
#include <stdlib.h>
#include <string.h>

struct CUgraphExec_st {
    struct CUgraph_st graph;
};

static void clear(struct CUgraph_st *g) {
    for (size_t i = 0; i < g->n; i++) free(g->nodes[i].args);
    free(g->nodes);
    *g = (struct CUgraph_st){0};
}

bool standin_graph_add(CUgraph g, const char *name, standin_work *work, const void *args,
                       size_t bytes) {
    if (g->n == g->room) {
        standin_node *more = realloc(g->nodes, (g->room * 2 + 32) * sizeof *more);
        if (!more) return false;
        g->nodes = more;
        g->room = g->room * 2 + 32;
    }
    standin_node node = {.name = name, .work = work, .bytes = bytes, .args = malloc(bytes + 1)};
    if (!node.args) return false;
    if (bytes) memcpy(node.args, args, bytes);
    node.replays = standin_counter_of("", name, " in graph");
    g->nodes[g->n++] = node;
    return true;
}

static bool copy(struct CUgraph_st *to, const struct CUgraph_st *from) {
    for (size_t i = 0; i < from->n; i++) {
        const standin_node *n = &from->nodes[i];
        if (!standin_graph_add(to, n->name, n->work, n->args, n->bytes)) return false;
    }
    return true;
}

static void run_node(const standin_node *n) {
    void *args = malloc(n->bytes + 1); /* work may change its copy */
    if (!args) return;
    if (n->bytes) memcpy(args, n->args, n->bytes);
    n->work(args);
    free(args);
    standin_add(n->replays);
}

static void run_nodes(const struct CUgraph_st *g) {
    for (size_t i = 0; i < g->n; i++) run_node(&g->nodes[i]);
}

CUresult cuGraphDestroy(CUgraph graph) {
    ENTER(cuGraphDestroy);
    if (!graph) return CUDA_ERROR_INVALID_VALUE;
    clear(graph);
    free(graph);
    return CUDA_SUCCESS;
}

/* Nodes are not objects of their own: only their number is known. */
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
    if (*exec && copy(&(*exec)->graph, graph)) return CUDA_SUCCESS;
    if (*exec) clear(&(*exec)->graph);
    free(*exec);
    *exec = NULL;
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuGraphExecDestroy(CUgraphExec exec) {
    ENTER(cuGraphExecDestroy);
    if (!exec) return CUDA_ERROR_INVALID_VALUE;
    clear(&exec->graph);
    free(exec);
    return CUDA_SUCCESS;
}

static bool same_nodes(const struct CUgraph_st *a, const struct CUgraph_st *b) {
    if (a->n != b->n) return false;
    for (size_t i = 0; i < a->n; i++)
        if (a->nodes[i].work != b->nodes[i].work) return false;
    return true;
}

/* The same kinds of nodes in the same order; kernels and addresses may be others. */
CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info) {
    ENTER(cuGraphExecUpdate);
    struct CUgraph_st fresh = {0};
    if (!exec || !graph || !info) return CUDA_ERROR_INVALID_VALUE;
    const bool same = same_nodes(&exec->graph, graph);
    memset(info, 0, sizeof *info);
    info->result =
        same ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    if (!same) return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    if (!copy(&fresh, graph)) {
        clear(&fresh);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    clear(&exec->graph);
    exec->graph = fresh;
    return CUDA_SUCCESS;
}

static void run_child(void *args) {
    CUgraphExec *exec = args;
    run_nodes(&(*exec)->graph);
}

/* On a stream that captures, its nodes are recorded. */
CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
    ENTER(cuGraphLaunch);
    const CUresult r = standin_stream_error(stream);
    if (r != CUDA_SUCCESS) return r;
    if (!exec) return CUDA_ERROR_INVALID_VALUE;
    if (!standin_capturing(stream))
        return standin_enqueue(stream, "cuGraphLaunch", run_child, &exec, sizeof exec);
    if (stream->spoilt) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    return copy(stream->capture, &exec->graph) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
