/* The cuda device: NVIDIA GPUs through the driver API, cuDNN, cuBLASLt and our own kernels.
 *
 * This file is the plug-in's entry: the list of kernels, and the table mg_device_api. The folders
 * hold the rest: context/ the device itself, codegen/ generated kernels, graph/ CUDA graphs,
 * launchers/ the host side of kernels/, cudnn/ and cublas/ the libraries, comm/ collectives. */
#include "device/cuda/comm/comm.h"
#include "device/cuda/kernels.h"
#include "device/cuda/context/context.h"
#include "device/cuda/context/stage.h"
#include "device/cuda/context/stamps.h"
#include "device/cuda/graph/cuda_graph.h"
#include <stdio.h>

/* For each op, the first kernel that accepts a step runs it. */
static const mg_kernel *const kernels[] = {&mg_cuda_fused,
                                           &mg_cuda_fused_sums,
                                           &mg_cuda_sum,
                                           &mg_cuda_prod,
                                           &mg_cuda_max,
                                           &mg_cuda_min,
                                           &mg_cuda_all,
                                           &mg_cuda_any,
                                           &mg_cuda_argmax,
                                           &mg_cuda_argmin,
                                           &mg_cuda_cumsum,
                                           &mg_cuda_prod_grad,
                                           &mg_cuda_all_finite,
                                           &mg_cuda_permute,
                                           &mg_cuda_slice,
                                           &mg_cuda_broadcast_to,
                                           &mg_cuda_reverse,
                                           &mg_cuda_pad,
                                           &mg_cuda_reshape,
                                           &mg_cuda_concat,
                                           &mg_cuda_split,
                                           &mg_cuda_autotuned_conv2d,
                                           &mg_cuda_autotuned_conv2d_grad_input,
                                           &mg_cuda_autotuned_conv2d_grad_weight,
                                           &mg_cuda_direct_conv2d,
                                           &mg_cuda_direct_conv2d_grad_weight,
                                           &mg_cuda_depth_conv2d,
                                           &mg_cuda_depth_conv2d_grad_input,
                                           &mg_cuda_depth_conv2d_grad_weight,
                                           &mg_cuda_conv2d,
                                           &mg_cuda_conv2d_grad_input,
                                           &mg_cuda_conv2d_grad_weight,
                                           &mg_cuda_gather,
                                           &mg_cuda_scatter_add,
                                           &mg_cuda_take_along_axis,
                                           &mg_cuda_scatter_along_axis,
                                           &mg_cuda_scatter_last,
                                           &mg_cuda_argsort,
                                           &mg_cuda_linear_scan,
                                           &mg_cuda_image_resize,
                                           &mg_cuda_image_resize_grad,
                                           &mg_cuda_affine_transform,
                                           &mg_cuda_full,
                                           &mg_cuda_iota,
                                           &mg_cuda_random,
                                           &mg_cuda_softmax,
                                           &mg_cuda_softmax_grad,
                                           &mg_cuda_log_softmax,
                                           &mg_cuda_softmax_cross_entropy,
                                           &mg_cuda_softmax_cross_entropy_grad,
                                           &mg_cuda_sparse_softmax_cross_entropy,
                                           &mg_cuda_sparse_softmax_cross_entropy_grad,
                                           &mg_cuda_moments,
                                           &mg_cuda_batch_norm,
                                           &mg_cuda_batch_norm_reduce,
                                           &mg_cuda_layer_norm,
                                           &mg_cuda_layer_norm_grad,
                                           &mg_cuda_layer_norm_reduce,
                                           &mg_cuda_max_pool2d,
                                           &mg_cuda_max_pool2d_grad,
                                           &mg_cuda_max_pool2d_pick,
                                           &mg_cuda_avg_pool2d,
                                           &mg_cuda_avg_pool2d_grad,
                                           &mg_cuda_blas_matmul,
                                           &mg_cuda_matmul,
                                           &mg_cuda_tiled_conv2d,
                                           &mg_cuda_tiled_conv2d_grad_input,
                                           &mg_cuda_tiled_conv2d_grad_weight,
                                           NULL};

static const mg_kernel_set set = {.kernels = kernels,
                                  .reorder = &mg_cuda_reorder,
                                  .last_resort = &mg_cuda_host_fallback,
                                  .merge = mg_cuda_fuse_epilogues,
                                  .copy = mg_cuda_copy,
                                  .stamp = mg_cuda_stamp,
                                  .reduces_in_place = true};

/* 0 without a driver or a GPU; opening a device then says which is missing. */
static int count_gpus(void) {
    int n = 0;
    if (mg_cuda_driver_open() != MG_OK) {
        mg_error_clear();
        return 0;
    }
    return mg_cu.cuDeviceGetCount(&n) == CUDA_SUCCESS ? n : 0;
}

/* The line of --list-devices. */
static mg_status describe_gpu(int ordinal, mg_device_info *info) {
    char name[96] = "";
    int major = 0, minor = 0;
    size_t bytes = 0;
    CUdevice gpu;
    MG_TRY(mg_cuda_driver_open());
    MG_TRY(mg_cuda_result(mg_cu.cuDeviceGet(&gpu, ordinal), "find the GPU"));
    mg_cu.cuDeviceGetName(name, sizeof name, gpu);
    mg_cu.cuDeviceTotalMem(&bytes, gpu);
    mg_cu.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, gpu);
    mg_cu.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, gpu);
    snprintf(info->text, sizeof info->text, "%s, compute capability %d.%d", name, major, minor);
    info->memory_bytes = (int64_t)bytes;
    return MG_OK;
}

/* With the kernels above; cuda_graph.c does the rest. */
static mg_status compile_program(mg_device *d, const mg_kernel_graph *graph, mg_program **program) {
    return mg_cuda_program_compile(d, &set, graph, program);
}

static const mg_device_api api = {.size = sizeof(mg_device_api),
                                  .kind = "cuda",
                                  .rank = 20,
                                  .gpu = true,
                                  .physical = true,
                                  .shares_ordinals = true,
                                  .open = mg_cuda_open,
                                  .close = mg_cuda_close,
                                  .describe = describe_gpu,
                                  .count = count_gpus,
                                  .alloc = mg_cuda_alloc,
                                  .free = mg_cuda_free,
                                  .copy_in = mg_cuda_copy_in,
                                  .copy_out = mg_cuda_copy_out,
                                  .copy_peer = mg_cuda_copy_peer,
                                  .stage_in = mg_cuda_stage_in,
                                  .stage_join = mg_cuda_stage_join,
                                  .compile = compile_program,
                                  .run = mg_cuda_program_run,
                                  .release = mg_cuda_program_release,
                                  .arena_bytes = mg_cuda_program_arena_bytes,
                                  .sync = mg_cuda_sync,
                                  .fuses = true,
                                  .host_memory = false,
                                  .connect = mg_cuda_connect,
                                  .make_id = mg_nccl_make_id,
                                  .readback_begin = mg_cuda_readback_begin,
                                  .readback_wait = mg_cuda_readback_wait};

/* The symbol that the core looks up in the plug-in. */
const mg_device_api *mg_device_plugin(void);
const mg_device_api *mg_device_plugin(void) {
    return &api;
}
