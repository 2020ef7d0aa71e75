/* Running a program: its calls are captured into CUDA graphs, so that a step costs the host one
 * launch.
 *
 * A graph is valid for one list of addresses, because calls are captured with the memory they work
 * on. Freed memory is kept and reused at the same few addresses (context/memory.c), and values that
 * move are copied to stable ones (graph_inputs.c), so a handful of graphs serves a training loop.
 * When all slots are taken, the least recently used graph is updated to the new addresses.
 *
 * The first run of a program is not captured: most programs run only once. Calls that wait for
 * something (collectives between streams, the host fallback) cannot be captured and run between two
 * graphs. */
#include "device/cuda/graph/cuda_graph.h"
#include "core/alloc.h"
#include "core/log.h"
#include "core/profile.h"
#include "core/threads.h"
#include "device/cuda/kernels/params.h"
#include "device/cuda/codegen/module.h"
#include "device/cuda/context/context.h"
#include "device/fault.h"
#include <stdlib.h>
#include <string.h>

enum { MOST_GRAPHS = 16, N_PHASES = MG_BOTH_PHASES + 1 };

/* An executable graph, with everything that it was captured for. */
typedef struct recording {
    CUgraphExec graph; /* NULL: the slot is empty */
    mg_phase phase;
    int first;                   /* its first call */
    const void *arena;           /* the arena's address */
    const mg_comm *comm, *world; /* the communicators, */
    int generation;              /* and the sum of their generations, which change at resets */
    void **external;             /* owned: the addresses of the external values */
    uint64_t used;               /* the program's clock at its last launch */
} recording;

/* MGPU_CUDA_GRAPH, for debugging. parallel (the default): edges only where one call must wait for
 * another (graph_edges.c). chain: one call after the other. no: nothing is captured. */
typedef enum capture_mode { PARALLEL, CHAIN, NO_CAPTURE } capture_mode;

typedef struct program {
    mg_device *device;
    mg_program *calls;
    int n_external;
    mg_cuda_graph_inputs *inputs;
    bool draws[N_PHASES]; /* the phase draws random numbers relative to the run's state */
    capture_mode mode;
    bool told;               /* the failure of a capture was logged */
    uint64_t runs[N_PHASES]; /* so far */
    uint64_t clock;          /* counts launches of graphs */
    recording graphs[MOST_GRAPHS];
} program;

/* ---- finding a graph ---- */

/* Aborting and resetting a communicator raises its generation; graphs captured before are
 * invalid. */
static int generation_of(const mg_run *run) {
    return (run->comm ? run->comm->generation : 0) + (run->world ? run->world->generation : 0);
}

/* Whether the graph is for a run with these addresses and communicators, from this call on. */
static bool matches_run(const program *p, const recording *r, const mg_run *run, int first) {
    return r->graph && r->first == first && r->phase == run->phase && r->arena == run->arena &&
           r->comm == run->comm && r->world == run->world && r->generation == generation_of(run) &&
           memcmp(r->external, run->external, (size_t)p->n_external * sizeof *r->external) == 0;
}

/* A linear search over a few slots: comparing addresses costs less than a hash of them. */
static recording *find_graph(program *p, const mg_run *run, int first) {
    for (int i = 0; i < MOST_GRAPHS; i++)
        if (matches_run(p, &p->graphs[i], run, first)) return &p->graphs[i];
    return NULL;
}

/* Leaves the slot empty, with its list of addresses for the next graph. */
static void drop_graph(recording *r) {
    if (r->graph) mg_cu.cuGraphExecDestroy(r->graph);
    r->graph = NULL;
}

/* Drops graphs of a communicator that was aborted later, because it is freed with the last of
 * them. */
static void drop_aborted(program *p, const mg_run *run) {
    for (int i = 0; i < MOST_GRAPHS; i++) {
        recording *r = &p->graphs[i];
        if (r->comm == run->comm && r->world == run->world && r->generation != generation_of(run))
            drop_graph(r);
    }
}

/* An empty slot, or the least recently used graph. */
static recording *least_recent(program *p) {
    recording *old = &p->graphs[0];
    for (int i = 0; i < MOST_GRAPHS; i++) {
        if (!p->graphs[i].graph) return &p->graphs[i];
        if (p->graphs[i].used < old->used) old = &p->graphs[i];
    }
    return old;
}

/* ---- capturing ---- */

/* If the driver or a library refuses to be captured, the program runs without graphs from now on.
 */
static void note_refusal(program *p, CUresult r) {
    if (r >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED && r <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD)
        p->mode = NO_CAPTURE;
}

/* Whether the calls can run without a graph after a failed capture, which has changed nothing. Logs
 * this once. False for a lost device, an aborted communicator and an interrupt. */
static bool can_run_uncaptured(program *p, mg_status status) {
    if (mg_cuda_of(p->device)->dead || status == MG_COMM || status == MG_INTERRUPTED) return false;
    if (!p->told)
        mg_log("fallback", "%s: a step is not captured into a CUDA graph: %s", p->device->name,
               mg_error_message());
    p->told = true;
    mg_error_clear();
    return true;
}

mg_status mg_cuda_advance_rng(const mg_device *d, uint64_t draws) {
    const mg_cuda *s = d->state;
    const rng_advance_params p = {.cell = (mg_rng_cell *)(uintptr_t)s->rng, .by = draws};
    return mg_cuda_launch(d, s->rng_advance, 1, 1, 0, &p);
}

/* Whether a graph of these calls advances the random state itself, to the state of the next step:
 * only if it is the graph of a whole step. */
static bool advances_rng(const program *p, const mg_run *run, int first, int last) {
    int begin, end;
    mg_program_phase(p->calls, run->phase, &begin, &end);
    return run->phase == MG_BOTH_PHASES && p->draws[run->phase] && first == begin && last == end;
}

/* Whether the calls before `last` are all of the commit phase. */
static bool ends_commit(const program *p, const mg_run *run, int last) {
    int begin, end;
    mg_program_phase(p->calls, run->phase, &begin, &end);
    return (run->phase == MG_COMMIT || run->phase == MG_BOTH_PHASES) && last == end;
}

/* Enqueues the calls on the capturing stream, with edges according to the mode. */
static mg_status capture_calls(program *p, const mg_run *run, int first, int last) {
    const bool advances = advances_rng(p, run, first, last);
    if (p->mode == PARALLEL)
        return mg_cuda_capture_calls(p->device, p->calls, run, first, last, advances);
    MG_TRY(mg_program_record_calls(p->calls, run, first, last));
    return advances ? mg_cuda_advance_rng(p->device, run->draws) : MG_OK;
}

/* *graph: the calls [first, last), not launched yet. The capture is ended also after a failure. */
static mg_status capture(program *p, const mg_run *run, int first, int last, CUgraph *graph) {
    const mg_cuda *s = p->device->state;
    MG_TRY(mg_cuda_check(p->device,
                         mg_cu.cuStreamBeginCapture(s->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
                         "begin a capture"));
    mg_status status = capture_calls(p, run, first, last);
    const bool failed = status != MG_OK;
    const CUresult r = mg_cu.cuStreamEndCapture(s->stream, graph);
    const bool made = r == CUDA_SUCCESS && *graph;
    if (failed && made) mg_cu.cuGraphDestroy(*graph);
    if (status == MG_OK) status = mg_cuda_check(p->device, r, "end a capture");
    /* Calls that failed half way leave the stream's work unjoined, which does not count as a
     * refusal. */
    if (status != MG_OK && (!failed || r != CUDA_ERROR_STREAM_CAPTURE_UNJOINED)) note_refusal(p, r);
    return status;
}

/* Replaces r's graph. If both have the same calls, the addresses in r's graph are updated, which is
 * cheaper than instantiating a new one. */
static CUresult replace_graph(recording *r, bool same_calls, CUgraph graph) {
    CUgraphExecUpdateResultInfo info;
    if (r->graph && same_calls && mg_cu.cuGraphExecUpdate(r->graph, graph, &info) == CUDA_SUCCESS)
        return CUDA_SUCCESS;
    drop_graph(r);
    return mg_cu.cuGraphInstantiate(&r->graph, graph, 0);
}

/* Captures the calls [first, last) into the least recently used slot. */
static mg_status record_graph(program *p, const mg_run *run, int first, int last,
                              recording **made) {
    recording *r = least_recent(p);
    CUgraph graph = NULL;
    const size_t n = (size_t)p->n_external;
    if (!r->external && !(r->external = mg_alloc((n + 1) * sizeof *r->external))) return MG_OOM;
    MG_TRY(capture(p, run, first, last, &graph));
    const bool same_calls = r->first == first && r->phase == run->phase && r->comm == run->comm &&
                            r->world == run->world;
    const CUresult result = replace_graph(r, same_calls, graph);
    mg_cu.cuGraphDestroy(graph);
    if (result != CUDA_SUCCESS) {
        r->graph = NULL;
        return mg_cuda_check(p->device, result, "make a graph");
    }
    r->first = first;
    r->phase = run->phase;
    r->arena = run->arena;
    r->comm = run->comm;
    r->world = run->world;
    r->generation = generation_of(run);
    memcpy(r->external, run->external, n * sizeof *r->external);
    *made = r;
    return MG_OK;
}

/* ---- running ---- */

/* Launches the graph of the calls [first, last), captured now if there is none. The caller holds
 * the device's turn. */
static mg_status launch_graph(program *p, const mg_run *run, int first, int last) {
    mg_cuda *s = p->device->state;
    recording *r = find_graph(p, run, first);
    const mg_status status = r ? MG_OK : record_graph(p, run, first, last, &r);
    if (status != MG_OK && can_run_uncaptured(p, status))
        return mg_program_run_calls(p->calls, run, first, last);
    MG_TRY(status);
    r->used = ++p->clock;
    const CUresult result = mg_cu.cuGraphLaunch(r->graph, s->stream);
    if (result != CUDA_SUCCESS) s->rng_known = false;
    if (result == CUDA_SUCCESS && ends_commit(p, run, last)) *run->finished = true;
    if (advances_rng(p, run, first, last)) s->rng_there.base += run->draws;
    return mg_cuda_check(p->device, result, "start a graph");
}

/* Copies the run's random state to device memory. Kernels read it there, so that a graph draws new
 * numbers at every launch. The copy is skipped if device memory already has this state: usually,
 * unless another thread ran a program in between. */
static mg_status send_rng(program *p, const mg_run *run) {
    mg_cuda *s = p->device->state;
    const mg_rng_cell cell = {.base = run->rng.base, .seed = run->rng.seed};
    if (s->rng_known && s->rng_there.base == cell.base && s->rng_there.seed == cell.seed)
        return MG_OK;
    const CUresult r = mg_cu.cuMemcpyHtoDAsync(s->rng, &cell, sizeof cell, s->stream);
    s->rng_known = r == CUDA_SUCCESS;
    s->rng_there = run->rng;
    return mg_cuda_check(p->device, r, "send the random state");
}

/* Runs the calls [first, last), none of which waits. */
static mg_status run_piece(program *p, const mg_run *run, int first, int last, bool captured) {
    mg_cuda *s = p->device->state;
    mg_status status = MG_OK;
    pthread_mutex_lock(&s->turn);
    if (p->draws[run->phase]) status = send_rng(p, run);
    if (status == MG_OK)
        status = captured ? launch_graph(p, run, first, last)
                          : mg_program_run_calls(p->calls, run, first, last);
    pthread_mutex_unlock(&s->turn);
    return status;
}

/* A run with an injected fault (device/fault.h), without graphs and without holding the turn: a
 * call that hangs must not block the device for other threads. */
static mg_status run_with_fault(program *p, const mg_run *run, int first, int last) {
    if (p->draws[run->phase] && first < last) MG_TRY(send_rng(p, run));
    mg_cuda_of(p->device)->rng_known = false; /* other threads may send theirs */
    return mg_program_run_calls(p->calls, run, first, last);
}

/* Alternates between pieces that can be captured and calls that wait. Nothing has changed yet when
 * the first piece begins, so Ctrl-C may stop the run there. */
mg_status mg_cuda_program_run(mg_program *calls, const mg_run *given) {
    program *p = (program *)calls;
    int first, last, after;
    mg_run own = *given, *run = &own;
    MG_TRY(mg_cuda_enter(p->device));
    drop_aborted(p, run);
    MG_TRY(mg_cuda_graph_inputs_copy_in(p->inputs, given, &own.external));
    mg_program_phase(p->calls, run->phase, &first, &last);
    /* A profile times each launch. */
    const bool captured = p->runs[run->phase]++ > 0 && p->mode != NO_CAPTURE && !mg_profile_is_on();
    if (mg_fault_planned()) {
        MG_TRY(run_with_fault(p, run, first, last));
        first = last;
    }
    for (int i = first; i < last; i = after) {
        const int wait = mg_program_next_wait(p->calls, run, i, last, &after);
        if (i == first && run->phase != MG_COMMIT) MG_TRY(mg_program_check_stop(run));
        if (wait > i) MG_TRY(run_piece(p, run, i, wait, captured));
        if (wait < last) MG_TRY(mg_program_run_calls(p->calls, run, wait, after));
    }
    return mg_cuda_graph_inputs_copy_out(p->inputs, given);
}

/* ---- life ---- */

/* Makes the program's calls, and compiles and loads all generated kernels that they need. */
static mg_status compile_calls(program *p, const mg_kernel_set *set, const mg_kernel_graph *graph) {
    mg_cuda *s = p->device->state;
    pthread_mutex_lock(&s->compiling);
    mg_status status = mg_program_compile(p->device, set, graph, &p->calls);
    if (status != MG_OK) {
        mg_cuda_modules_forget(s);
    } else if ((status = mg_cuda_modules_finish(p->device)) != MG_OK) {
        mg_program_release(p->calls);
    }
    pthread_mutex_unlock(&s->compiling);
    return status;
}

/* From MGPU_CUDA_GRAPH. */
static mg_status read_capture_mode(capture_mode *mode) {
    static const char *const names[] = {
        [PARALLEL] = "parallel", [CHAIN] = "chain", [NO_CAPTURE] = "no"};
    const char *text = getenv("MGPU_CUDA_GRAPH");
    *mode = PARALLEL;
    if (!text || !*text) return MG_OK;
    for (*mode = PARALLEL; *mode <= NO_CAPTURE; ++*mode)
        if (strcmp(text, names[*mode]) == 0) return MG_OK;
    return mg_fail(MG_USAGE, "MGPU_CUDA_GRAPH is \"%s\": it must be parallel, chain or no", text);
}

mg_status mg_cuda_program_compile(mg_device *d, const mg_kernel_set *set,
                                  const mg_kernel_graph *graph, mg_program **made) {
    capture_mode mode;
    MG_TRY(read_capture_mode(&mode));
    MG_TRY(mg_cuda_enter(d));
    program *p = mg_alloc_zero(sizeof *p);
    if (!p) return MG_OOM;
    p->device = d;
    p->mode = mode;
    p->n_external = graph->n_external;
    p->inputs = mg_cuda_graph_inputs_new(d, graph);
    const mg_status status = p->inputs ? compile_calls(p, set, graph) : MG_OOM;
    if (status != MG_OK) {
        mg_cuda_graph_inputs_free(p->inputs);
        mg_free(p);
        return status;
    }
    for (int phase = 0; phase < N_PHASES; phase++)
        p->draws[phase] = mg_program_draws(p->calls, (mg_phase)phase);
    *made = (mg_program *)p;
    return MG_OK;
}

/* The graphs are freed before the memory that they use. */
void mg_cuda_program_release(mg_program *calls) {
    program *p = (program *)calls;
    if (!p) return;
    mg_cu.cuCtxSetCurrent(
        mg_cuda_of(p->device)->context); /* if this fails there is nothing to free */
    for (int i = 0; i < MOST_GRAPHS; i++) {
        drop_graph(&p->graphs[i]);
        mg_free(p->graphs[i].external);
    }
    mg_cuda_graph_inputs_free(p->inputs);
    mg_program_release(p->calls);
    mg_free(p);
}

size_t mg_cuda_program_arena_bytes(const mg_program *calls) {
    return mg_program_arena_bytes(((const program *)calls)->calls);
}
