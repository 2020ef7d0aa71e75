/* Memory of recipes. */
#include "core/recipe.h"
#include "core/alloc.h"
#include "core/variable.h"

mg_recipe *mg_recipe_new(int n_args, int most_variables, int most_outputs) {
    mg_recipe *r = mg_alloc_zero(sizeof *r);
    if (!r) return NULL;
    atomic_init(&r->refs, 1);
    r->n_args = n_args;
    r->variables = mg_alloc((size_t)(most_variables + 1) * sizeof(mg_variable *));
    r->outputs = mg_alloc((size_t)(most_outputs + 1) * sizeof(mg_tensor *));
    if (r->variables && r->outputs) return r;
    mg_recipe_release(r);
    return NULL;
}

mg_recipe *mg_recipe_retain(mg_recipe *r) {
    atomic_fetch_add(&r->refs, 1);
    return r;
}

void mg_recipe_release(mg_recipe *r) {
    if (!r || atomic_fetch_sub(&r->refs, 1) != 1) return;
    for (int i = 0; i < r->n_outputs; i++) mg_tensor_release(r->outputs[i]);
    mg_tensor_count_internal(-r->n_internal);
    for (int i = 0; i < r->n_variables; i++) mg_variable_release(r->variables[i]);
    mg_free(r->outputs);
    mg_free(r->variables);
    mg_free(r);
}
