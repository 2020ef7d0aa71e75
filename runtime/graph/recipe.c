/* Recipes: made of a trace, and copied for a result when a gradient is taken.
 *
 * The tensors of a closed trace have no meaning outside of it, so the copy is made of ordinary lazy
 * tensors: over the values that the run was given in place of the placeholders. */
#include "graph/recipe.h"
#include "core/alloc.h"
#include "core/variable.h"
#include "graph/toposort.h"
#include "ops/op.h"
#include <string.h>

/* For mg_toposort_collect: tensors from before the trace are the recipe's constants. */
static bool inside_trace(const mg_tensor *t, void *context) {
    (void)context;
    return t->trace != 0;
}

/* Whether the graph can be copied, and the number of its tensors. */
static mg_status check_graph(mg_tensor *const *outputs, int n, bool *usable, int *n_tensors) {
    mg_toposort walk;
    const mg_status status = mg_toposort_collect(&walk, outputs, n, inside_trace, NULL);
    *usable = true;
    *n_tensors = 0;
    for (int i = 0; i < walk.n && status == MG_OK; i++) {
        if (walk.items[i]->loop || walk.items[i]->in_loop) *usable = false;
        *n_tensors += walk.items[i]->trace != 0;
    }
    mg_toposort_free(&walk);
    return status;
}

mg_status mg_recipe_make(int n_args, mg_variable *const *variables, int n_variables,
                         mg_tensor *const *outputs, int n_outputs, mg_recipe **recipe) {
    bool usable;
    int n_tensors;
    *recipe = NULL;
    MG_TRY(check_graph(outputs, n_outputs, &usable, &n_tensors));
    if (!usable) return MG_OK;
    mg_recipe *r = mg_recipe_new(n_args, n_variables, n_outputs);
    if (!r) return MG_OOM;
    for (int i = 0; i < n_variables; i++)
        r->variables[r->n_variables++] = mg_variable_retain(variables[i]);
    for (int i = 0; i < n_outputs; i++) r->outputs[r->n_outputs++] = mg_tensor_retain(outputs[i]);
    r->n_internal = n_tensors;
    mg_tensor_count_internal(n_tensors);
    *recipe = r;
    return MG_OK;
}

bool mg_recipe_is_ready(const mg_recipe *r, mg_tensor *const *args) {
    for (int i = 0; i < r->n_args; i++)
        if (!args[i]->buffer) return false;
    for (int i = 0; i < r->n_variables; i++)
        if (!r->variables[i]->value->buffer) return false;
    return true;
}

/* An argument with too long a history of recorded calls loses it. */
mg_tensor *mg_recipe_result(mg_recipe *r, int k, const mg_tensor *value, mg_tensor *const *args) {
    static const mg_op *recorded;
    if (!recorded) recorded = mg_op_find("recorded");
    mg_tensor *t = mg_tensor_block(r->n_args + r->n_variables, 0);
    if (!t) return NULL;
    t->kind = MG_LAZY;
    t->op = recorded;
    t->dtype = value->dtype;
    t->shape = value->shape;
    t->device = value->device;
    t->buffer = mg_buffer_retain(value->buffer);
    t->index = k;
    t->recipe = mg_recipe_retain(r);
    for (int i = 0; i < r->n_args; i++) {
        if (args[i]->n_recorded >= MG_MOST_RECORDED) mg_tensor_drop_history(args[i]);
        if (args[i]->n_recorded >= t->n_recorded) t->n_recorded = args[i]->n_recorded + 1;
        t->inputs[i] = mg_tensor_retain(args[i]);
    }
    for (int i = 0; i < r->n_variables; i++)
        t->inputs[r->n_args + i] = mg_tensor_retain(r->variables[i]->value);
    return t;
}

/* ---- its history ---- */

/* What the result's run was given in the place of a placeholder. */
static mg_tensor *given(const mg_tensor *result, const mg_tensor *placeholder) {
    const mg_recipe *r = result->recipe;
    if (placeholder->kind == MG_ARGUMENT) return result->inputs[placeholder->index];
    int i = 0;
    while (r->variables[i] != placeholder->variable) i++;
    return result->inputs[r->n_args + i];
}

/* t, whose inputs have been copied. Owned. */
static mg_tensor *copy_tensor(const mg_tensor *result, mg_tensor *t, mg_tensor *const *copies) {
    if (!t->trace) return mg_tensor_retain(t);
    if (t->kind != MG_LAZY) return mg_tensor_retain(given(result, t));
    mg_tensor *copy = mg_tensor_block(t->n_inputs, t->op->attrs_size);
    if (!copy) return NULL;
    copy->kind = MG_LAZY;
    copy->op = t->op;
    copy->dtype = t->dtype;
    copy->shape = t->shape;
    copy->device = t->device;
    copy->any_device = t->any_device;
    copy->origin.layer = t->origin.layer;
    if (t->op->attrs_size) memcpy(copy->attrs, t->attrs, t->op->attrs_size);
    for (int i = 0; i < t->n_inputs; i++)
        copy->inputs[i] = mg_tensor_retain(copies[t->inputs[i]->position]);
    return copy;
}

/* The root is the last of the walk. */
mg_status mg_recipe_expand(mg_tensor *result) {
    mg_toposort walk;
    mg_tensor **copies = NULL;
    mg_status status =
        mg_toposort_collect(&walk, &result->recipe->outputs[result->index], 1, inside_trace, NULL);
    if (status == MG_OK) copies = mg_alloc_zero((size_t)walk.n * sizeof(mg_tensor *));
    if (status == MG_OK && !copies) status = MG_OOM;
    for (int i = 0; i < walk.n && status == MG_OK; i++) {
        copies[i] = copy_tensor(result, walk.items[i], copies);
        if (!copies[i]) status = MG_OOM;
    }
    if (status == MG_OK) {
        mg_recipe *recipe = result->recipe;
        const int n = result->n_inputs;
        mg_tensor *root = mg_tensor_retain(copies[walk.n - 1]), *first = result->inputs[0];
        result->recipe = NULL;
        result->n_inputs = 1;
        result->inputs[0] = root;
        if (n > 0) mg_tensor_release(first);
        for (int i = 1; i < n; i++) mg_tensor_release(result->inputs[i]);
        mg_recipe_release(recipe);
    }
    for (int i = 0; i < walk.n && copies; i++) mg_tensor_release(copies[i]);
    mg_free(copies);
    mg_toposort_free(&walk);
    return status;
}
