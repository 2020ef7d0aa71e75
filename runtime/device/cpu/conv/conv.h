/* Convolutions of images and their gradients: conv2d, conv2d_grad_input, conv2d_grad_weight.
 *
 * Each step is offered to the kernels in this order (plugin.c); the first that accepts computes it.
 * A kernel's file says what it accepts and why it is fast there:
 *
 *   winograd_images.c   3x3 and 5x5, stride 1, few channels (2 to about 16) and enough images:
 *                       an image for each lane, with a quarter of the multiplications
 *   winograd.c          square filters, 2x2 to 5x5 with stride 1, 3x3 to 10x10 with stride 2, more
 *                       channels: a fifth to a half of the multiplications
 *   small.c             one input channel: an image for each lane; the gradient of an input with
 *                       few channels: vectors over columns and channels
 *   onednn/conv.c,      float32, unless a later kernel is faster (is_slow): kernels generated for
 *   onednn/conv_1x1.c   the sizes
 *   depthwise.c         one filter for each channel: a lane for each channel
 *   direct.c            forward and filters' gradient, few channels, lines of a filter not dilated:
 *                       products read the pixels in place
 *   product.c           everything else, any floating dtype: windows are copied while a product
 *                       packs them
 *
 * In a frozen plan, one that predicts, filters in float32 are fixed: winograd.c, oneDNN and
 * product.c ask for them in the form that they read (mg_kernel_plan.packer), made once. Then the
 * choice depends on the batch too, since for few images reading the filters takes long. Gains over
 * filters that are packed in each run, for one image and one thread of an Ice Lake with AVX-512:
 *
 *   3x3, stride 1      winograd.c; all tiles of     256 to 128 channels, 24x24: 4 times;
 *                      one size, if that is best    128 to 128, 28x28: 1.4 times
 *   3x3 of 7x7 pixels  oneDNN                       512 to 512 channels: 2 times
 *   1x1                oneDNN                       512 to 2048, 7x7: 2 times; 64 to 256, 56x56: 1
 *   without oneDNN     product.c                    as oneDNN where filters are large
 *
 * So winograd.c takes 3x3 filters on 32 images of 28x28 with 64 channels: they fill its vectors, so
 * winograd_images.c, which is asked first, refuses. MGPU_LOG=dispatch names the kernel of each
 * step, and why those before it refused.
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
    mg_cpu_direct_conv2d_grad_weight, mg_cpu_packed_conv2d, mg_cpu_conv2d, mg_cpu_conv2d_grad_input,
    mg_cpu_conv2d_grad_weight;

#endif
