/* Guards of devices that work asynchronously: see async_guards.h. */
#include "graph/async_guards.h"
#include "core/alloc.h"
#include "core/threads.h"
#include "device/buffer.h"
#include "graph/new_values.h"
#include "ops/build.h"

enum { MOST_GUARDS = MG_NOT_AGREED - 1 }; /* the verdict is a byte */

/* A run whose verdict is being read. */
typedef struct judged_run {
    const mg_guard *guards; /* NULL: a failure is not reported */
    mg_rng_state before;    /* the random state before it */
    uint64_t n_draws;       /* draws that it has taken */
} judged_run;

struct mg_async_guards { /* of one device, which frees it when it closes */
    mg_variable *flag; /* a bool on the device: false after a guard failure until it is reported */
    mg_variable *ticket; /* an int64 on the device, the number of the next step on several devices,
                            from 1; NULL: there was none yet */
    bool must_reset;     /* the failure was reported: the flag becomes true before the next run */
    judged_run pending[MG_READBACKS]; /* the first n are in use, in the order of the runs */
    int n;
    bool interrupted; /* the last wait was interrupted */
    char *kept;       /* owned: message of a failure whose plan has been freed, or NULL */
    mg_status kept_code;
};

/* ---- life ---- */

/* The device's release hook. */
static void free_guards(struct mg_async_guards *g) {
    if (g->flag) mg_tensor_count_internal(-1);
    if (g->ticket) mg_tensor_count_internal(-1);
    mg_variable_release(g->flag);
    mg_variable_release(g->ticket);
    mg_free(g->kept);
    mg_free(g);
}

/* A number on d. It is the runtime's own: leak checks do not count it. Owned. */
static mg_variable *new_number(mg_device *d, const void *number, mg_dtype t, const char *name) {
    static const mg_shape scalar = {0};
    mg_tensor *value = mg_tensor_from_host(number, t, &scalar, d);
    mg_variable *made = value ? mg_variable_new(value, name, false) : NULL;
    mg_tensor_release(value);
    if (!made) return NULL;
    mg_tensor_count_internal(1);
    made->internal = true;
    return made;
}

/* The record is made once per device and stays until it closes. */
mg_status mg_async_guards_prepare(mg_device *d, bool several, int n_guards, mg_async_state *state) {
    static const uint8_t yes = 1;
    static const int64_t first = 1;
    *state = (mg_async_state){0};
    if (!d->api->readback_wait || n_guards > MOST_GUARDS) return MG_OK;
    if (!d->guards) {
        d->guards = mg_alloc_zero(sizeof *d->guards);
        d->free_guards = free_guards;
    }
    struct mg_async_guards *g = d->guards;
    if (!g) return MG_OOM;
    if (!g->flag && !(g->flag = new_number(d, &yes, MG_BOOL, "guard flag"))) return mg_error_code();
    if (several && !g->ticket && !(g->ticket = new_number(d, &first, MG_I64, "ticket")))
        return mg_error_code();
    *state = (mg_async_state){g->flag, several ? g->ticket : NULL};
    return MG_OK;
}

/* ---- making such a plan ---- */

/* *verdict: 0 or the number of the first guard that fails, from 1. *all: whether all hold. Both are
 * scalars, borrowed from the open scope; NULL after a failure. */
static void judge_guards(const mg_guard *guards, int n, mg_tensor **verdict, mg_tensor **all) {
    static const mg_shape scalar = {0};
    *verdict = full(0, MG_U8, &scalar);
    *all = NULL;
    for (int i = n - 1; i >= 0; i--) {
        mg_tensor *ok = reshape(guards[i].ok, &scalar);
        *verdict = where(ok, *verdict, full(i + 1, MG_U8, &scalar));
        *all = *all ? binary("logical_and", ok, *all) : ok;
    }
}

/* t becomes the variable's value in the trace. */
static mg_status trace_value(mg_variable *v, mg_tensor *t) {
    if (!t) return mg_error_code();
    mg_tensor_retain(t);
    mg_tensor_release(v->traced);
    v->traced = t;
    return MG_OK;
}

/* The variable's new value becomes `value` where `all` is true, else it stays the old one. */
static mg_status hold_value(mg_variable *v, mg_tensor *all, mg_tensor *value) {
    return trace_value(v, where(all, value, v->entry));
}

/* On several devices: *all only if they all say so, and if not, *verdict tells; the next step has
 * another ticket. */
static mg_status agree(mg_variable *ticket, mg_tensor **verdict, mg_tensor **all) {
    static const mg_shape scalar = {0};
    *all = mg_make("agree", NULL, 2, *all, ticket->entry);
    mg_tensor *known = binary("logical_or", *all, binary("ne", *verdict, full(0, MG_U8, &scalar)));
    *verdict = where(known, *verdict, full(MG_NOT_AGREED, MG_U8, &scalar));
    return *verdict ? trace_value(ticket, shift(ticket->entry, 1)) : mg_error_code();
}

/* The flag becomes "it was true and all guards hold", so it stays false after a failure. */
mg_status mg_async_guards_hold_values(const mg_async_state *state, const mg_guard *guards,
                                      int n_guards, mg_variable *const *variables, int n,
                                      mg_tensor **verdict) {
    mg_scope *scope;
    mg_tensor *judged, *all;
    mg_variable *flag = state->flag;
    MG_TRY(mg_scope_open(&scope));
    judge_guards(guards, n_guards, &judged, &all);
    all = n_guards ? binary("logical_and", all, flag->entry) : flag->entry;
    mg_status status = MG_OK;
    if (state->ticket) status = agree(state->ticket, &judged, &all);
    if (status == MG_OK) status = judged && all ? hold_value(flag, all, all) : mg_error_code();
    for (int i = 0; i < n && status == MG_OK; i++) {
        mg_variable *v = variables[i];
        if (v != flag && v->traced != v->entry) status = hold_value(v, all, v->traced);
    }
    if (status == MG_OK) *verdict = mg_tensor_retain(judged);
    mg_scope_close(scope);
    return status;
}

/* If one of the earlier guards has failed, the verdict is not changed: the variables then keep
 * their old values. */
mg_status mg_async_guards_add_checks(mg_variable *flag, const mg_guard *checks, int n, int n_before,
                                     mg_tensor **verdict) {
    mg_scope *scope;
    MG_TRY(mg_scope_open(&scope));
    mg_tensor *judged = *verdict, *all = flag->traced;
    for (int i = n - 1; i >= 0; i--) {
        mg_tensor *bad = full(n_before + i + 1, MG_U8, &(mg_shape){0});
        judged = where(binary("eq", *verdict, full(0, MG_U8, &(mg_shape){0})),
                       where(checks[i].ok, judged, bad), *verdict);
        all = binary("logical_and", all, checks[i].ok);
    }
    const mg_status status = judged ? trace_value(flag, all) : mg_error_code();
    if (status == MG_OK) {
        mg_tensor_retain(judged);
        mg_tensor_release(*verdict);
        *verdict = judged;
    }
    mg_scope_close(scope);
    return status;
}

/* ---- running it ---- */

static mg_status set_flag(const mg_tensor *flag) {
    static const uint8_t yes = 1;
    mg_device *d = flag->device;
    return d->api->copy_in(d, flag->buffer->data, &yes, 1);
}

/* Writes into the flag's own memory, so it cannot fail for lack of memory. */
mg_status mg_async_guards_reset(mg_device *d) {
    struct mg_async_guards *g = d->guards;
    if (!g->must_reset) return MG_OK;
    MG_TRY(set_flag(g->flag->value));
    for (int i = 0; i < g->flag->n_replicas; i++) MG_TRY(set_flag(g->flag->replicas[i].value));
    g->must_reset = false;
    return MG_OK;
}

void mg_async_guards_reported(mg_device *d) {
    d->guards->must_reset = true;
}

mg_status mg_async_guards_disagree(void) {
    return mg_fail(MG_COMM, "a device failed during the step, or could not be reached by the "
                            "others: the step has changed nothing");
}

/* `before` is the random state that the run began with. */
mg_status mg_async_guards_start(mg_device *d, const mg_guard *guards, const void *verdict,
                                mg_rng_state before, uint64_t n_draws) {
    struct mg_async_guards *g = d->guards;
    const mg_status status = d->api->readback_begin(d, verdict);
    if (status == MG_OK)
        g->pending[g->n++] = (judged_run){guards, before, n_draws};
    else
        g->must_reset = true; /* this error is reported instead of a guard failure */
    return status;
}

/* Resets the random state to the state before the run, or after it if the run has `happened`,
 * because the pending runs after it have changed nothing. Does nothing if the user has set another
 * state since. */
static void take_back_draws(const struct mg_async_guards *g, const judged_run *run, bool happened) {
    const mg_rng_state now = mg_rng_get();
    mg_rng_state wanted = run->before;
    uint64_t n_draws = run->n_draws;
    if (happened && g->n == 0) return;
    for (int i = 0; i < g->n; i++) n_draws += g->pending[i].n_draws;
    if (now.seed != run->before.seed || now.base != run->before.base + n_draws) return;
    if (happened) wanted.base += run->n_draws;
    mg_rng_set(wanted);
}

/* Raises the error that mg_async_guards_forget has kept, and clears it. */
static mg_status raise_kept(struct mg_async_guards *g) {
    mg_fail(g->kept_code, "%s", g->kept);
    mg_free(g->kept);
    g->kept = NULL;
    return g->kept_code;
}

/* The devices' collectives were cut off while they were at work on the run. */
static mg_status fail_to_agree(struct mg_async_guards *g, const judged_run *run) {
    take_back_draws(g, run, false);
    for (int i = 0; i < g->n; i++) g->pending[i] = (judged_run){0};
    g->must_reset = true;
    return mg_async_guards_disagree();
}

/* Waits for the first verdict that is pending. After an interrupt it stays pending; a readback that
 * fails is not waited for again. */
static mg_status wait_for_first(mg_device *d) {
    uint8_t verdict = 0;
    struct mg_async_guards *g = d->guards;
    const judged_run run = g->pending[0];
    const mg_status status = d->api->readback_wait(d, &verdict);
    g->interrupted = status == MG_INTERRUPTED;
    if (g->interrupted) return status;
    for (int i = 1; i < g->n; i++) g->pending[i - 1] = g->pending[i];
    g->n--;
    MG_TRY(status);
    if (!verdict || !run.guards) return MG_OK;
    if (verdict == MG_NOT_AGREED) return fail_to_agree(g, &run);
    const mg_guard *failed = &run.guards[verdict - 1];
    take_back_draws(g, &run, failed->variables != NULL);
    for (int i = 0; i < g->n; i++) g->pending[i] = (judged_run){0};
    g->must_reset = true;
    if (failed->variables) return mg_new_values_raise(failed);
    return mg_fail(failed->code, "%s", failed->message);
}

/* For the verdicts that lie on d. */
static mg_status wait_for_own(mg_device *d) {
    struct mg_async_guards *g = d->guards;
    if (!g) return MG_OK;
    while (g->n > 0) MG_TRY(wait_for_first(d));
    return g->kept ? raise_kept(g) : MG_OK;
}

mg_status mg_async_guards_wait(mg_device *d) {
    MG_TRY(wait_for_own(d));
    return d->judge ? wait_for_own(d->judge) : MG_OK;
}

mg_status mg_async_guards_enter(mg_device *d, const mg_device *judge) {
    if (d != judge) MG_TRY(wait_for_own(d));
    if (d->judge && d->judge != judge) MG_TRY(wait_for_own(d->judge));
    return MG_OK;
}

/* With fewer than MG_READBACKS verdicts pending, the next readback can start. */
mg_status mg_async_guards_make_room(mg_device *d) {
    const struct mg_async_guards *g = d->guards;
    while (g && g->n >= MG_READBACKS) MG_TRY(wait_for_first(d));
    return MG_OK;
}

mg_status mg_async_guards_wait_or_stop(mg_device *d) {
    const mg_status status = mg_async_guards_wait(d);
    if (status != MG_INTERRUPTED) return status;
    mg_error_clear();
    mg_interrupt_by(mg_interrupt_signal());
    return MG_OK;
}

static bool is_pending(const struct mg_async_guards *g, const mg_guard *guards) {
    for (int i = 0; i < g->n; i++)
        if (g->pending[i].guards == guards) return true;
    return false;
}

/* The plan of these guards is being freed: their failures are not reported. */
static void drop_guards(struct mg_async_guards *g, const mg_guard *guards) {
    for (int i = 0; i < g->n; i++)
        if (g->pending[i].guards == guards) g->pending[i].guards = NULL;
}

/* Plans are freed by finalizers, which cannot raise errors, so an error is kept. After an interrupt
 * it does not wait for the device. */
void mg_async_guards_forget(mg_device *d, const mg_guard *guards) {
    struct mg_async_guards *g = d->guards;
    if (!g || !guards || !is_pending(g, guards)) return;
    const mg_status status = g->interrupted ? MG_OK : mg_async_guards_wait_or_stop(d);
    drop_guards(g, guards);
    if (status == MG_OK) return;
    mg_free(g->kept);
    g->kept = mg_strdup(mg_error_message());
    g->kept_code = mg_error_code();
    mg_error_clear();
}
