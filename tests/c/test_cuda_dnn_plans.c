/* The real cuDNN, without a GPU: for the graphs that we describe it must name engines and make
 * plans.
 *
 * A file describes the GPU (an H200's properties) to cuDNN, and no kernel is run. The toolkit's
 * stub of a driver cannot compile at run time, so only plans with precompiled kernels are seen
 * here. */
#include "core/precision.h"
#include "device/cuda/cudnn/conv_plan.h"
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

typedef struct shape {
    const char *name;
    /* `rows` is also the columns; `more`: further padding after the image, beyond `pad`. */
    int64_t rows, channels, size, kernels, stride, pad, more, groups;
    int first; /* a first layer: its image needs no gradient */
} shape;

/* The convolutions of models/, and others. */
static const shape shapes[] = {
    {"mnist_cnn 1", 28, 1, 3, 32, 1, 0, 0, 1, 1},    {"mnist_cnn 2", 26, 32, 3, 256, 1, 0, 0, 1, 0},
    {"mnist_cnn 3", 24, 256, 3, 128, 1, 0, 0, 1, 0}, {"lenet5 1", 28, 1, 5, 6, 1, 2, 0, 1, 1},
    {"lenet5 2", 14, 6, 5, 16, 1, 0, 0, 1, 0},       {"resnet 7x7", 224, 3, 7, 64, 2, 2, 1, 1, 1},
    {"resnet 1x1", 56, 256, 1, 64, 1, 0, 0, 1, 0},   {"resnet 3x3", 56, 64, 3, 64, 1, 1, 0, 1, 0},
    {"3x3 / 2", 56, 128, 3, 128, 2, 0, 1, 1, 0},     {"1x1 / 2", 56, 256, 1, 512, 2, 0, 0, 1, 0},
    {"depthwise", 14, 64, 3, 64, 1, 1, 0, 64, 0},    {"2 groups", 14, 64, 3, 64, 1, 1, 0, 2, 0},
};

#ifndef STUBS /* the folder of the toolkit's libcuda.so, which is only there to link against */
#define STUBS "/usr/local/cuda/lib64/stubs"
#endif

/* Called by LeakSanitizer. Turns it off, because cuDNN and cuBLAS do not free their memory when
 * they are unloaded. */
int __lsan_is_turned_off(void) __attribute__((visibility("default")));
int __lsan_is_turned_off(void) {
    return 1;
}

#define OK(call) assert_int_equal(mg_dnn.call, CUDNN_STATUS_SUCCESS)

static mg_dnn_target target;

/* Without cuDNN 9.8 or the stub there is no target, and the tests are skipped. */
static int open_library(void **state) {
    (void)state;
    if (!dlopen(STUBS "/libcuda.so", RTLD_NOW | RTLD_GLOBAL)) return 0;
    if (mg_dnn_open() != MG_OK || mg_dnn.cudnnGetVersion() < 90800) return 0;
    FILE *f = fopen("tests/cuda/h200-device-properties.json", "r");
    char text[4096];
    if (!f) return 1;
    const size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = 0;
    cudnnBackendDescriptor_t d = NULL;
    if (mg_dnn.cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &d) ||
        mg_dnn.cudnnBackendSetAttribute(d, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                        CUDNN_TYPE_CHAR, (int64_t)n + 1, text) ||
        mg_dnn.cudnnBackendFinalize(d))
        return 1;
    target.properties = d;
    return 0;
}

static int close_library(void **state) {
    (void)state;
    if (target.properties) mg_dnn.cudnnBackendDestroyDescriptor(target.properties);
    return 0;
}

/* Whether the engine of a configuration has this numerical note. */
static bool has_note(cudnnBackendDescriptor_t config, cudnnBackendNumericalNote_t note) {
    cudnnBackendNumericalNote_t found[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    cudnnBackendDescriptor_t engine;
    int64_t n = 0;
    bool has = false;
    OK(cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine));
    OK(cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                1, &n, &engine));
    OK(cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &n, found));
    for (int64_t i = 0; i < n; i++) has |= found[i] == note;
    OK(cudnnBackendDestroyDescriptor(engine));
    return has;
}

/* No plan may use an algorithm that determinism or precision forbids. */
static void check_notes(cudnnBackendDescriptor_t config, mg_dtype dtype) {
    if (mg_deterministic()) assert_false(has_note(config, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC));
    if (dtype == MG_F32 && !mg_precision_fast())
        assert_false(has_note(config, CUDNN_NUMERICAL_NOTE_TENSOR_CORE));
}

/* Plans for one convolution, or for its gradient (result), with bias and relu if `epilogue`. */
static void check(const shape *s, int64_t batch, int result, mg_dtype dtype, bool epilogue) {
    const int64_t out = (s->rows + 2 * s->pad + s->more - s->size) / s->stride + 1;
    const mg_dnn_conv c = {.result = result,
                           .dtype = dtype,
                           .x = {batch, s->channels, s->rows, s->rows},
                           .w = {s->kernels, s->channels / s->groups, s->size, s->size},
                           .y = {batch, s->kernels, out, out},
                           .strides = {s->stride, s->stride},
                           .dilations = {1, 1},
                           .before = {s->pad, s->pad},
                           .after = {s->pad + s->more, s->pad + s->more},
                           .bias = epilogue,
                           .relu = epilogue};
    mg_dnn_graph g;
    mg_dnn_plan plans[4];
    int n = 0;
    mg_status status = mg_dnn_graph_make(&g, &target, &c);
    if (status == MG_OK) status = mg_dnn_plans(&target, &g, dtype, 4, plans, &n);
    if (status != MG_OK)
        fail_msg("%s, batch %lld, result %d, %s%s: %s", s->name, (long long)batch, result,
                 mg_dtype_name(dtype), epilogue ? ", bias, relu" : "", mg_error_message());
    for (int i = 0; i < n; i++) check_notes(plans[i].engine, dtype);
    while (n) mg_dnn_plan_drop(&plans[--n]);
    mg_dnn_graph_drop(&g);
}

/* All shapes in three batch sizes: forward, with epilogue, and both gradients. */
static void check_all(mg_dtype dtype) {
    static const int64_t batches[] = {1, 32, 128};
    if (!target.properties) {
        print_message("skipped: it needs cuDNN 9.8 and the toolkit's %s/libcuda.so\n", STUBS);
        skip();
    }
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int b = 0; b < 3; b++) {
            check(&shapes[i], batches[b], MG_DNN_Y, dtype, false);
            check(&shapes[i], batches[b], MG_DNN_Y, dtype, true);
            check(&shapes[i], batches[b], MG_DNN_W, dtype, false);
            if (!shapes[i].first) check(&shapes[i], batches[b], MG_DNN_X, dtype, false);
        }
}

static void convolutions_in_f16_have_plans(void **state) {
    (void)state;
    check_all(MG_F16);
}

static void convolutions_in_bf16_have_plans(void **state) {
    (void)state;
    check_all(MG_BF16);
}

static void convolutions_in_f32_have_plans(void **state) {
    (void)state;
    check_all(MG_F32);
}

/* "highest" precision and mgpu.deterministic(true) leave at least one plan for every convolution.
 */
static void highest_and_deterministic_ones_have_plans(void **state) {
    (void)state;
    mg_precision_set_fast(false);
    mg_deterministic_set(true);
    check_all(MG_F32);
    mg_precision_set_fast(true);
    mg_deterministic_set(false);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(convolutions_in_f16_have_plans),
        cmocka_unit_test(convolutions_in_bf16_have_plans),
        cmocka_unit_test(convolutions_in_f32_have_plans),
        cmocka_unit_test(highest_and_deterministic_ones_have_plans),
    };
    return cmocka_run_group_tests(tests, open_library, close_library);
}
