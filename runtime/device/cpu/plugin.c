/* The cpu device: host memory, OpenMP threads, kernels of our own and from oneDNN. This file lists
 * the kernels and implements the device interface. */
#include "device/cpu/cpu.h"
#include "core/threads.h"
#include "device/cpu/conv/conv.h"
#include "device/cpu/fused/fused.h"
#include "device/cpu/images/images.h"
#include "device/cpu/int8/int8.h"
#include "device/cpu/movement/movement.h"
#include "device/cpu/norm/norm.h"
#include "device/cpu/onednn/onednn.h"
#include "device/cpu/products/products.h"
#include "device/cpu/reduce/reduce.h"
#include "device/cpu/spectra/spectra.h"
#include "device/host.h"
#include "device/worker.h"
#include <omp.h>
#include <stdio.h>

/* In order of preference for each op: a kernel that does not accept a step leaves it to the next
 * one. The upcast comes last, because it tries all others itself. */
const mg_kernel *const mg_cpu_kernels[] = {&mg_cpu_winograd_images_conv2d,
                                           &mg_cpu_winograd_images_conv2d_grad_input,
                                           &mg_cpu_winograd_images_conv2d_grad_weight,
                                           &mg_cpu_winograd_conv2d,
                                           &mg_cpu_winograd_conv2d_grad_input,
                                           &mg_cpu_winograd_conv2d_grad_weight,
                                           &mg_cpu_small_conv2d,
                                           &mg_cpu_small_conv2d_grad_input,
                                           &mg_cpu_small_conv2d_grad_weight,
                                           MG_ONEDNN_KERNELS &mg_cpu_depthwise_conv2d,
                                           &mg_cpu_depthwise_conv2d_grad_input,
                                           &mg_cpu_depthwise_conv2d_grad_weight,
                                           &mg_cpu_direct_conv2d,
                                           &mg_cpu_direct_conv2d_grad_weight,
                                           &mg_cpu_packed_conv2d,
                                           &mg_cpu_conv2d,
                                           &mg_cpu_conv2d_grad_input,
                                           &mg_cpu_conv2d_grad_weight,
                                           &mg_cpu_conv2d_int8,
                                           &mg_cpu_packed_matmul,
                                           &mg_cpu_matmul,
                                           &mg_cpu_fused,
                                           &mg_cpu_max_pool2d,
                                           &mg_cpu_max_pool2d_grad,
                                           &mg_cpu_avg_pool2d,
                                           &mg_cpu_avg_pool2d_grad,
                                           &mg_cpu_moments,
                                           &mg_cpu_batch_norm,
                                           &mg_cpu_batch_norm_reduce,
                                           &mg_cpu_sum,
                                           &mg_cpu_prod,
                                           &mg_cpu_max,
                                           &mg_cpu_min,
                                           &mg_cpu_any,
                                           &mg_cpu_all,
                                           &mg_cpu_argmax,
                                           &mg_cpu_argmin,
                                           &mg_cpu_all_finite,
                                           &mg_cpu_cumsum,
                                           &mg_cpu_layer_norm,
                                           &mg_cpu_layer_norm_gradients,
                                           &mg_cpu_layer_norm_grad,
                                           &mg_cpu_layer_norm_reduce,
                                           &mg_cpu_softmax,
                                           &mg_cpu_softmax_grad,
                                           &mg_cpu_log_softmax,
                                           &mg_cpu_softmax_cross_entropy,
                                           &mg_cpu_softmax_cross_entropy_grad,
                                           &mg_cpu_sparse_softmax_cross_entropy,
                                           &mg_cpu_sparse_softmax_cross_entropy_grad,
                                           &mg_cpu_permute,
                                           &mg_cpu_slice,
                                           &mg_cpu_reverse,
                                           &mg_cpu_pad,
                                           &mg_cpu_concat,
                                           &mg_cpu_split,
                                           &mg_cpu_broadcast_to,
                                           &mg_cpu_gather,
                                           &mg_cpu_scatter_add,
                                           &mg_cpu_scatter_last,
                                           &mg_cpu_take_along_axis,
                                           &mg_cpu_scatter_along_axis,
                                           &mg_cpu_argsort,
                                           &mg_cpu_linear_scan,
                                           &mg_cpu_image_resize,
                                           &mg_cpu_image_resize_grad,
                                           &mg_cpu_affine_transform,
                                           &mg_cpu_affine_transform_grad,
                                           &mg_cpu_rfft,
                                           &mg_cpu_rfft_transpose,
                                           &mg_cpu_reshape,
                                           &mg_cpu_full,
                                           &mg_cpu_iota,
                                           &mg_cpu_random,
                                           &mg_cpu_upcast,
                                           NULL};

/* The kernels that mg_program_compile chooses from. */
static const mg_kernel_set set = {.kernels = mg_cpu_kernels, .merge = mg_cpu_merge_layer_norms};

bool mg_all_f32(const mg_kernel_plan *plan) {
    for (int i = 0; i < plan->step->n_in; i++)
        if (plan->in[i].value->dtype != MG_F32) return false;
    for (int i = 0; i < plan->step->n_out; i++)
        if (plan->out[i].value->dtype != MG_F32) return false;
    return true;
}

/* Threads that this thread may use for parallel regions where several cpu devices run at the same
 * time; 0: all. */
static _Thread_local int share;
/* Whether set_share has run in this thread. */
static _Thread_local bool share_is_set;
/* The size of this thread's OpenMP team, itself included. */
static _Thread_local int team = 1;

/* The device's share of the threads where several cpu devices run at the same time, otherwise all
 * of them: MGPU_THREADS, OMP_NUM_THREADS or the number of cores. */
int mg_cpu_threads(void) {
    static int threads;
    if (share) return share; /* other devices run on the other cores */
    if (!threads) threads = mg_thread_count();
    return threads;
}

/* Checks MGPU_THREADS and MGPU_ISA. The first call chooses the instruction set. */
static mg_status read_settings(void) {
    MG_TRY(mg_thread_count_check());
    return mg_simd_choose();
}

/* The instruction set is chosen before oneDNN makes a kernel. */
static mg_status cpu_open(mg_device *d) {
    (void)d;
    MG_TRY(read_settings());
    return mg_dnnl_open();
}

/* Blocks that were kept for reuse are released as well, so that nothing is left when the last
 * device closes. */
static void cpu_close(mg_device *d) {
    (void)d;
    mg_cpu_free_kept();
    mg_dnnl_close();
}

/* For --list-devices: works without an open device. */
static mg_status cpu_describe(int ordinal, mg_device_info *info) {
    char library[64];
    MG_TRY(mg_host_describe(ordinal, info));
    MG_TRY(read_settings());
    snprintf(info->text, sizeof info->text, "%d threads, %s%s", mg_cpu_threads(),
             mg_simd_used->title, mg_dnnl_text(library, sizeof library));
    return MG_OK;
}

/* Sets the number of threads that this thread's parallel regions get: OpenMP keeps it per thread,
 * and so does `share`, which mg_cpu_threads returns. */
static void set_share(int threads) {
    if (threads == share && share_is_set) return;
    share = threads;
    share_is_set = true;
    omp_set_num_threads(mg_cpu_threads());
}

/* Makes the threads of this thread's team, which OpenMP would make in the first parallel region:
 * libgomp ends the process if it cannot, so that is tried before. */
static mg_status make_team(void) {
    const int wanted = mg_cpu_threads(), more = wanted - team;
    if (wanted == team || wanted == 1) return MG_OK; /* one thread needs no team */
    if (more > 0 && mg_threads_available(more) != MG_OK) {
        char why[512];
        snprintf(why, sizeof why, "%s", mg_error_message());
        return mg_fail(MG_OOM, "%s; computing needs %d of them: allow more, or set MGPU_THREADS=1",
                       why, wanted);
    }
#pragma omp parallel
    team = omp_get_num_threads(); /* each thread sets its own */
    team = wanted;
    return MG_OK;
}

/* oneDNN's AVX-512 matrix product uses the stack pointer as a general register: the frame of a
 * signal that arrives meanwhile (LuaJIT's profiler sends one every 10 ms) would be written into the
 * heap. So signals are blocked while a program is compiled or runs, and threads created meanwhile
 * inherit the mask.
 *
 * A program is prepared for the number of threads that it will run on. */
static mg_status cpu_compile(mg_device *d, const mg_kernel_graph *graph, mg_program **program) {
    mg_signals_hold();
    set_share(d->threads);
    const mg_status status = mg_program_compile(d, &set, graph, program);
    mg_signals_release();
    return status;
}

/* A run gets the share of the cores that the caller names. */
static mg_status cpu_run(mg_program *program, const mg_run *r) {
    mg_signals_hold();
    set_share(r->threads);
    mg_status status = make_team();
    if (status == MG_OK) status = mg_program_run(program, r);
    mg_signals_release();
    return status;
}

/* shares_programs: logical cpu devices run the same compiled program, possibly at the same time. */
static const mg_device_api api = {.size = sizeof(mg_device_api),
                                  .kind = "cpu",
                                  .rank = 10,
                                  .open = cpu_open,
                                  .close = cpu_close,
                                  .describe = cpu_describe,
                                  .count = mg_host_count,
                                  .alloc = mg_cpu_alloc,
                                  .free = mg_cpu_free,
                                  .copy_in = mg_host_copy,
                                  .copy_out = mg_host_copy,
                                  .compile = cpu_compile,
                                  .run = cpu_run,
                                  .release = mg_program_release,
                                  .arena_bytes = mg_program_arena_bytes,
                                  .kept_bytes = mg_program_kept_bytes,
                                  .sync = mg_host_sync,
                                  .fuses = true,
                                  .host_memory = true,
                                  .shares_programs = true};

const mg_device_api *mg_device_plugin(void);
const mg_device_api *mg_device_plugin(void) {
    return &api;
}
