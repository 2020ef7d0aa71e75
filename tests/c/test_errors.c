/* Errors that no script can bring about, since the Lua side checks the same first, or offers no
 * such call: inputs of ops that only plans add, steps on too many devices, sources of tensors,
 * images. */
#include "comm/comm.h"
#include "core/io.h"
#include "core/status.h"
#include "data/image.h"
#include "data/sources/sources.h"
#include "data/element.h"
#include "device/buffer.h"
#include "device/device.h"
#include "graph/graph.h"
#include "ops/attrs.h"
#include "ops/op.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

static mg_tensor *ones(mg_dtype dtype, mg_shape shape) {
    mg_full_attrs attrs = {.value = 1, .dtype = dtype, .shape.n = shape.rank};
    memcpy(attrs.shape.v, shape.dim, sizeof shape.dim);
    mg_tensor *t = mg_apply(mg_op_find("full"), NULL, 0, &attrs);
    assert_non_null(t);
    return t;
}

/* Applies the op and releases the inputs; the message must be `expected`. */
static void refused(const char *op, const void *attrs, mg_tensor **inputs, int n,
                    const char *expected) {
    mg_error_clear();
    assert_null(mg_apply(mg_op_find(op), inputs, n, attrs));
    assert_string_equal(mg_error_message(), expected);
    for (int i = 0; i < n; i++) mg_tensor_release(inputs[i]);
}

static void wrong_numbers_of_inputs_are_refused(void **state) {
    (void)state;
    mg_tensor *two[] = {ones(MG_F32, MG_SHAPE(2)), ones(MG_F32, MG_SHAPE(2))};
    refused("neg", NULL, two, 2, "neg: takes 1 input, got 2");
    refused("add", NULL, two, 0, "add: takes 2 inputs, got 0");
    mg_tensor *image[] = {ones(MG_F32, MG_SHAPE(1, 4, 4, 3))};
    mg_conv_attrs conv = {0};
    mg_op_default_attrs(mg_op_find("conv2d"), &conv);
    refused("conv2d", &conv, image, 1, "conv2d: takes at least 2 inputs, got 1");
}

/* The third input of conv2d and matmul is made by plans that fold a bias in. */
static void a_bias_of_another_size_is_refused(void **state) {
    (void)state;
    mg_conv_attrs conv = {0};
    mg_op_default_attrs(mg_op_find("conv2d"), &conv);
    mg_tensor *images[] = {ones(MG_F32, MG_SHAPE(1, 4, 4, 3)), ones(MG_F32, MG_SHAPE(3, 3, 3, 4)),
                           ones(MG_F32, MG_SHAPE(3))};
    refused("conv2d", &conv, images, 3, "conv2d: bias must have shape {4}, got {3}");
    mg_matmul_attrs product = {0};
    mg_op_default_attrs(mg_op_find("matmul"), &product);
    mg_tensor *matrices[] = {ones(MG_F32, MG_SHAPE(2, 3)), ones(MG_F32, MG_SHAPE(3, 4)),
                             ones(MG_F32, MG_SHAPE(3))};
    refused("matmul", &product, matrices, 3, "matmul: bias must have shape {4}, got {3}");
}

/* The gradient of the sum of y by its first input. */
static void has_no_gradient(mg_tensor *x, mg_tensor *y, const char *expected) {
    mg_reduce_attrs all = {0};
    mg_op_default_attrs(mg_op_find("sum"), &all);
    mg_tensor *sum = mg_apply(mg_op_find("sum"), &y, 1, &all), *gradient = NULL;
    assert_non_null(sum);
    assert_int_equal(mg_grad(sum, &x, 1, &gradient), MG_UNSUPPORTED);
    assert_string_equal(mg_error_message(), expected);
    mg_tensor_release(sum);
}

static void a_folded_bias_has_no_gradient(void **state) {
    (void)state;
    mg_conv_attrs conv = {0};
    mg_op_default_attrs(mg_op_find("conv2d"), &conv);
    mg_tensor *images[] = {ones(MG_F32, MG_SHAPE(1, 4, 4, 3)), ones(MG_F32, MG_SHAPE(3, 3, 3, 4)),
                           ones(MG_F32, MG_SHAPE(4))};
    mg_tensor *y = mg_apply(mg_op_find("conv2d"), images, 3, &conv);
    has_no_gradient(images[0], y,
                    "conv2d: a bias input or the option relu has no gradient: apply bias and relu "
                    "as separate ops");
    mg_tensor_release(y);
    for (int i = 0; i < 3; i++) mg_tensor_release(images[i]);
    mg_matmul_attrs product = {0};
    mg_op_default_attrs(mg_op_find("matmul"), &product);
    mg_tensor *matrices[] = {ones(MG_F32, MG_SHAPE(2, 3)), ones(MG_F32, MG_SHAPE(3, 4)),
                             ones(MG_F32, MG_SHAPE(4))};
    y = mg_apply(mg_op_find("matmul"), matrices, 3, &product);
    has_no_gradient(matrices[0], y,
                    "matmul: a bias input or the option relu has no gradient: apply bias and relu "
                    "as separate ops");
    mg_tensor_release(y);
    for (int i = 0; i < 3; i++) mg_tensor_release(matrices[i]);
}

/* A tensor with values, on ref. */
static mg_tensor *held(mg_dtype dtype, mg_shape shape) {
    static const double zeros[16];
    mg_tensor *t = mg_tensor_from_host(zeros, dtype, &shape, mg_device_find("ref:0"));
    assert_non_null(t);
    return t;
}

static void message_is(const char *expected) {
    assert_string_equal(mg_error_message(), expected);
}

static void steps_refuse_what_they_cannot_share(void **state) {
    (void)state;
    mg_trace *t = mg_trace_begin(mg_device_find("ref:0"));
    assert_non_null(t);
    assert_null(mg_trace_begin(mg_device_find("ref:0")));
    message_is("a trace is already open");
    assert_int_equal(mg_trace_set_devices(t, NULL, 65, 1, NULL, false, NULL, false), MG_USAGE);
    message_is("at most 64 devices can share a step, got 65");
    mg_trace_abandon(t);
}

static void a_guard_wants_one_bool(void **state) {
    (void)state;
    mg_tensor *two = held(MG_F32, MG_SHAPE(2));
    assert_int_equal(mg_guard_add(two, MG_DATA, "never"), MG_USAGE);
    message_is("guard: the condition must be one bool, got float32 {2}");
    mg_tensor_release(two);
}

static void a_communicator_that_is_not_there_is_named(void **state) {
    (void)state;
    assert_null(mg_comm_find("carrier-pigeons"));
    assert_non_null(strstr(mg_error_message(), "there is no communicator \"carrier-pigeons\": "
                                               "mgpu-carrier-pigeons.so: "));
}

/* No plan leaves a receiver without its sender, unless a device hangs: then others notice first. */
static void a_transfer_that_nobody_sends_ends(void **state) {
    (void)state;
    float out = 1;
    mg_comm *comm = mg_comm_local(2);
    assert_non_null(comm);
    comm->deadline = 0.01;
    const mg_comm_operand operand = {.out = &out, .count = 1};
    const mg_collective_call call = {.kind = MG_TRANSFER,
                                     .dtype = MG_F32,
                                     .root = 0,
                                     .to = 1,
                                     .operands = &operand,
                                     .n_operands = 1};
    assert_int_equal(comm->api->run(comm, 1, &call), MG_COMM);
    message_is("another device did not answer within 0.01 seconds");
    assert_true(out == 1);
    comm->api->free(comm);
}

static void sources_take_tensors_with_rows(void **state) {
    (void)state;
    mg_tensor *scalar = held(MG_F32, MG_SHAPE()), *lazy = ones(MG_F32, MG_SHAPE(3));
    assert_null(mg_tensors_source(&scalar, 1));
    message_is("from_tensors: tensor 1 is a single number, but its first axis must be rows");
    assert_null(mg_tensors_source(&lazy, 1));
    message_is("from_tensors: tensor 1 is not in the host's memory: move it with :to \"cpu\"");
    mg_tensor_release(scalar), mg_tensor_release(lazy);
}

static void a_stack_takes_tensors_that_fit(void **state) {
    (void)state;
    const mg_shape cell = MG_SHAPE(2);
    mg_tensor *small = held(MG_F32, MG_SHAPE(2)), *large = held(MG_F32, MG_SHAPE(3)),
              *exact = held(MG_F64, MG_SHAPE(2)), *lazy = ones(MG_F32, MG_SHAPE(2));
    assert_null(mg_stack((mg_tensor *[]){small, large}, 2, &cell, 0, 2, 0));
    message_is("stack: tensor 2 of shape {3} does not fit into {2}");
    assert_null(mg_stack((mg_tensor *[]){small, exact}, 2, &cell, 0, 2, 0));
    message_is("stack: tensor 2 is of dtype float64, the first of float32");
    assert_null(mg_stack((mg_tensor *[]){small, lazy}, 2, &cell, 0, 2, 0));
    message_is("stack: tensor 2 has no values in the host's memory");
    const mg_shape deep = MG_SHAPE(1, 1, 1, 1, 1, 1, 1, 1);
    mg_tensor *eight = held(MG_F32, deep);
    assert_null(mg_stack(&eight, 1, &deep, 0, 1, 0));
    message_is("batch: elements of 8 axes cannot be batched: 8 are possible");
    mg_tensor_release(small), mg_tensor_release(large), mg_tensor_release(exact);
    mg_tensor_release(lazy), mg_tensor_release(eight);
}

static void a_file_that_is_not_there_cannot_be_removed(void **state) {
    (void)state;
    assert_int_equal(mg_io_remove("no/such/file"), MG_IO);
    message_is("cannot remove no/such/file: No such file or directory");
}

static void images_have_limits(void **state) {
    (void)state;
    static const uint8_t bytes[8];
    mg_image image;
    assert_int_equal(
        mg_image_decode(bytes, sizeof bytes, (mg_image_form){.channels = 2}, NULL, &image),
        MG_USAGE);
    message_is("an image has 1, 3 or 4 channels, not 2");
    assert_int_equal(mg_image_decode(bytes, (size_t)MG_IMAGE_BYTES + 1,
                                     (mg_image_form){.channels = 3}, NULL, &image),
                     MG_UNSUPPORTED);
    assert_non_null(strstr(mg_error_message(), "more than the limit of "));
    mg_image_file file;
    uint8_t pixels[4] = {0};
    const mg_image alpha = {.height = 1, .width = 1, .channels = 4, .pixels = pixels};
    if (mg_image_encode_jpeg(&alpha, 90, &file) == MG_UNSUPPORTED) skip(); /* no libjpeg */
    message_is("a JPEG image has no alpha: give 3 channels, or save a PNG");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_numbers_of_inputs_are_refused),
        cmocka_unit_test(a_bias_of_another_size_is_refused),
        cmocka_unit_test(a_folded_bias_has_no_gradient),
        cmocka_unit_test(steps_refuse_what_they_cannot_share),
        cmocka_unit_test(a_guard_wants_one_bool),
        cmocka_unit_test(a_communicator_that_is_not_there_is_named),
        cmocka_unit_test(a_transfer_that_nobody_sends_ends),
        cmocka_unit_test(sources_take_tensors_with_rows),
        cmocka_unit_test(a_stack_takes_tensors_that_fit),
        cmocka_unit_test(a_file_that_is_not_there_cannot_be_removed),
        cmocka_unit_test(images_have_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
