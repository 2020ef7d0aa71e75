/* cuDNN's legacy calls: the library's table, and what describes a tensor to them. */
#include "device/cuda/dnn_legacy.h"

mg_cudnn_legacy mg_dnn_old;
MG_LIBRARY(library, mg_dnn_old, MG_CUDNN_LEGACY, .file = "libcudnn.so.9",
           .what = "cuDNN 9 with its legacy calls",
           .install = "install libcudnn9-cuda-13, or pip's nvidia-cudnn-cu13");

mg_status mg_dnn_legacy_open(void) {
    MG_TRY(mg_dnn_open());
    return mg_library_open(&library);
}

const char *mg_dnn_legacy_missing(void) {
    return mg_dnn_legacy_open() == MG_OK ? NULL : mg_error_message();
}

bool mg_dnn_fits(const mg_shape *shape) {
    for (int i = 0; i < shape->rank; i++)
        if (shape->dim[i] > INT32_MAX) return false;
    return mg_shape_count(shape) <= INT32_MAX;
}

mg_status mg_dnn_image(cudnnTensorDescriptor_t *made, const mg_shape *shape, mg_dtype dtype) {
    const int64_t *dim = shape->dim;
    const bool image = shape->rank == 4;
    const int c = (int)dim[shape->rank - 1];
    const int n = (int)(image ? dim[0] : mg_shape_count(shape) / c);
    const int h = image ? (int)dim[1] : 1, w = image ? (int)dim[2] : 1;
    MG_TRY(mg_dnn_check(mg_dnn_old.cudnnCreateTensorDescriptor(made), "describe a tensor"));
    return mg_dnn_check(mg_dnn_old.cudnnSetTensor4dDescriptor(*made, CUDNN_TENSOR_NHWC,
                                                              mg_dnn_type(dtype), n, c, h, w),
                        "describe a tensor");
}

const void *mg_dnn_factor(mg_dtype dtype, bool one) {
    static const double doubles[] = {0, 1};
    static const float floats[] = {0, 1};
    return dtype == MG_F64 ? (const void *)&doubles[one] : &floats[one];
}
