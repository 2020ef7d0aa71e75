/* The two layouts of images: row-major {N, H, W, C} and blocked [N][C / 16][H][W][16]. */
#include "device/cpu/cpu.h"
#include <string.h>

/* The kernels from oneDNN ask for this. */
bool mg_all_f32(const mg_kernel_plan *plan) {
    for (int i = 0; i < plan->step->n_in; i++)
        if (plan->in[i].value->dtype != MG_F32) return false;
    for (int i = 0; i < plan->step->n_out; i++)
        if (plan->out[i].value->dtype != MG_F32) return false;
    return true;
}

/* For kernels that know no other layout. */
void mg_all_row_major(mg_kernel_plan *plan) {
    for (int i = 0; i < plan->step->n_in; i++) plan->in[i].layout = MG_ROW_MAJOR;
    for (int i = 0; i < plan->step->n_out; i++) plan->out[i].layout = MG_ROW_MAJOR;
}

/* Moves blocks of 16 channels of one image, pixel by pixel; `from` and `to` are the bytes between
 * pixels in the two layouts. A constant `bytes` makes each move one or two instructions. */
static inline void move_blocks(const char *src, char *dst, int64_t pixels, int64_t from, int64_t to,
                               size_t bytes) {
    for (int64_t p = 0; p < pixels; p++) memcpy(dst + p * to, src + p * from, bytes);
}

/* The step that the program inserts where a value is wanted in the other layout. */
static mg_status reorder_run(const mg_call *call) {
    const mg_port *in = &call->plan->in[0], *out = &call->plan->out[0];
    const int64_t *n = in->value->shape.dim, pixels = n[1] * n[2], blocks = n[3] / MG_LANES;
    const int64_t size = (int64_t)mg_dtype_size(in->value->dtype);
    const int64_t block = MG_LANES * size, pixel = n[3] * size;
    const bool blocking = out->layout == MG_BLOCKED;
    if (in->layout == out->layout) {
        memcpy(call->out[0], call->in[0], mg_value_bytes(in->value));
        return MG_OK;
    }
#pragma omp parallel for collapse(2) num_threads(mg_cpu_team(mg_count(in)))
    for (int64_t i = 0; i < n[0]; i++)
        for (int64_t b = 0; b < blocks; b++) {
            const int64_t apart = (i * blocks + b) * pixels * block;
            const int64_t within = i * pixels * pixel + b * block;
            const char *src = (const char *)call->in[0] + (blocking ? within : apart);
            char *dst = (char *)call->out[0] + (blocking ? apart : within);
            const int64_t from = blocking ? pixel : block, to = blocking ? block : pixel;
            if (size == sizeof(float)) /* a block is an instruction or two */
                move_blocks(src, dst, pixels, from, to, MG_LANES * sizeof(float));
            else
                move_blocks(src, dst, pixels, from, to, MG_LANES * sizeof(uint16_t));
        }
    return MG_OK;
}

const mg_kernel mg_cpu_reorder = {.name = "reorder", .run = reorder_run};
