/* Fusing a cross-entropy with its gradient: both need the same reductions of a row of logits.
 *
 * The merged step is that of the gradient, with the loss as its second result. It stands where the
 * loss stood or, if dy is only made later, where the gradient stood. A dy that is the same constant
 * in each row needs no memory: attrs are those of its `full`, and the step has no third input. In
 * mixed precision the logits are cast to float32 first and the gradient back to 16 bits: the merged
 * step reads and writes the 16-bit values, and rounds as the casts do. Steps that are no longer
 * needed stay, empty, so that steps keep their numbers. */
#include "device/cuda/graph/cuda_graph.h"
#include "device/cuda/graph/merging.h"
#include <string.h>

typedef struct loss {
    const mg_kernel_graph *graph;
    mg_step *steps;
    int of_loss, of_gradient; /* the steps */
} loss;

static mg_dtype dtype_of(const loss *f, int value) {
    return f->graph->values[value].dtype;
}

/* How many steps in [first, last) read the value. */
static int readers(const loss *f, int value, int first, int last) {
    int n = 0;
    for (int i = first; i < last; i++) n += mg_step_reads(&f->steps[i], value);
    return n;
}

/* Whether no more than `n` steps need the value. */
static bool is_private(const loss *f, int value, int n) {
    return value >= f->graph->n_external && readers(f, value, 0, f->graph->n_steps) <= n;
}

/* Whether the step does nothing but cast a value from one dtype to another. */
static bool is_cast(const mg_step *s) {
    return s->fused && s->n_out == 1 && s->batch_count == 1 && s->fused->n_inputs == 1 &&
           s->fused->n_instrs == 1 && s->fused->instr[0].op == MG_EW_cast;
}

/* The gradient of the loss of step `of_loss`, by the same logits and targets, or -1. */
static int gradient_of(const loss *f, int of_loss) {
    char name[64];
    const mg_step *s = &f->steps[of_loss];
    const size_t n = strlen(s->op->name);
    if (n + sizeof "_grad" > sizeof name) return -1;
    memcpy(name, s->op->name, n);
    memcpy(name + n, "_grad", sizeof "_grad");
    for (int i = of_loss + 1; i < f->graph->n_compute; i++)
        if (mg_step_is(&f->steps[i], name) && f->steps[i].in[0] == s->in[0] &&
            f->steps[i].in[1] == s->in[1])
            return i;
    return -1;
}

/* The 16-bit value that the logits were cast from, if nothing else reads them; else the logits. */
static int uncast_logits(loss *f) {
    const int logits = f->steps[f->of_loss].in[0],
              cast = mg_step_making(f->graph, f->steps, logits);
    if (cast < 0 || !is_cast(&f->steps[cast]) || !is_private(f, logits, 2) ||
        dtype_of(f, logits) != MG_F32 || !mg_dtype_is_half(dtype_of(f, f->steps[cast].in[0])))
        return logits;
    const int halves = f->steps[cast].in[0];
    mg_step_remove(&f->steps[cast]);
    return halves;
}

/* The 16-bit value that the gradient is cast to, if nothing else reads it; else the gradient. */
static int cast_gradient(loss *f, mg_dtype halves) {
    const int gradient = f->steps[f->of_gradient].out[0];
    if (!is_private(f, gradient, 1)) return gradient;
    for (int i = f->of_gradient + 1; i < f->graph->n_compute; i++) {
        if (!mg_step_reads(&f->steps[i], gradient) || !is_cast(&f->steps[i])) continue;
        const int cast = f->steps[i].out[0];
        if (dtype_of(f, cast) != halves) return gradient;
        mg_step_remove(&f->steps[i]);
        return cast;
    }
    return gradient;
}

/* Fuses both; `room` has places for MG_LOSS_ROOM values. `full` makes dy if it is >= 0. */
static void fuse(loss *f, int place, int full, int *room) {
    const mg_step *gradient = &f->steps[f->of_gradient];
    mg_step both = *gradient;
    int *in = room, *out = room + 3;
    in[0] = uncast_logits(f);
    in[1] = gradient->in[1];
    in[2] = gradient->in[2];
    out[0] = in[0] == gradient->in[0] ? gradient->out[0] : cast_gradient(f, dtype_of(f, in[0]));
    out[1] = f->steps[f->of_loss].out[0];
    both.in = in;
    both.out = out;
    both.n_out = 2;
    if (full >= 0) {
        both.n_in = 2;
        both.attrs = f->steps[full].attrs;
        if (is_private(f, in[2], 1)) mg_step_remove(&f->steps[full]);
    }
    mg_step_remove(&f->steps[f->of_loss]);
    mg_step_remove(&f->steps[f->of_gradient]);
    f->steps[place] = both;
}

void mg_cuda_fuse_losses(const mg_kernel_graph *graph, mg_step *steps, int **room) {
    for (int i = 0; i < graph->n_compute; i++) {
        loss f = {.graph = graph, .steps = steps, .of_loss = i};
        if (!mg_step_is(&steps[i], "softmax_cross_entropy") &&
            !mg_step_is(&steps[i], "sparse_softmax_cross_entropy"))
            continue;
        f.of_gradient = gradient_of(&f, i);
        if (f.of_gradient < 0) continue;
        const int dy = steps[f.of_gradient].in[2], maker = mg_step_making(graph, steps, dy);
        const bool constant = maker >= 0 && mg_step_is(&steps[maker], "full");
        const bool early = constant || maker < i;
        if (!early && readers(&f, steps[i].out[0], i, f.of_gradient) > 0) continue;
        fuse(&f, early ? i : f.of_gradient, constant ? maker : -1, *room);
        *room += MG_LOSS_ROOM;
    }
}
