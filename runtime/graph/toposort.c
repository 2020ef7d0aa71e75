/* Topological order of tensor histories: depth first, with a stack in memory, because histories are
 * too deep for recursion. */
#include "graph/toposort.h"
#include "core/alloc.h"

/* Shared by all threads, so that no two walks have the same number. */
static atomic_uint last_visit;

uint32_t mg_toposort_new_visit(void) {
    return atomic_fetch_add(&last_visit, 1) + 1;
}

/* A tensor on the way down, whose inputs are being listed before it. */
typedef struct frame {
    mg_tensor *tensor;
    int next_input; /* the input to look at next; n_inputs when done */
} frame;

/* Grows by mg_reserve. */
typedef struct frame_stack {
    frame *items;
    int n, capacity;
} frame_stack;

/* With `follow` false the tensor counts as one without inputs. */
static mg_status push(frame_stack *s, mg_tensor *t, bool follow) {
    MG_TRY(mg_reserve((void **)&s->items, s->n, &s->capacity, sizeof *s->items));
    s->items[s->n++] = (frame){t, follow ? 0 : t->n_inputs};
    return MG_OK;
}

/* All inputs are listed: the tensor comes next. */
static mg_status append(mg_toposort *w, mg_tensor *t) {
    MG_TRY(mg_reserve((void **)&w->items, w->n, &w->capacity, sizeof *w->items));
    t->position = w->n;
    w->items[w->n++] = t;
    return MG_OK;
}

/* A tensor is marked as visited when it is pushed, so it is pushed once. */
mg_status mg_toposort_collect(mg_toposort *w, mg_tensor *const *roots, int n_roots,
                              bool (*descend)(const mg_tensor *t, void *context), void *context) {
    frame_stack stack = {0};
    mg_status status = MG_OK;
    *w = (mg_toposort){.number = mg_toposort_new_visit()};
    for (int r = 0; r < n_roots && status == MG_OK; r++) {
        if (roots[r]->visit == w->number) continue;
        roots[r]->visit = w->number;
        status = push(&stack, roots[r], descend(roots[r], context));
        while (stack.n && status == MG_OK) {
            frame *top = &stack.items[stack.n - 1]; /* valid until the next push */
            if (top->next_input == top->tensor->n_inputs) {
                status = append(w, top->tensor);
                stack.n--;
                continue;
            }
            mg_tensor *in = top->tensor->inputs[top->next_input++];
            if (in->visit == w->number) continue;
            in->visit = w->number;
            status = push(&stack, in, descend(in, context));
        }
    }
    mg_free(stack.items);
    return status;
}

/* Under a new number, which no other walk has. */
void mg_toposort_resume(mg_toposort *w) {
    w->number = mg_toposort_new_visit();
    for (int i = 0; i < w->n; i++) {
        w->items[i]->visit = w->number;
        w->items[i]->position = i;
    }
}

/* The tensors themselves are the roots'. */
void mg_toposort_free(mg_toposort *w) {
    mg_free(w->items);
    *w = (mg_toposort){0};
}
