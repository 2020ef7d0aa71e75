/* Convolutions of images and their gradients: conv2d, conv2d_grad_input, conv2d_grad_weight.
 *
 * Each step is offered to the kernels in this order (plugin.c); the first that accepts computes it.
 * A kernel's file says what it accepts and why it is fast there:
 *
 *   kernel              what it takes                               why
 *   winograd_images.c   3x3 and 5x5, stride 1, 2 to about 16        a lane for each image; a
 * quarter of channels, an image for each lane            the multiplications winograd.c square
 * filters of 2 to 5 taps with stride   a fifth to a half of the 1, of 3 to 10 with stride 2
 * multiplications small.c             one input channel; or few channels of an    a lane for each
 * image, or vectors input's gradient                            over columns and channels
 *   onednn/conv.c,      float32, unless another kernel is faster    kernels generated for the sizes
 *   onednn/conv_1x1.c   (is_slow)
 *   depthwise.c         one filter for each channel                 a lane for each channel
 *   direct.c            forward and filters' gradient, the lines    products read the pixels in
 * place of a filter not dilated, few channels product.c           everything else, any floating
 * dtype         windows are copied while a product packs them
 *
 * Winograd's algorithm is not used under mgpu.precision "highest". windows.h finds the pixels of a
 * window for depthwise.c and product.c. */
#ifndef MG_DEVICE_CPU_CONV_CONV_H
#define MG_DEVICE_CPU_CONV_CONV_H

#include "device/cpu/cpu.h"

extern const mg_kernel mg_cpu_winograd_images_conv2d, mg_cpu_winograd_images_conv2d_grad_input,
    mg_cpu_winograd_images_conv2d_grad_weight, mg_cpu_winograd_conv2d,
    mg_cpu_winograd_conv2d_grad_input, mg_cpu_winograd_conv2d_grad_weight, mg_cpu_small_conv2d,
    mg_cpu_small_conv2d_grad_input, mg_cpu_small_conv2d_grad_weight, mg_cpu_depthwise_conv2d,
    mg_cpu_depthwise_conv2d_grad_input, mg_cpu_depthwise_conv2d_grad_weight, mg_cpu_direct_conv2d,
    mg_cpu_direct_conv2d_grad_weight, mg_cpu_conv2d, mg_cpu_conv2d_grad_input,
    mg_cpu_conv2d_grad_weight;

#endif
