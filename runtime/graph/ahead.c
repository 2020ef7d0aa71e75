/* Running ahead: on a device that works by itself, a step's guards are answered while the next step
 * is already under way.
 *
 * Such a plan's new values are "the new one where all guards hold, else the old one", so a step
 * whose guard fails changes nothing although its commit was started. The answer is waited for after
 * the next plan's compute phase was started and before its commit, or when a value is read: the
 * error is raised there, and everything is as it was before the step that failed. */
#include "core/alloc.h"
#include "graph/plan.h"
#include "ops/build.h"

bool mg_ahead_wanted(const mg_plan_spec *spec) {
    const mg_device *d = spec->n_devices ? spec->devices[0] : spec->device;
    return spec->n_devices <= 1 && !spec->keeper && d->api->ask && spec->n_guards > 0 &&
           spec->n_guards <= MG_MOST_ANSWERS && spec->n_assigns > 0;
}

/* All guards as one bool without axes. */
static mg_tensor *all_hold(const mg_guard *guards, int n) {
    const mg_shape scalar = {0};
    mg_tensor *ok = NULL;
    for (int i = 0; i < n; i++) {
        mg_tensor *one = reshape(guards[i].ok, &scalar);
        ok = ok ? binary("logical_and", ok, one) : one;
    }
    return ok;
}

mg_status mg_ahead_hold(const mg_guard *guards, int n_guards, mg_tensor *const *entries,
                        mg_tensor **values, int n) {
    mg_scope *scope;
    MG_TRY(mg_scope_open(&scope));
    mg_tensor *ok = all_hold(guards, n_guards);
    int done = 0;
    for (; done < n; done++) {
        mg_tensor *value = where(ok, values[done], entries[done]);
        if (!value) break;
        values[done] = mg_tensor_retain(value);
    }
    const mg_status status = done == n ? MG_OK : mg_error_code();
    for (int i = 0; i < done && status != MG_OK; i++) mg_tensor_release(values[i]);
    mg_scope_close(scope);
    return status;
}

mg_status mg_ahead_ask(mg_plan *p) {
    const void *flags[MG_MOST_ANSWERS];
    mg_device *d = p->parts[0].device;
    for (int i = 0; i < p->n_guards; i++)
        flags[i] =
            p->parts[0].address[mg_part_external(&p->parts[0], p->n_outputs + p->n_assigns + i)];
    MG_TRY(d->api->ask(d, flags, p->n_guards));
    d->asked = p;
    d->asked_rng = p->rng;
    return MG_OK;
}

/* The random state goes back to that of the step, if nobody has set another. */
static void take_back_draws(mg_rng_state before, uint64_t n_draws) {
    const mg_rng_state now = mg_rng_get();
    if (now.seed == before.seed && now.base == before.base + n_draws) mg_rng_set(before);
}

/* What mg_ahead_drop kept. */
static mg_status raise_kept(mg_device *d) {
    const mg_status code = d->kept_code;
    mg_fail(code, "%s", d->kept);
    mg_free(d->kept);
    d->kept = NULL;
    return code;
}

void mg_ahead_drop(const mg_plan *p) {
    for (int i = 0; i < p->n_parts; i++) {
        mg_device *d = p->parts[i].device;
        if (d->asked != p || mg_ahead_settle(d) == MG_OK) continue;
        mg_free(d->kept);
        d->kept = mg_strdup(mg_error_message());
        d->kept_code = mg_error_code();
        mg_error_clear();
    }
}

mg_status mg_ahead_settle(mg_device *d) {
    uint8_t answers[MG_MOST_ANSWERS];
    const mg_plan *p = d->asked;
    if (!p) return d->kept ? raise_kept(d) : MG_OK;
    d->asked = NULL;
    MG_TRY(d->api->hear(d, answers, p->n_guards));
    for (int i = 0; i < p->n_guards; i++) {
        if (answers[i]) continue;
        take_back_draws(d->asked_rng, p->n_draws);
        return mg_fail(p->guards[i].code, "%s", p->guards[i].message);
    }
    return MG_OK;
}
