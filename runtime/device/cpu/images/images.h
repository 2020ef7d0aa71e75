/* Pooling, resizing and affine transforms of images. */
#ifndef MG_DEVICE_CPU_IMAGES_IMAGES_H
#define MG_DEVICE_CPU_IMAGES_IMAGES_H

#include "device/cpu/cpu.h"

extern const mg_kernel mg_cpu_max_pool2d, mg_cpu_max_pool2d_grad, mg_cpu_avg_pool2d,
    mg_cpu_avg_pool2d_grad, mg_cpu_image_resize, mg_cpu_image_resize_grad, mg_cpu_affine_transform,
    mg_cpu_affine_transform_grad;

#endif
