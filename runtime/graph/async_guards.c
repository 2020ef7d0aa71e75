/* Running ahead: on a device that works by itself, a step's guards are answered while the next step
 * is already under way.
 *
 * Such a plan's new values are "the new one where all guards hold, else the old one", so a step
 * whose guard fails changes nothing although its commit was started. Nor do those after it: a flag
 * of the device, itself a variable of every such plan, says that no guard has failed, until the
 * host was told. It is told after the next plan was started, or when a value is read: the error is
 * raised there, and everything is as it was before the step that failed. */
#include "core/alloc.h"
#include "graph/plan.h"
#include "ops/build.h"

enum { MOST_GUARDS = 255 }; /* the verdict is a byte */

/* ---- making such a plan ---- */

static mg_tensor *truth(mg_device *d) {
    static const uint8_t yes = 1;
    static const mg_shape scalar = {0};
    return mg_tensor_from_host(&yes, MG_BOOL, &scalar, d);
}

mg_status mg_async_guards_find(mg_device *d, int n_guards, bool *can) {
    *can = d->api->readback_wait && n_guards <= MOST_GUARDS;
    if (!*can || d->sound) return MG_OK;
    mg_tensor *value = truth(d);
    if (value) d->sound = mg_variable_new(value, "sound", false);
    mg_tensor_release(value);
    return d->sound ? MG_OK : mg_error_code();
}

/* The first guard's number that fails, and whether all hold: without axes. */
static void judge(const mg_guard *guards, int n, mg_tensor **verdict, mg_tensor **all) {
    static const mg_shape scalar = {0};
    *verdict = full(0, MG_U8, &scalar);
    *all = NULL;
    for (int i = n - 1; i >= 0; i--) {
        mg_tensor *ok = reshape(guards[i].ok, &scalar);
        *verdict = where(ok, *verdict, full(i + 1, MG_U8, &scalar));
        *all = *all ? binary("logical_and", ok, *all) : ok;
    }
}

/* v's new value is `value` where `holds`. */
static mg_status hold(mg_variable *v, mg_tensor *holds, mg_tensor *value) {
    mg_tensor *held = where(holds, value, v->entry);
    if (!held) return mg_error_code();
    mg_tensor_retain(held);
    mg_tensor_release(v->traced);
    v->traced = held;
    return MG_OK;
}

mg_status mg_async_guards_hold(mg_variable *sound, const mg_guard *guards, int n_guards,
                               mg_variable *const *variables, int n, mg_tensor **verdict) {
    mg_scope *scope;
    mg_tensor *judged, *all;
    MG_TRY(mg_scope_open(&scope));
    judge(guards, n_guards, &judged, &all);
    all = binary("logical_and", all, sound->entry);
    mg_status status = judged && all ? hold(sound, all, all) : mg_error_code();
    for (int i = 0; i < n && status == MG_OK; i++) {
        mg_variable *v = variables[i];
        if (v != sound && v->traced != v->entry) status = hold(v, all, v->traced);
    }
    if (status == MG_OK) *verdict = mg_tensor_retain(judged);
    mg_scope_close(scope);
    return status;
}

/* ---- running it ---- */

/* In place: it must not fail for want of memory. */
mg_status mg_async_guards_make_sound(mg_device *d) {
    static const uint8_t yes = 1;
    if (!d->unsound) return MG_OK;
    MG_TRY(d->api->copy_in(d, d->sound->value->buffer->data, &yes, 1));
    d->unsound = false;
    return MG_OK;
}

mg_status mg_async_guards_ask(mg_plan *p) {
    const mg_part *part = &p->parts[0];
    mg_device *d = part->device;
    const void *verdict = part->address[mg_part_external(part, p->n_outputs + p->n_assigns)];
    const mg_status status = d->api->readback_begin(d, verdict);
    if (status == MG_OK) {
        d->asked = p;
        d->asked_rng = p->rng;
    } else {
        d->unsound = true; /* perhaps: who hears of this error need not hear of a guard */
    }
    return status;
}

/* The random state goes back to that of the step, if nobody has set another. */
static void take_back_draws(mg_rng_state before, uint64_t n_draws) {
    const mg_rng_state now = mg_rng_get();
    if (now.seed == before.seed && now.base == before.base + n_draws) mg_rng_set(before);
}

/* What mg_async_guards_drop kept. */
static mg_status raise_kept(mg_device *d) {
    const mg_status code = d->kept_code;
    mg_fail(code, "%s", d->kept);
    mg_free(d->kept);
    d->kept = NULL;
    return code;
}

void mg_async_guards_drop(const mg_plan *p) {
    for (int i = 0; i < p->n_parts; i++) {
        mg_device *d = p->parts[i].device;
        if (d->asked != p || mg_async_guards_settle(d) == MG_OK) continue;
        mg_free(d->kept);
        d->kept = mg_strdup(mg_error_message());
        d->kept_code = mg_error_code();
        mg_error_clear();
    }
}

mg_status mg_async_guards_settle(mg_device *d) {
    uint8_t verdict;
    const mg_plan *p = d->asked;
    if (!p) return d->kept ? raise_kept(d) : MG_OK;
    d->asked = NULL;
    MG_TRY(d->api->readback_wait(d, &verdict));
    if (!verdict) return MG_OK;
    take_back_draws(d->asked_rng, p->n_draws);
    d->unsound = true;
    return mg_fail(p->guards[verdict - 1].code, "%s", p->guards[verdict - 1].message);
}
