/* Loops in programs: the call of a scan compiles the loop's graph to a program of the same device,
 * and runs it once per step with other addresses. See program.h.
 *
 * Nothing is copied where it can be avoided: a step reads its entries of the arrays in place,
 * writes its entries of the stacks in place, and hands its carries on by their addresses. A carry
 * has two buffers, of which a step reads one and writes the other; the first value is read from the
 * scan's input, the last is written to its output. Entries whose size is not a multiple of 16 bytes
 * do not all begin at addresses that kernels expect, so they are copied. */
#include "core/alloc.h"
#include "device/program/program.h"
#include "device/program/host_program.h"
#include <string.h>

enum { N_BUFFERS = 2, ENTRY_ALIGNMENT = 16 };

typedef struct loop_state {
    const mg_step_loop *loop;
    const mg_kernel_set *set;
    mg_program *program; /* of one step */
    /* Places in the scratch memory, which begins with the arena of the program; 0: none. */
    size_t *buffers; /* per root: two buffers, of a carry, or of an entry that is copied */
    size_t *copies;  /* per external value: of an array's entry that is copied */
    int *maker;      /* per root: the root whose memory its value is made in, or -1: a step only
                        hands it on */
} loop_state;

/* Addresses of the step that runs. */
typedef struct loop_run {
    const loop_state *state;
    const mg_call *call;
    const mg_run *run;
    void **external; /* of the step */
    void **carry;    /* the carries before the step */
    void **next;     /* and after it */
    int64_t entry;   /* of arrays and stacks that the step takes */
    int64_t step;
} loop_run;

static void loop_release(void *state) {
    loop_state *s = state;
    if (!s) return;
    mg_program_release(s->program);
    mg_free(s->buffers);
    mg_free(s->copies);
    mg_free(s->maker);
    mg_free(s);
}

static mg_status loop_run_call(const mg_call *call) {
    (void)call;
    return mg_fail(MG_INTERNAL, "scan: was run without its run");
}

const mg_kernel mg_loop_kernel = {.name = "loop", .run = loop_run_call, .release = loop_release};

/* ---- preparing ---- */

static size_t root_bytes(const mg_step_loop *loop, int r) {
    return mg_value_bytes(&loop->graph->values[loop->roots[r].external]);
}

static size_t aligned(size_t bytes) {
    return (bytes + MG_ARENA_ALIGNMENT - 1) & ~(size_t)(MG_ARENA_ALIGNMENT - 1);
}

/* The root that makes external value e: the first that is stacked, so that this stack needs no
 * copy, or else the first. */
static int find_maker(const mg_step_loop *loop, int e) {
    int maker = -1;
    for (int r = loop->n_roots - 1; r >= 0; r--) {
        if (loop->roots[r].external != e) continue;
        if (maker < 0 || loop->roots[r].carry < 0 || loop->roots[maker].carry >= 0) maker = r;
    }
    return maker;
}

static void find_makers(loop_state *s) {
    const mg_step_loop *loop = s->loop;
    for (int r = 0; r < loop->n_roots; r++) {
        const int e = loop->roots[r].external;
        s->maker[r] = loop->input[e] >= 0 ? -1 : find_maker(loop, e);
    }
}

/* Takes a part of the scratch memory; never at 0. */
static size_t take(mg_kernel_plan *plan, size_t bytes) {
    const size_t place = plan->scratch;
    plan->scratch += aligned(bytes);
    return place;
}

/* Divides the scratch memory. */
static void place_buffers(loop_state *s, mg_kernel_plan *plan) {
    const mg_step_loop *loop = s->loop;
    plan->scratch = aligned(mg_program_arena_bytes(s->program) + 1);
    for (int r = 0; r < loop->n_roots; r++) {
        const size_t bytes = root_bytes(loop, r);
        if (loop->roots[r].carry >= 0 || (s->maker[r] == r && bytes % ENTRY_ALIGNMENT))
            s->buffers[r] = take(plan, N_BUFFERS * aligned(bytes));
    }
    for (int e = 0; e < loop->graph->n_external; e++) {
        const size_t bytes = mg_value_bytes(&loop->graph->values[e]);
        if (loop->input[e] >= 0 && loop->operands[loop->input[e]].role == MG_LOOP_ROWS &&
            bytes % ENTRY_ALIGNMENT)
            s->copies[e] = take(plan, bytes);
    }
}

mg_status mg_loop_prepare(const mg_kernel_set *set, mg_kernel_plan *plan) {
    loop_state *s = mg_alloc_zero(sizeof *s);
    if (!s) return MG_OOM;
    plan->state = s;
    s->loop = plan->step->loop;
    s->set = set;
    s->buffers = mg_alloc_zero((size_t)(s->loop->n_roots + 1) * sizeof *s->buffers);
    s->copies = mg_alloc_zero((size_t)(s->loop->graph->n_external + 1) * sizeof *s->copies);
    s->maker = mg_alloc_zero((size_t)(s->loop->n_roots + 1) * sizeof *s->maker);
    if (!s->buffers || !s->copies || !s->maker) return MG_OOM;
    MG_TRY(mg_program_compile(plan->device, set, s->loop->graph, &s->program));
    find_makers(s);
    place_buffers(s, plan);
    return MG_OK;
}

bool mg_loop_waits(const mg_kernel_plan *plan) {
    const loop_state *s = plan->state;
    for (int i = 0; i < s->program->n_calls; i++) {
        const mg_program_call *k = &s->program->calls[i];
        if (k->kernel->waits || (k->kernel == &mg_loop_kernel && mg_loop_waits(&k->plan)))
            return true;
    }
    return false;
}

/* ---- running ---- */

static mg_status copy(const loop_run *r, void *dst, const void *src, size_t bytes) {
    const mg_kernel_set *set = r->state->set;
    if (dst == src || !bytes) return MG_OK;
    if (set->copy) return set->copy(r->run->device, dst, src, bytes);
    memcpy(dst, src, bytes);
    return MG_OK;
}

/* Binds an external input of the step. */
static mg_status bind_input(const loop_run *r, int external) {
    const mg_step_loop *loop = r->state->loop;
    const int input = loop->input[external];
    const mg_loop_operand *o = &loop->operands[input];
    const size_t bytes = mg_value_bytes(&loop->graph->values[external]);
    const size_t place = r->state->copies[external];
    char *at = o->role == MG_LOOP_CARRY ? r->carry[o->carry] : r->call->in[input];
    if (o->role == MG_LOOP_ROWS) at += (size_t)r->entry * bytes;
    r->external[external] = place ? (char *)r->call->scratch + place : at;
    return copy(r, r->external[external], at, place ? bytes : 0);
}

/* The root's buffer of this step. */
static void *buffer_address(const loop_run *r, int root) {
    const size_t bytes = aligned(root_bytes(r->state->loop, root));
    return (char *)r->call->scratch + r->state->buffers[root] +
           (size_t)(r->step % N_BUFFERS) * bytes;
}

/* Where the root's value belongs: an entry of a stack, the output for the last carry, or the
 * carry's buffer. */
static void *root_address(const loop_run *r, int root) {
    const mg_step_loop *loop = r->state->loop;
    const mg_loop_root *x = &loop->roots[root];
    if (x->carry < 0)
        return (char *)r->call->out[x->out] + (size_t)r->entry * root_bytes(loop, root);
    const bool last = r->step == loop->steps - 1;
    return x->out >= 0 && last ? r->call->out[x->out] : buffer_address(r, root);
}

static mg_status bind_step(loop_run *r) {
    const mg_step_loop *loop = r->state->loop;
    r->entry = loop->reverse ? loop->steps - 1 - r->step : r->step;
    for (int e = 0; e < loop->graph->n_external; e++)
        if (loop->input[e] >= 0) MG_TRY(bind_input(r, e));
    for (int k = 0; k < loop->n_roots; k++) {
        const bool copied = loop->roots[k].carry < 0 && r->state->buffers[k];
        if (r->state->maker[k] == k)
            r->external[loop->roots[k].external] =
                copied ? buffer_address(r, k) : root_address(r, k);
    }
    return MG_OK;
}

/* After the step: copies what was made elsewhere, and finds the next carries. A carry that keeps
 * its value needs no copy until the end. */
static mg_status hand_on(loop_run *r) {
    const mg_step_loop *loop = r->state->loop;
    const bool last = r->step == loop->steps - 1;
    for (int k = 0; k < loop->n_roots; k++) {
        const mg_loop_root *x = &loop->roots[k];
        void *own = root_address(r, k);
        void *from = r->external[x->external];
        const bool keeps = x->carry >= 0 && from == r->carry[x->carry];
        const bool made = r->state->maker[k] >= 0;
        /* the next step may read a carry where it was made, but not where one was handed on from */
        const bool needs_copy = x->carry < 0 || (last && x->out >= 0) || (!made && !keeps);
        if (needs_copy) MG_TRY(copy(r, own, from, root_bytes(loop, k)));
        if (x->carry >= 0) r->next[x->carry] = needs_copy ? own : from;
    }
    memcpy(r->carry, r->next, (size_t)loop->n_carries * sizeof *r->carry);
    return MG_OK;
}

/* The first carries are inputs of the scan. */
static void take_inputs(loop_run *r) {
    const mg_step_loop *loop = r->state->loop;
    for (int i = 0; i < r->call->plan->step->n_in; i++)
        if (loop->operands[i].role == MG_LOOP_CARRY)
            r->carry[loop->operands[i].carry] = r->call->in[i];
}

static mg_status run_steps(loop_run *r) {
    const mg_step_loop *loop = r->state->loop;
    bool finished = false; /* of the whole run it is not */
    mg_run own = *r->run;
    own.first = NULL;
    own.external = r->external;
    own.arena = r->call->scratch;
    own.phase = MG_COMPUTE;
    own.comm = NULL;
    own.finished = &finished;
    take_inputs(r);
    for (r->step = 0; r->step < loop->steps; r->step++) {
        MG_TRY(bind_step(r));
        MG_TRY(mg_program_run(r->state->program, &own));
        MG_TRY(hand_on(r));
    }
    return MG_OK;
}

mg_status mg_loop_run(const mg_call *call, const mg_run *run) {
    const loop_state *s = call->plan->state;
    const int n_carries = s->loop->n_carries, n_external = s->loop->graph->n_external;
    void **block = mg_alloc_zero((size_t)(n_external + 2 * n_carries + 1) * sizeof *block);
    if (!block) return MG_OOM;
    loop_run r = {.state = s,
                  .call = call,
                  .run = run,
                  .external = block,
                  .carry = block + n_external,
                  .next = block + n_external + n_carries};
    const mg_status status = run_steps(&r);
    mg_free(block);
    return status;
}
