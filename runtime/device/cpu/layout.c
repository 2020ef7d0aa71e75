/* Changing between row-major {N, H, W, C} and blocked [N][C / 16][H][W][16]. */
#include "device/cpu/cpu.h"
#include <string.h>

size_t mg_cpu_layout_bytes(const mg_value *v, int layout) {
    size_t n = (size_t)mg_shape_count(&v->shape);
    if (layout == MG_BLOCKED && v->shape.dim[3] > 0)
        n = n / (size_t)v->shape.dim[3] * (size_t)mg_cpu_blocks(v->shape.dim[3]) * MG_LANES;
    return n * mg_dtype_size(v->dtype);
}

bool mg_all_f32(const mg_kernel_plan *plan) {
    for (int i = 0; i < plan->step->n_in; i++)
        if (plan->in[i].value->dtype != MG_F32) return false;
    for (int i = 0; i < plan->step->n_out; i++)
        if (plan->out[i].value->dtype != MG_F32) return false;
    return true;
}

void mg_all_row_major(mg_kernel_plan *plan) {
    for (int i = 0; i < plan->step->n_in; i++) plan->in[i].layout = MG_ROW_MAJOR;
    for (int i = 0; i < plan->step->n_out; i++) plan->out[i].layout = MG_ROW_MAJOR;
}

static void to_blocked(const float *src, float *dst, int64_t n, int64_t pixels, int64_t c) {
    const int64_t blocks = mg_cpu_blocks(c);
#pragma omp parallel for collapse(2) if (n * pixels * c > MG_SERIAL_BELOW)
    for (int64_t i = 0; i < n; i++)
        for (int64_t b = 0; b < blocks; b++) {
            const int64_t width = c - b * MG_LANES < MG_LANES ? c - b * MG_LANES : MG_LANES;
            float *to = dst + (i * blocks + b) * pixels * MG_LANES;
            const float *from = src + i * pixels * c + b * MG_LANES;
            for (int64_t p = 0; p < pixels; p++, from += c, to += MG_LANES) {
                if (width == MG_LANES) {
                    memcpy(to, from, MG_LANES * sizeof *to);
                } else {
                    memset(to, 0, MG_LANES * sizeof *to);
                    memcpy(to, from, (size_t)width * sizeof *to);
                }
            }
        }
}

static void to_row_major(const float *src, float *dst, int64_t n, int64_t pixels, int64_t c) {
    const int64_t blocks = mg_cpu_blocks(c);
#pragma omp parallel for if (n * pixels * c > MG_SERIAL_BELOW)
    for (int64_t i = 0; i < n; i++)
        for (int64_t b = 0; b < blocks; b++) {
            const int64_t width = c - b * MG_LANES < MG_LANES ? c - b * MG_LANES : MG_LANES;
            const float *from = src + (i * blocks + b) * pixels * MG_LANES;
            float *to = dst + i * pixels * c + b * MG_LANES;
            for (int64_t p = 0; p < pixels; p++, from += MG_LANES, to += c) {
                if (width == MG_LANES)
                    memcpy(to, from, MG_LANES * sizeof *to);
                else
                    memcpy(to, from, (size_t)width * sizeof *to);
            }
        }
}

static mg_status run(const mg_call *call) {
    const mg_shape *s = &call->plan->in[0].value->shape;
    const int64_t pixels = s->dim[1] * s->dim[2];
    if (call->plan->in[0].layout == call->plan->out[0].layout)
        memcpy(call->out[0], call->in[0],
               mg_cpu_layout_bytes(call->plan->in[0].value, call->plan->in[0].layout));
    else if (call->plan->out[0].layout == MG_BLOCKED)
        to_blocked(call->in[0], call->out[0], s->dim[0], pixels, s->dim[3]);
    else
        to_row_major(call->in[0], call->out[0], s->dim[0], pixels, s->dim[3]);
    return MG_OK;
}

const mg_kernel mg_cpu_reorder = {.name = "reorder", .run = run};
