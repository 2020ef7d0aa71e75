/* Recording a program's calls into CUDA graphs, so that a step costs the host one launch.
 *
 * A recording holds for one list of addresses: calls are recorded with the memory they work on.
 * Memory that comes and goes has the same few addresses again and again (memory.c), and values that
 * wander get a place (places.h), so a handful of recordings serves a training loop; a new list
 * takes over the oldest one's graph, whose nodes are given the new addresses. The first run of a
 * program is not recorded: most run only once. Calls that wait (collectives between streams,
 * reference kernels) stand between two recordings. */
#include "device/cuda/graph/cuda_graph.h"
#include "core/alloc.h"
#include "core/log.h"
#include "core/threads.h"
#include "device/cuda/kernels/params.h"
#include "device/cuda/codegen/module.h"
#include "device/cuda/context/context.h"
#include "device/fault.h"
#include <stdlib.h>
#include <string.h>

enum { RECORDINGS = 16, N_PHASES = MG_BOTH_PHASES + 1 };

typedef struct recording {
    CUgraphExec graph; /* NULL: this one is empty */
    mg_phase phase;
    int first;         /* its first call */
    const void *arena; /* the addresses: of the arena, */
    const mg_comm *comm, *world;
    int generation;  /* of the communicators: each adds to it */
    void **external; /* and of the external values */
    uint64_t used;   /* when last */
} recording;

/* MGPU_CUDA_RECORD, for looking into trouble: apart (the default; see apart.h), chain, no. */
typedef enum way { APART, CHAIN, NOT } way;

typedef struct program {
    mg_device *device;
    mg_program *calls;
    mg_step *steps; /* what they were made of */
    int n_external;
    mg_cuda_graph_inputs *places;
    bool draws[N_PHASES];
    way way;
    uint64_t runs[N_PHASES];
    uint64_t clock;
    recording kept[RECORDINGS];
} program;

/* ---- finding ---- */

static int generation_of(const mg_run *run) {
    return (run->comm ? run->comm->generation : 0) + (run->world ? run->world->generation : 0);
}

static bool is_for(const program *p, const recording *r, const mg_run *run, int first) {
    return r->graph && r->first == first && r->phase == run->phase && r->arena == run->arena &&
           r->comm == run->comm && r->world == run->world && r->generation == generation_of(run) &&
           memcmp(r->external, run->external, (size_t)p->n_external * sizeof *r->external) == 0;
}

static recording *find(program *p, const mg_run *run, int first) {
    for (int i = 0; i < RECORDINGS; i++)
        if (is_for(p, &p->kept[i], run, first)) return &p->kept[i];
    return NULL;
}

static void drop(recording *r) {
    if (r->graph) mg_cu.cuGraphExecDestroy(r->graph);
    r->graph = NULL;
}

/* Those with a communicator that was aborted since: it ends when the last of them does. */
static void drop_void(program *p, const mg_run *run) {
    for (int i = 0; i < RECORDINGS; i++) {
        recording *r = &p->kept[i];
        if (r->comm == run->comm && r->world == run->world && r->generation != generation_of(run))
            drop(r);
    }
}

/* An empty one, or the one used longest ago. */
static recording *oldest(program *p) {
    recording *old = &p->kept[0];
    for (int i = 0; i < RECORDINGS; i++) {
        if (!p->kept[i].graph) return &p->kept[i];
        if (p->kept[i].used < old->used) old = &p->kept[i];
    }
    return old;
}

/* ---- recording ---- */

/* What the driver, or a library, will not have recorded goes without from now on. */
static void note_refusal(program *p, CUresult r) {
    if (r < CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED || r > CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD)
        return;
    mg_log("fallback", "%s: a step is not recorded: %s", p->device->name, mg_error_message());
    p->way = NOT;
}

/* A recording of a whole step moves the random state on itself, to where the next one wants it. */
static bool moves_rng(const program *p, const mg_run *run, int first, int last) {
    int begin, end;
    mg_program_phase(p->calls, run->phase, &begin, &end);
    return run->phase == MG_BOTH_PHASES && p->draws[run->phase] && first == begin && last == end;
}

static mg_status record_calls(program *p, const mg_run *run, int first, int last) {
    const mg_cuda *s = p->device->state;
    const rng_advance_params rng = {.cell = (mg_rng_cell *)(uintptr_t)s->rng, .by = run->draws};
    MG_TRY(p->way == APART ? mg_cuda_capture_calls(p->device, p->calls, run, first, last)
                           : mg_program_record_calls(p->calls, run, first, last));
    if (!moves_rng(p, run, first, last)) return MG_OK;
    return mg_cuda_launch(p->device, s->rng_advance, 1, 1, 0, &rng);
}

/* The calls [first, last) as a graph that was not started. */
static mg_status capture(program *p, const mg_run *run, int first, int last, CUgraph *graph) {
    const mg_cuda *s = p->device->state;
    MG_TRY(mg_cuda_check(p->device,
                         mg_cu.cuStreamBeginCapture(s->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
                         "begin a recording"));
    mg_status status = record_calls(p, run, first, last);
    const CUresult r = mg_cu.cuStreamEndCapture(s->stream, graph);
    const bool made = r == CUDA_SUCCESS && *graph;
    if (status != MG_OK && made) mg_cu.cuGraphDestroy(*graph);
    if (status == MG_OK) status = mg_cuda_check(p->device, r, "end a recording");
    if (status != MG_OK) note_refusal(p, r);
    return status;
}

/* The graph in place of r's own: the same nodes with other addresses if that is possible. */
static CUresult replace(recording *r, bool same_calls, CUgraph graph) {
    CUgraphExecUpdateResultInfo info;
    if (r->graph && same_calls && mg_cu.cuGraphExecUpdate(r->graph, graph, &info) == CUDA_SUCCESS)
        return CUDA_SUCCESS;
    drop(r);
    return mg_cu.cuGraphInstantiate(&r->graph, graph, 0);
}

static mg_status record(program *p, const mg_run *run, int first, int last, recording **made) {
    recording *r = oldest(p);
    CUgraph graph = NULL;
    const size_t n = (size_t)p->n_external;
    if (!r->external && !(r->external = mg_alloc((n + 1) * sizeof *r->external))) return MG_OOM;
    MG_TRY(capture(p, run, first, last, &graph));
    const bool same_calls = r->first == first && r->phase == run->phase && r->comm == run->comm &&
                            r->world == run->world;
    const CUresult result = replace(r, same_calls, graph);
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

static mg_status replay(program *p, const mg_run *run, int first, int last) {
    mg_cuda *s = p->device->state;
    recording *r = find(p, run, first);
    const mg_status status = r ? MG_OK : record(p, run, first, last, &r);
    if (status == MG_OOM || (status != MG_OK && p->way == NOT)) { /* it goes without */
        mg_error_clear();
        return mg_program_run_calls(p->calls, run, first, last);
    }
    MG_TRY(status);
    r->used = ++p->clock;
    const CUresult result = mg_cu.cuGraphLaunch(r->graph, s->stream);
    if (result != CUDA_SUCCESS) s->rng_known = false;
    if (moves_rng(p, run, first, last)) s->rng_there.base += run->draws;
    return mg_cuda_check(p->device, result, "start a graph");
}

/* Kernels read the random state from memory: a recording draws anew each time. Sent if it is not
 * there; between two pieces another thread may have sent its own. */
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

/* Calls of which none waits. */
static mg_status run_piece(program *p, const mg_run *run, int first, int last, bool recorded) {
    mg_cuda *s = p->device->state;
    mg_status status = MG_OK;
    pthread_mutex_lock(&s->turn);
    if (p->draws[run->phase]) status = send_rng(p, run);
    if (status == MG_OK)
        status = recorded ? replay(p, run, first, last)
                          : mg_program_run_calls(p->calls, run, first, last);
    pthread_mutex_unlock(&s->turn);
    return status;
}

/* With failures on the way: who does not come back from a call must not keep others from the
 * device. */
static mg_status run_failing(program *p, const mg_run *run, int first, int last) {
    if (p->draws[run->phase] && first < last) MG_TRY(send_rng(p, run));
    mg_cuda_of(p->device)->rng_known = false; /* without the turn others may send theirs */
    return mg_program_run_calls(p->calls, run, first, last);
}

mg_status mg_cuda_program_run(mg_program *calls, const mg_run *given) {
    program *p = (program *)calls;
    int first, last, after;
    mg_run own = *given, *run = &own;
    MG_TRY(mg_cuda_enter(p->device));
    drop_void(p, run);
    MG_TRY(mg_cuda_graph_inputs_copy_in(p->places, given, &own.external));
    mg_program_phase(p->calls, run->phase, &first, &last);
    const bool recorded = p->runs[run->phase]++ > 0 && p->way != NOT;
    if (mg_fault_planned()) {
        MG_TRY(run_failing(p, run, first, last));
        first = last;
    }
    for (int i = first; i < last; i = after) {
        const int wait = mg_program_next_wait(p->calls, run, i, last, &after);
        if (i == first && run->phase != MG_COMMIT && mg_interrupt_pending() && mg_interrupt_take())
            return mg_fail(MG_INTERRUPTED, "interrupted");
        if (wait > i) MG_TRY(run_piece(p, run, i, wait, recorded));
        if (wait < last) MG_TRY(mg_program_run_calls(p->calls, run, wait, after));
    }
    return mg_cuda_graph_inputs_copy_out(p->places, given);
}

/* ---- life ---- */

/* The program's calls, with all the kernels that they want. */
static mg_status compile_calls(program *p, const mg_kernel_set *set, const mg_kernel_graph *graph) {
    mg_cuda *s = p->device->state;
    mg_kernel_graph joined = *graph;
    pthread_mutex_lock(&s->compiling);
    mg_status status = mg_cuda_fuse_epilogues(p->device, graph, &p->steps);
    joined.steps = p->steps;
    if (status == MG_OK) status = mg_program_compile(p->device, set, &joined, &p->calls);
    if (status != MG_OK) {
        mg_cuda_modules_forget(s);
    } else if ((status = mg_cuda_modules_finish(p->device)) != MG_OK) {
        mg_program_release(p->calls);
    }
    pthread_mutex_unlock(&s->compiling);
    return status;
}

static mg_status choose_way(way *chosen) {
    static const char *const names[] = {[APART] = "apart", [CHAIN] = "chain", [NOT] = "no"};
    const char *text = getenv("MGPU_CUDA_RECORD");
    *chosen = APART;
    if (!text || !*text) return MG_OK;
    for (*chosen = APART; *chosen <= NOT; ++*chosen)
        if (strcmp(text, names[*chosen]) == 0) return MG_OK;
    return mg_fail(MG_USAGE, "MGPU_CUDA_RECORD is \"%s\": it must be apart, chain or no", text);
}

mg_status mg_cuda_program_compile(mg_device *d, const mg_kernel_set *set,
                                  const mg_kernel_graph *graph, mg_program **made) {
    way chosen;
    MG_TRY(choose_way(&chosen));
    MG_TRY(mg_cuda_enter(d));
    program *p = mg_alloc_zero(sizeof *p);
    if (!p) return MG_OOM;
    p->device = d;
    p->way = chosen;
    p->n_external = graph->n_external;
    p->places = mg_cuda_graph_inputs_new(d, graph);
    const mg_status status = p->places ? compile_calls(p, set, graph) : MG_OOM;
    if (status != MG_OK) {
        mg_cuda_graph_inputs_free(p->places);
        mg_free(p->steps);
        mg_free(p);
        return status;
    }
    for (int phase = 0; phase < N_PHASES; phase++)
        p->draws[phase] = mg_program_draws(p->calls, (mg_phase)phase);
    *made = (mg_program *)p;
    return MG_OK;
}

void mg_cuda_program_release(mg_program *calls) {
    program *p = (program *)calls;
    if (!p) return;
    mg_cu.cuCtxSetCurrent(mg_cuda_of(p->device)->context); /* an error here changes nothing */
    for (int i = 0; i < RECORDINGS; i++) {
        drop(&p->kept[i]);
        mg_free(p->kept[i].external);
    }
    mg_cuda_graph_inputs_free(p->places);
    mg_program_release(p->calls);
    mg_free(p->steps);
    mg_free(p);
}

size_t mg_cuda_program_arena_bytes(const mg_program *calls) {
    return mg_program_arena_bytes(((const program *)calls)->calls);
}
