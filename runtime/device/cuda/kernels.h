/* The kernels of the cuda device: kernels of launchers/, of cuDNN and of cuBLASLt, and autotuned
 * kernels, which choose among several. plugin.c lists them in order of preference. */
#ifndef MG_DEVICE_CUDA_KERNELS_H
#define MG_DEVICE_CUDA_KERNELS_H

#include "device/cuda/context/context.h"

/* A layout besides row-major: a convolution kernel {KH, KW, C, K} stored as {K, KH, KW, C}, for
 * cuDNN. */
enum { MG_KRSC = 1 };

extern const mg_kernel mg_cuda_host_fallback; /* runs the reference kernel on the host */
extern const mg_kernel mg_cuda_fused, mg_cuda_fused_sums; /* generated */
extern const mg_kernel mg_cuda_sum, mg_cuda_prod, mg_cuda_max, mg_cuda_min, mg_cuda_all,
    mg_cuda_any, mg_cuda_argmax, mg_cuda_argmin, mg_cuda_cumsum, mg_cuda_prod_grad,
    mg_cuda_all_finite;
extern const mg_kernel mg_cuda_permute, mg_cuda_slice, mg_cuda_broadcast_to, mg_cuda_reverse,
    mg_cuda_pad, mg_cuda_reshape, mg_cuda_concat, mg_cuda_split;
extern const mg_kernel mg_cuda_gather, mg_cuda_scatter_add;
extern const mg_kernel mg_cuda_take_along_axis, mg_cuda_scatter_along_axis, mg_cuda_scatter_last,
    mg_cuda_argsort, mg_cuda_linear_scan;
extern const mg_kernel mg_cuda_image_resize, mg_cuda_image_resize_grad, mg_cuda_affine_transform;
extern const mg_kernel mg_cuda_conv2d, mg_cuda_conv2d_grad_input, mg_cuda_conv2d_grad_weight;
extern const mg_kernel mg_cuda_full, mg_cuda_iota, mg_cuda_random;
extern const mg_kernel mg_cuda_softmax, mg_cuda_softmax_grad, mg_cuda_log_softmax;
extern const mg_kernel mg_cuda_softmax_cross_entropy, mg_cuda_softmax_cross_entropy_grad,
    mg_cuda_sparse_softmax_cross_entropy, mg_cuda_sparse_softmax_cross_entropy_grad;
extern const mg_kernel mg_cuda_moments, mg_cuda_batch_norm, mg_cuda_batch_norm_reduce;
extern const mg_kernel mg_cuda_layer_norm, mg_cuda_layer_norm_grad, mg_cuda_layer_norm_reduce;
extern const mg_kernel mg_cuda_max_pool2d, mg_cuda_max_pool2d_grad, mg_cuda_max_pool2d_pick,
    mg_cuda_avg_pool2d, mg_cuda_avg_pool2d_grad;
extern const mg_kernel mg_cuda_direct_conv2d, mg_cuda_direct_conv2d_grad_weight;
extern const mg_kernel mg_cuda_depth_conv2d, mg_cuda_depth_conv2d_grad_input,
    mg_cuda_depth_conv2d_grad_weight;
extern const mg_kernel mg_cuda_autotuned_conv2d, mg_cuda_autotuned_conv2d_grad_input,
    mg_cuda_autotuned_conv2d_grad_weight; /* the fastest of several */
extern const mg_kernel mg_cuda_blas_matmul, mg_cuda_matmul, mg_cuda_tiled_conv2d,
    mg_cuda_tiled_conv2d_grad_input, mg_cuda_tiled_conv2d_grad_weight;
extern const mg_kernel mg_cuda_reorder; /* between layouts */

#endif
