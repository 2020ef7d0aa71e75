/* recorded: a result of a recorded run (core/recipe.h), which has its value from the start.
 *
 * Made by C code only. Its inputs are what the run was given; when a gradient is taken, they are
 * replaced by the one tensor that the recipe makes of them (graph/recipe.c), and the gradient
 * passes to that. */
#include "ops/build.h"
#include "ops/ops.h"

/* graph/recipe.c sets shape and dtype, and never applies the op. */
static mg_status recorded_infer(mg_infer *f) {
    f->shape = *mg_infer_shape(f, 0);
    return MG_OK;
}

static mg_tensor *recorded_grad(mg_tensor *y, mg_tensor *dy, int i) {
    (void)y;
    (void)i;
    return dy;
}

static const mg_op recorded_rows[] = {
    {.name = "recorded",
     .doc = "a result of a recorded run of a plan",
     .flags = MG_OP_HIDDEN | MG_OP_INTERNAL,
     .min_inputs = 1,
     .max_inputs = 255,
     .infer = recorded_infer,
     .grad = recorded_grad},
};

const mg_op_family mg_ops_recorded = {"recorded", recorded_rows,
                                      sizeof recorded_rows / sizeof recorded_rows[0]};
