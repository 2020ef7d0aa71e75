/* Evaluation on demand: a plan made for the wanted tensors, run once, and thrown away.
 *
 * Tensors in the history that are also held elsewhere are evaluated too, and so are pending
 * variable values: nothing is computed twice, and histories stay short. An evaluated tensor drops
 * its history, unless a recording is open; then it does so when the last recording closes. */
#include "core/alloc.h"
#include "core/context.h"
#include "graph/loop.h"
#include "graph/plan.h"
#include "graph/toposort.h"
#include "ops/op.h"

/* Lazy tensors that the bindings may make before one is evaluated: see mg_eval_pending. */
enum { MAX_UNREPORTED = 2000 };
/* Elements of a tensor that may never need room of its own, such as a one-hot table. */
enum { LARGE = 1 << 24 };

static _Thread_local int n_recordings;
/* Retained: the tensors evaluated while a recording was open. */
static _Thread_local mg_tensor **recorded;
static _Thread_local int n_recorded, recorded_capacity;
static _Thread_local int n_unreported;
static _Thread_local size_t bytes_of_values; /* see mg_eval_take_bytes */

/* Inside a trace its tensors cannot be evaluated. */
static bool is_tracing(void) {
    return mg_context_get()->trace != 0 || mg_loop_current();
}

/* ---- recordings ---- */

/* Recordings nest. */
void mg_recording_begin(void) {
    n_recordings++;
}

/* Gradients need histories, so the bindings open a recording around their function. */
bool mg_recording(void) {
    return n_recordings > 0;
}

/* When the last recording ends, the recorded tensors drop their histories. */
void mg_recording_end(void) {
    if (--n_recordings > 0) return;
    for (int i = 0; i < n_recorded; i++) {
        mg_tensor_drop_history(recorded[i]);
        mg_tensor_release(recorded[i]);
    }
    mg_free(recorded);
    recorded = NULL;
    n_recorded = recorded_capacity = 0;
}

/* The tensor keeps its history until the last recording ends. */
static mg_status record_tensor(mg_tensor *t) {
    MG_TRY(mg_reserve((void **)&recorded, n_recorded, &recorded_capacity, sizeof *recorded));
    recorded[n_recorded++] = mg_tensor_retain(t);
    return MG_OK;
}

/* t, which has a value, needs its history until the last recording closes. */
static mg_status end_history(mg_tensor *t) {
    if (mg_recording()) return record_tensor(t);
    mg_tensor_drop_history(t);
    return MG_OK;
}

/* n_recorded is 0 from here on: once is enough. */
mg_status mg_recorded_end(mg_tensor *t) {
    if (!t->n_recorded) return MG_OK;
    t->n_recorded = 0;
    return end_history(t);
}

/* ---- what to compute ---- */

/* Has an op and no value yet. The context is unused: for mg_toposort_collect. */
static bool is_lazy(const mg_tensor *t, void *context) {
    (void)context;
    return t->kind == MG_LAZY && !t->buffer;
}

/* An op without inputs that is not random: computing it again costs less than keeping it. */
static bool is_cheap_source(const mg_tensor *t) {
    return t->n_inputs == 0 && !(t->op->flags & MG_OP_RANDOM);
}

/* Adds to the roots each tensor of the history that is held outside of it: one with more references
 * than there are inputs of lazy tensors of the walk that refer to it. `roots` has room for all of
 * the walk; the first n_wanted are the wanted ones. */
static mg_status add_held_tensors(const mg_toposort *walk, mg_tensor **roots, int *n,
                                  int n_wanted) {
    /* references from inputs of lazy tensors of the walk, and whether a root already */
    int *inner = mg_alloc_zero((size_t)walk->n * sizeof *inner);
    bool *taken = mg_alloc_zero((size_t)walk->n);
    const mg_status status = inner && taken ? MG_OK : MG_OOM;
    for (int i = 0; i < walk->n && status == MG_OK; i++) {
        const mg_tensor *t = walk->items[i];
        if (!is_lazy(t, NULL)) continue;
        for (int k = 0; k < t->n_inputs; k++) inner[t->inputs[k]->position]++;
    }
    for (int i = 0; i < n_wanted && status == MG_OK; i++) taken[roots[i]->position] = true;
    for (int i = 0; i < walk->n && status == MG_OK; i++) {
        mg_tensor *t = walk->items[i];
        if (!taken[i] && is_lazy(t, NULL) && !is_cheap_source(t) && !t->op->n_results &&
            atomic_load(&t->refs) > inner[i])
            roots[(*n)++] = t;
    }
    mg_free(inner);
    mg_free(taken);
    return status;
}

/* t gets the buffer of its computed value. A tensor that could lie anywhere lies from here on where
 * it was made. */
static mg_status attach_value(mg_tensor *t, const mg_tensor *value) {
    t->buffer = mg_buffer_retain(value->buffer);
    t->device = t->buffer->device;
    bytes_of_values += mg_tensor_bytes(t);
    return end_history(t);
}

/* Makes the plan, runs it, and attaches the results. Making the plan may itself evaluate some of
 * the roots, so they are checked again. */
static mg_status compute_roots(mg_tensor **roots, int n) {
    mg_tensor **results = mg_alloc_zero((size_t)n * sizeof *results);
    if (!results) return MG_OOM;
    const mg_plan_spec spec = {.device = roots[0]->device, .n_outputs = n, .outputs = roots};
    /* An evaluation on the way may release their other references. */
    for (int i = 0; i < n; i++) mg_tensor_retain(roots[i]);
    mg_plan *plan = mg_plan_new(&spec);
    mg_status status = plan ? mg_plan_execute(plan, NULL, results) : mg_error_code();
    for (int i = 0; i < n && status == MG_OK; i++)
        if (is_lazy(roots[i], NULL)) status = attach_value(roots[i], results[i]);
    for (int i = 0; i < n; i++) mg_tensor_release(roots[i]);
    for (int i = 0; i < n; i++) mg_tensor_release(results[i]);
    mg_plan_free(plan);
    mg_free(results);
    return status;
}

/* Lists the wanted tensors without a value, once each, and this thread's first n_pending pending
 * variable values. Only those on the first one's device: a plan of mg_eval is for one device, and
 * the others are left to later calls. Retained, because an evaluation on the way may prune the
 * variables. */
static int list_roots(mg_tensor *const *t, int n, int n_pending, mg_tensor **roots) {
    const uint32_t number = mg_toposort_new_visit();
    int n_roots = 0;
    for (int i = 0; i < n + n_pending; i++) {
        const mg_variable *v = i < n ? NULL : mg_variables_pending(i - n);
        mg_tensor *x = i < n ? t[i] : v ? v->value : NULL;
        if (!x || !is_lazy(x, NULL) || x->visit == number) continue;
        if (n_roots && x->device != roots[0]->device) continue; /* left to another call */
        x->visit = number;
        roots[n_roots++] = mg_tensor_retain(x);
    }
    return n_roots;
}

/* Placeholders of a trace, parameters of a loop, and the tensors computed from them, have no
 * values. */
static mg_status check_not_tracing(mg_tensor *const *t, int n) {
    for (int i = 0; i < n; i++) {
        if (t[i]->in_loop && mg_loop_current())
            return mg_fail(MG_USAGE, "no value is available inside the function of mgpu.scan: all "
                                     "steps are traced as one; return the tensor as a part of y "
                                     "and read it outside");
        if (t[i]->in_loop)
            return mg_fail(MG_USAGE, "a tensor made inside the function of mgpu.scan was used "
                                     "after it: return it from the function");
        if (t[i]->kind == MG_ARGUMENT || t[i]->kind == MG_VARREAD ||
            (is_tracing() && t[i]->trace && !t[i]->buffer))
            return mg_fail(MG_USAGE, "no value is available inside mgpu.jit: the function is only "
                                     "being traced; return the tensor and read it outside");
    }
    return MG_OK;
}

/* A lazy `place` op in the walk, or NULL: its input lies on another device. */
static mg_tensor *find_place_op(const mg_toposort *walk) {
    static const mg_op *place;
    if (!place) place = mg_op_find("place");
    for (int i = 0; i < walk->n; i++)
        if (walk->items[i]->op == place && is_lazy(walk->items[i], NULL)) return walk->items[i];
    return NULL;
}

static mg_status eval_some(mg_tensor *const *t, int n, int n_pending);

/* Evaluates a place op by itself: its input there, then a copy here. No pending variable is
 * evaluated on the way: its value may itself need this place op, which would never end. */
static mg_status copy_from_device(mg_tensor *t) {
    mg_tensor *from = mg_tensor_retain(t->inputs[0]), *held = mg_tensor_retain(t);
    mg_status status = from->buffer ? MG_OK : eval_some(&from, 1, 0);
    mg_tensor *value = status == MG_OK ? mg_value_copy(from, t->device) : NULL;
    if (status == MG_OK && !value) status = mg_error_code();
    if (status == MG_OK && is_lazy(t, NULL)) status = attach_value(t, value);
    mg_tensor_release(value);
    mg_tensor_release(from);
    mg_tensor_release(held);
    return status;
}

/* Copies everything that the roots need from other devices to theirs. Roots that got their values
 * on the way are removed. On success the walk lists what is left to compute. */
static mg_status copy_from_devices(mg_toposort *walk, mg_tensor **roots, int *n) {
    MG_TRY(mg_toposort_collect(walk, roots, *n, is_lazy, NULL));
    for (mg_tensor *far; (far = find_place_op(walk));) {
        mg_toposort_free(walk);
        MG_TRY(copy_from_device(far));
        for (int i = 0; i < *n; i++)
            if (!is_lazy(roots[i], NULL)) {
                mg_tensor_release(roots[i]);
                roots[i--] = roots[--*n];
            }
        MG_TRY(mg_toposort_collect(walk, roots, *n, is_lazy, NULL));
    }
    return MG_OK;
}

/* The results of recorded runs that the walk has met are read. */
static mg_status end_recorded(const mg_toposort *walk) {
    for (int i = 0; i < walk->n; i++) MG_TRY(mg_recorded_end(walk->items[i]));
    return MG_OK;
}

/* One plan: the wanted tensors of one device. Other devices' are left lazy. */
static mg_status eval_some(mg_tensor *const *t, int n, int n_pending) {
    mg_tensor **wanted = mg_alloc((size_t)(n + n_pending + 1) * sizeof *wanted), **roots = NULL;
    mg_toposort walk = {0};
    if (!wanted) return MG_OOM;
    /* 1. the wanted tensors, 2. copies from other devices, 3. other tensors that are worth
     * keeping */
    int n_wanted = list_roots(t, n, n_pending, wanted);
    mg_status status = n_wanted ? copy_from_devices(&walk, wanted, &n_wanted) : MG_OK;
    if (n_wanted && status == MG_OK) {
        int n_roots = n_wanted;
        roots = mg_alloc((size_t)(walk.n + 1) * sizeof *roots);
        if (!roots) status = MG_OOM;
        for (int i = 0; i < n_roots && status == MG_OK; i++) roots[i] = wanted[i];
        if (status == MG_OK) status = add_held_tensors(&walk, roots, &n_roots, n_roots);
        if (status == MG_OK) status = end_recorded(&walk);
        if (status == MG_OK) status = compute_roots(roots, n_roots);
    }
    mg_toposort_free(&walk);
    for (int i = 0; i < n_wanted; i++) mg_tensor_release(wanted[i]);
    mg_free(roots);
    mg_free(wanted);
    if (status == MG_OK) mg_variables_prune();
    return status;
}

/* For the bindings, which tell the garbage collector of memory that it does not see. */
size_t mg_eval_take_bytes(void) {
    const size_t bytes = bytes_of_values;
    bytes_of_values = 0;
    return bytes;
}

/* Each round evaluates the tensors of at least one device. */
mg_status mg_eval(mg_tensor *const *t, int n) {
    MG_TRY(mg_tensors_check(t, n, "eval"));
    MG_TRY(check_not_tracing(t, n));
    for (int i = 0; i < n; i++) MG_TRY(mg_recorded_end(t[i]));
    for (int i = 0; i < n; i++)
        if (!t[i]->buffer) MG_TRY(eval_some(t, n, is_tracing() ? 0 : mg_variables_n_pending()));
    return MG_OK;
}

/* One call of eval_some evaluates those of one device; the others stay pending. */
mg_status mg_eval_variables(void) {
    for (int i = 0; i < mg_variables_n_pending(); i++)
        if (mg_variables_pending(i))
            return eval_some(NULL, 0, is_tracing() ? 0 : mg_variables_n_pending());
    return MG_OK;
}

/* n_unreported counts the tensors since the last evaluation. */
mg_status mg_eval_pending(mg_tensor *newest) {
    if (is_tracing() || ++n_unreported < MAX_UNREPORTED) return MG_OK;
    /* With a value it would be bound to one device, or take much memory; a tensor computed from it
     * is a better choice. */
    const bool waits = newest->any_device || mg_tensor_count(newest) > LARGE;
    if (waits && n_unreported < 2 * MAX_UNREPORTED) return MG_OK;
    n_unreported = 0;
    return mg_eval(&newest, 1);
}

/* ---- reading ---- */

/* Waits for unanswered guards first: a failure could take the value back. */
mg_status mg_tensor_read(mg_tensor *t, void *dst) {
    MG_TRY(mg_eval(&t, 1));
    MG_TRY(mg_value_wait(t));
    const size_t bytes = mg_tensor_bytes(t);
    mg_device *d = t->buffer->device;
    return bytes ? d->api->copy_out(d, dst, t->buffer->data, bytes) : MG_OK;
}

/* Reads a copy in the tensor's own dtype, then converts it. */
mg_status mg_tensor_read_double(mg_tensor *t, double *dst) {
    MG_TRY(mg_tensors_check(&t, 1, "read"));
    const size_t bytes = mg_tensor_bytes(t);
    void *raw = mg_alloc(bytes);
    if (!raw) return MG_OOM;
    const mg_status status = mg_tensor_read(t, raw);
    if (status == MG_OK) mg_to_double(dst, raw, (mg_dtype)t->dtype, (size_t)mg_tensor_count(t));
    mg_free(raw);
    return status;
}

/* ---- running a traced plan ---- */

/* Evaluates the arguments and variables that p reads, because the run itself evaluates nothing. */
static mg_status eval_inputs(const mg_plan *p, mg_tensor *const *args) {
    for (int i = 0; i < p->n_assigns; i++)
        if (!p->variables[i]->value->buffer) MG_TRY(mg_eval(&p->variables[i]->value, 1));
    for (int k = 0; k < p->n_parts; k++) {
        const mg_lowered *l = &p->parts[k].lowered;
        for (int i = 0; i < l->graph.n_external; i++) {
            const mg_external *e = &l->externals[i];
            mg_tensor *t = e->kind == MG_EXTERNAL_ARGUMENT   ? args[e->index]
                           : e->kind == MG_EXTERNAL_VARIABLE ? e->variable->value
                                                             : NULL;
            if (t && !t->buffer) MG_TRY(mg_eval(&t, 1));
        }
    }
    return MG_OK;
}

/* For traced plans, whose arguments may be lazy. */
mg_status mg_plan_run(mg_plan *p, mg_tensor *const *args, mg_tensor **results) {
    for (int i = 0; i < p->n_outputs; i++) results[i] = NULL;
    MG_TRY(eval_inputs(p, args));
    return mg_plan_execute(p, args, results);
}

mg_status mg_plan_begin(mg_plan *p, mg_tensor *const *args) {
    MG_TRY(eval_inputs(p, args));
    return mg_plan_start(p, args);
}
