/* cuDNN itself, without a GPU: what its legacy calls are told of pools, normalizations and
 * convolutions is what it takes it for. Nothing is run. */
#include "device/cuda/dnn_legacy.h"
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#ifndef STUBS /* where the toolkit has the libcuda.so that can only be linked to */
#define STUBS "/usr/local/cuda/lib64/stubs"
#endif

#define OK(call) assert_int_equal(call, CUDNN_STATUS_SUCCESS)

static __typeof__(cudnnGetPooling2dForwardOutputDim) *pooled_sizes;
static __typeof__(cudnnGetConvolution2dForwardOutputDim) *convolved_sizes;
static __typeof__(cudnnDeriveBNTensorDescriptor) *derive;
static __typeof__(cudnnGetTensor4dDescriptor) *read_tensor;

static const mg_dtype dtypes[] = {MG_F16, MG_BF16, MG_F32, MG_F64};

static int open_library(void **state) {
    (void)state;
    if (!dlopen(STUBS "/libcuda.so", RTLD_NOW | RTLD_GLOBAL)) return 0;
    if (mg_dnn_legacy_open() != MG_OK) return 0;
    void *library = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_NOLOAD);
    if (!library) return 0;
    *(void **)&pooled_sizes = dlsym(library, "cudnnGetPooling2dForwardOutputDim");
    *(void **)&convolved_sizes = dlsym(library, "cudnnGetConvolution2dForwardOutputDim");
    *(void **)&derive = dlsym(library, "cudnnDeriveBNTensorDescriptor");
    *(void **)&read_tensor = dlsym(library, "cudnnGetTensor4dDescriptor");
    return 0;
}

static void need_library(void) {
    if (pooled_sizes && convolved_sizes && derive && read_tensor) return;
    print_message("skipped: it wants cuDNN and the toolkit's %s/libcuda.so\n", STUBS);
    skip();
}

/* {type, n, c, h, w, strides of n, c, h, w} */
static void read(cudnnTensorDescriptor_t d, int found[9]) {
    cudnnDataType_t type;
    OK(read_tensor(d, &type, &found[1], &found[2], &found[3], &found[4], &found[5], &found[6],
                   &found[7], &found[8]));
    found[0] = (int)type;
}

static void images_lie_channels_last(void **state) {
    (void)state;
    need_library();
    for (int i = 0; i < 4; i++) {
        const mg_shape image = MG_SHAPE(128, 22, 20, 6), rows = MG_SHAPE(7, 3, 16);
        const int type = (int)mg_dnn_type(dtypes[i]);
        const int as_image[] = {type, 128, 6, 22, 20, 22 * 20 * 6, 1, 20 * 6, 6};
        const int as_rows[] = {type, 21, 16, 1, 1, 16, 1, 16, 16};
        cudnnTensorDescriptor_t d;
        int found[9];
        assert_int_equal(mg_dnn_image(&d, &image, dtypes[i]), MG_OK);
        read(d, found);
        assert_memory_equal(found, as_image, sizeof found);
        OK(mg_dnn_old.cudnnDestroyTensorDescriptor(d));
        assert_int_equal(mg_dnn_image(&d, &rows, dtypes[i]), MG_OK);
        read(d, found);
        assert_memory_equal(found, as_rows, sizeof found);
        OK(mg_dnn_old.cudnnDestroyTensorDescriptor(d));
    }
}

/* Those of models/, and one with padding. */
static void pools_have_the_sizes_that_we_expect(void **state) {
    static const struct pool {
        int rows, channels, size, stride, pad, out;
    } pools[] = {{22, 128, 2, 2, 0, 11}, {28, 6, 2, 2, 0, 14}, {10, 16, 2, 2, 0, 5},
                 {112, 64, 3, 2, 1, 56}, {7, 3, 3, 1, 1, 7},   {5, 4, 2, 2, 0, 2}};
    (void)state;
    need_library();
    for (size_t i = 0; i < sizeof pools / sizeof *pools; i++) {
        const struct pool *p = &pools[i];
        const mg_shape image = MG_SHAPE(128, p->rows, p->rows, p->channels);
        cudnnTensorDescriptor_t x;
        cudnnPoolingDescriptor_t pooling;
        int n, c, h, w;
        assert_int_equal(mg_dnn_image(&x, &image, MG_F16), MG_OK);
        OK(mg_dnn_old.cudnnCreatePoolingDescriptor(&pooling));
        OK(mg_dnn_old.cudnnSetPooling2dDescriptor(pooling, CUDNN_POOLING_MAX, CUDNN_PROPAGATE_NAN,
                                                  p->size, p->size, p->pad, p->pad, p->stride,
                                                  p->stride));
        OK(pooled_sizes(pooling, x, &n, &c, &h, &w));
        assert_true(n == 128 && c == p->channels && h == p->out && w == p->out);
        OK(mg_dnn_old.cudnnDestroyPoolingDescriptor(pooling));
        OK(mg_dnn_old.cudnnDestroyTensorDescriptor(x));
    }
}

/* The statistics of halves are floats. */
static void norms_have_the_parameters_that_we_give(void **state) {
    (void)state;
    need_library();
    for (int i = 0; i < 4; i++) {
        const mg_shape image = MG_SHAPE(128, 24, 24, 256), channels = MG_SHAPE(256);
        cudnnTensorDescriptor_t x, derived, ours;
        int expected[9], found[9];
        assert_int_equal(mg_dnn_image(&x, &image, dtypes[i]), MG_OK);
        assert_int_equal(mg_dnn_image(&ours, &channels, dtypes[i] == MG_F64 ? MG_F64 : MG_F32),
                         MG_OK);
        OK(mg_dnn_old.cudnnCreateTensorDescriptor(&derived));
        OK(derive(derived, x, CUDNN_BATCHNORM_SPATIAL));
        read(derived, expected);
        read(ours, found);
        assert_memory_equal(found, expected, 5 * sizeof *found); /* strides of size 1 say nothing */
        OK(mg_dnn_old.cudnnDestroyTensorDescriptor(x));
        OK(mg_dnn_old.cudnnDestroyTensorDescriptor(ours));
        OK(mg_dnn_old.cudnnDestroyTensorDescriptor(derived));
    }
}

static void convolutions_have_the_sizes_that_we_expect(void **state) {
    (void)state;
    need_library();
    const mg_shape image = MG_SHAPE(128, 28, 26, 6);
    cudnnTensorDescriptor_t x;
    cudnnFilterDescriptor_t w;
    cudnnConvolutionDescriptor_t conv;
    int n, c, h, wide;
    assert_int_equal(mg_dnn_image(&x, &image, MG_BF16), MG_OK);
    OK(mg_dnn_old.cudnnCreateFilterDescriptor(&w));
    OK(mg_dnn_old.cudnnSetFilter4dDescriptor(w, CUDNN_DATA_BFLOAT16, CUDNN_TENSOR_NHWC, 16, 3, 5,
                                             3));
    OK(mg_dnn_old.cudnnCreateConvolutionDescriptor(&conv));
    OK(mg_dnn_old.cudnnSetConvolution2dDescriptor(conv, 2, 1, 1, 2, 1, 1, CUDNN_CROSS_CORRELATION,
                                                  CUDNN_DATA_FLOAT));
    OK(mg_dnn_old.cudnnSetConvolutionGroupCount(conv, 2));
    OK(mg_dnn_old.cudnnSetConvolutionMathType(conv, CUDNN_TENSOR_OP_MATH));
    OK(convolved_sizes(conv, x, w, &n, &c, &h, &wide));
    assert_true(n == 128 && c == 16 && h == 28 && wide == 13);
    OK(mg_dnn_old.cudnnDestroyConvolutionDescriptor(conv));
    OK(mg_dnn_old.cudnnDestroyFilterDescriptor(w));
    OK(mg_dnn_old.cudnnDestroyTensorDescriptor(x));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(images_lie_channels_last),
        cmocka_unit_test(pools_have_the_sizes_that_we_expect),
        cmocka_unit_test(norms_have_the_parameters_that_we_give),
        cmocka_unit_test(convolutions_have_the_sizes_that_we_expect),
    };
    return cmocka_run_group_tests(tests, open_library, NULL);
}
