/* Tensors and buffers: life and counts.
 *
 * A tensor's inputs and attributes lie in one block with it. Release is iterative: what dies is put
 * on a per-thread list and taken off in a loop, so a chain of any length needs no stack. */
#include "core/tensor.h"
#include "core/alloc.h"
#include "core/context.h"
#include "core/loop.h"
#include "core/recipe.h"
#include "core/variable.h"

/* internal_tensors are those the runtime keeps for itself; they are in live_tensors too. */
static atomic_llong live_tensors, internal_tensors;
/* Tensors whose count has reached 0 and which are not yet freed, linked by next_dead. */
static _Thread_local mg_tensor *dead_list;
/* drain_dead_list is under way further up the stack. */
static _Thread_local bool draining;

/* ---- buffers ---- */

/* From any thread. */
mg_buffer *mg_buffer_retain(mg_buffer *b) {
    atomic_fetch_add(&b->refs, 1);
    return b;
}

/* core does not know how a device frees memory, so the device layer's hook does it. */
void mg_buffer_release(mg_buffer *b) {
    if (!b || atomic_fetch_sub(&b->refs, 1) != 1) return;
    for (int i = 0; b->ahead && i < b->ahead->n; i++) mg_buffer_release(b->ahead->part[i].copy);
    mg_free(b->ahead);
    mg_device_hooks_get()->free(b->device, b->data, b->bytes);
    mg_free(b);
}

/* ---- life ---- */

/* Attributes lie behind the inputs, in the same block. */
mg_tensor *mg_tensor_block(int n_inputs, size_t attrs_size) {
    const size_t head = sizeof(mg_tensor) + (size_t)n_inputs * sizeof(mg_tensor *);
    mg_tensor *t = mg_alloc_zero(head + attrs_size);
    if (!t) return NULL;
    atomic_init(&t->refs, 1);
    t->n_inputs = n_inputs;
    t->attrs = attrs_size ? (char *)t + head : NULL;
    t->origin = mg_context_get()->origin;
    atomic_fetch_add(&live_tensors, 1);
    return t;
}

/* A tensor without inputs. */
static mg_tensor *leaf(mg_tensor_kind kind, mg_dtype dtype, const mg_shape *shape,
                       mg_device *device) {
    mg_tensor *t = mg_tensor_block(0, 0);
    if (!t) return NULL;
    t->kind = (uint8_t)kind;
    t->dtype = (uint8_t)dtype;
    t->shape = *shape;
    t->device = device;
    return t;
}

/* The tensor lies where its buffer does. */
mg_tensor *mg_tensor_from_buffer(mg_buffer *b, mg_dtype dtype, const mg_shape *shape) {
    mg_tensor *t = leaf(MG_VALUE, dtype, shape, b->device);
    if (t) t->buffer = mg_buffer_retain(b);
    return t;
}

/* The placeholder belongs to the trace that is open on this thread. */
mg_tensor *mg_tensor_argument(int index, mg_dtype dtype, const mg_shape *shape, mg_device *device) {
    mg_tensor *t = leaf(MG_ARGUMENT, dtype, shape, device);
    if (!t) return NULL;
    t->index = index;
    t->trace = mg_context_get()->trace;
    return t;
}

/* The placeholder has the type and the place of the variable's current value. */
mg_tensor *mg_tensor_varread(mg_variable *v) {
    mg_tensor *t = leaf(MG_VARREAD, (mg_dtype)v->value->dtype, &v->value->shape, v->value->device);
    if (!t) return NULL;
    t->variable = mg_variable_retain(v);
    t->trace = mg_context_get()->trace;
    return t;
}

mg_tensor *mg_tensor_parameter(mg_dtype dtype, const mg_shape *shape, mg_device *device) {
    mg_tensor *t = leaf(MG_PARAMETER, dtype, shape, device);
    if (!t) return NULL;
    t->trace = mg_context_get()->trace;
    t->in_loop = true;
    return t;
}

/* From any thread. */
mg_tensor *mg_tensor_retain(mg_tensor *t) {
    atomic_fetch_add(&t->refs, 1);
    return t;
}

/* Gives up one reference; at the last one the tensor waits to be freed. Accepts NULL. */
static void put_on_dead_list(mg_tensor *t) {
    if (!t || atomic_fetch_sub(&t->refs, 1) != 1) return;
    t->next_dead = dead_list;
    dead_list = t;
}

/* Frees the waiting tensors. Their inputs may join the list meanwhile, so a chain of any length is
 * released in a loop. Releasing a variable or a loop may release tensors too: that inner call
 * leaves its work to this loop. */
static void drain_dead_list(void) {
    if (draining) return;
    draining = true;
    while (dead_list) {
        mg_tensor *t = dead_list;
        dead_list = t->next_dead;
        for (int i = 0; i < t->n_inputs; i++) put_on_dead_list(t->inputs[i]);
        mg_buffer_release(t->buffer);
        mg_variable_release(t->variable);
        mg_loop_release(t->loop);
        mg_recipe_release(t->recipe);
        mg_free(t);
        atomic_fetch_sub(&live_tensors, 1);
    }
    draining = false;
}

void mg_tensor_release(mg_tensor *t) {
    put_on_dead_list(t);
    drain_dead_list();
}

/* n_inputs becomes 0 before the inputs are given up, because their release may look at this tensor.
 */
void mg_tensor_drop_history(mg_tensor *t) {
    if (t->kind != MG_LAZY || !t->buffer || t->body_constant) return;
    t->kind = MG_VALUE;
    t->op = NULL;
    const int n = t->n_inputs;
    mg_recipe *recipe = t->recipe;
    t->n_inputs = t->n_recorded = 0;
    t->recipe = NULL;
    for (int i = 0; i < n; i++) put_on_dead_list(t->inputs[i]);
    mg_recipe_release(recipe);
    drain_dead_list();
}

/* Of all threads. */
int64_t mg_tensor_live_count(void) {
    return atomic_load(&live_tensors) - atomic_load(&internal_tensors);
}

void mg_tensor_count_internal(int change) {
    atomic_fetch_add(&internal_tensors, change);
}

mg_status mg_tensors_check(mg_tensor *const *t, int n, const char *who) {
    for (int i = 0; i < n; i++)
        if (!t[i])
            return mg_fail(MG_USAGE, "%s: tensor %d is NULL: the call that made it has failed", who,
                           i + 1);
    return MG_OK;
}
