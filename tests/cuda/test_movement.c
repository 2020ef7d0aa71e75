/* Kernels of the cuda device that move data or draw numbers, called directly through their
 * mg_kernel rows.
 *
 * This reaches cases that programs rarely give: operands at any offset in a buffer, which decides
 * the unit of the copies; parts of a draw as a sharded tensor has them; layouts of convolution
 * weights. The bytes around a result are checked too. */
#define _GNU_SOURCE
#include "core/alloc.h"
#include "device/cuda/kernels.h"
#include "device/device.h"
#include "ops/attrs.h"
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { ROOM = 65536, GUARD = 64 }; /* bytes of a buffer; of those before the first operand */

static mg_device *device;
static void *plugin;

/* A kernel row of the plug-in, which has no other way in than its symbol. */
static const mg_kernel *kernel(const char *name) {
    char symbol[64];
    snprintf(symbol, sizeof symbol, "mg_cuda_%s", name);
    const mg_kernel *found = dlsym(plugin, symbol);
    assert_non_null(found);
    return found;
}

typedef struct call {
    mg_step step;
    mg_value in[2], out;
    int layout_in, layout_out; /* only for reorder, which has no step */
    const char *name;
} call;

/* Prepares and runs a call on operands that lie `skew` bytes behind an aligned address. The result
 * goes to y; bytes before and behind it must be unchanged. */
static void run_call(const call *c, int skew, const uint8_t *const *x, uint8_t *y) {
    static const int numbers[] = {0, 1};
    const mg_kernel *k = kernel(c->name);
    void *memory[3] = {NULL}, *in[2], *out;
    uint8_t *host = malloc(ROOM);
    mg_step step = c->step;
    step.in = step.out = numbers, step.n_out = 1;
    mg_port in_ports[2] = {{&c->in[0], c->layout_in, false}, {&c->in[1], 0, false}};
    mg_port out_port = {&c->out, c->layout_out, false};
    mg_kernel_plan plan = {.step = strcmp(c->name, "reorder") ? &step : NULL,
                           .in = in_ports,
                           .out = &out_port,
                           .device = device};
    const size_t bytes = (size_t)mg_shape_count(&c->out.shape) * mg_dtype_size(c->out.dtype);
    memset(host, 0x5a, ROOM);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(device->api->alloc(device, ROOM, &memory[i]), MG_OK);
        assert_int_equal(device->api->copy_in(device, memory[i], host, ROOM), MG_OK);
    }
    for (int i = 0; i < c->step.n_in; i++) {
        const size_t size = (size_t)mg_shape_count(&c->in[i].shape) * mg_dtype_size(c->in[i].dtype);
        in[i] = (char *)memory[i] + GUARD + skew;
        assert_int_equal(device->api->copy_in(device, in[i], x[i], size), MG_OK);
    }
    out = (char *)memory[2] + GUARD + skew;
    assert_int_equal(k->prepare(&plan), MG_OK);
    const mg_call made = {.plan = &plan, .in = in, .out = &out, .first = step.first};
    assert_int_equal(k->run(&made), MG_OK);
    assert_int_equal(device->api->copy_out(device, host, memory[2], ROOM), MG_OK);
    if (k->release) k->release(plan.state);
    memcpy(y, host + GUARD + skew, bytes);
    for (size_t i = 0; i < (size_t)(GUARD + skew); i++) assert_int_equal(host[i], 0x5a);
    for (size_t i = (size_t)(GUARD + skew) + bytes; i < ROOM; i++) assert_int_equal(host[i], 0x5a);
    for (int i = 0; i < 3; i++) device->api->free(device, memory[i], ROOM);
    free(host);
}

/* The result must be the same at every offset that is a multiple of the element's size. */
static void same_everywhere(const call *c) {
    static uint8_t x[2][ROOM], wanted[ROOM], y[ROOM];
    const uint8_t *const list[] = {x[0], x[1]};
    const int size = (int)mg_dtype_size(c->out.dtype);
    for (int i = 0; i < ROOM; i++) x[0][i] = (uint8_t)(i * 37 % 251), x[1][i] = (uint8_t)(i % 3);
    run_call(c, 0, list, wanted);
    for (int skew = size; skew <= 16; skew += size) {
        memset(y, 0, sizeof y);
        run_call(c, skew, list, y);
        assert_memory_equal(y, wanted, (size_t)mg_shape_count(&c->out.shape) * (size_t)size);
    }
}

/* Every movement kernel, for every dtype. */
static void any_address_will_do(void **state) {
    const mg_ints_attrs order = {.list = {.n = 3, .v = {1, 0, 2}}};
    const mg_axis_attrs first = {.axis = 0};
    const mg_slice_attrs slice = {.start = {.n = 2, .v = {0, 16}},
                                  .stop = {.n = 2, .v = {9, 48}},
                                  .step = {.n = 2, .v = {2, 1}}};
    const mg_pad_attrs pad = {
        .before = {.n = 2, .v = {1, 16}}, .after = {.n = 2, .v = {0, 16}}, .value = 3};
    const mg_full_attrs full = {.value = 5};
    const mg_random_attrs uniform = {.kind = MG_RANDOM_UNIFORM, .b = 1, .dtype = MG_F32};
    (void)state;
    for (mg_dtype t = MG_U8; t < MG_N_DTYPES; t++) {
        const mg_value x = {MG_SHAPE(20, 18, 16), t}, matrix = {MG_SHAPE(9, 64), t};
        const call calls[] = {
            {{.attrs = &order, .n_in = 1}, {x}, {MG_SHAPE(18, 20, 16), t}, .name = "permute"},
            {{.attrs = &slice, .n_in = 1}, {matrix}, {MG_SHAPE(5, 32), t}, .name = "slice"},
            {{.attrs = &pad, .n_in = 1}, {matrix}, {MG_SHAPE(10, 96), t}, .name = "pad"},
            {{.attrs = &first, .n_in = 1}, {matrix}, matrix, .name = "reverse"},
            {{.n_in = 1}, {matrix}, {MG_SHAPE(2, 9, 64), t}, .name = "broadcast_to"},
            {{.attrs = &first, .n_in = 2},
             {matrix, matrix},
             {MG_SHAPE(18, 64), t},
             .name = "concat"},
            {{.attrs = &full}, {matrix}, matrix, .name = "full"},
            {{.attrs = &full}, {matrix}, {MG_SHAPE(3), t}, .name = "full"},
        };
        const call gather = {{.attrs = &first, .n_in = 2},
                             {matrix, {MG_SHAPE(7), MG_U8}},
                             {MG_SHAPE(7, 64), t},
                             .name = "gather"};
        for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) same_everywhere(&calls[i]);
        same_everywhere(&gather);
    }
    const call random = {
        {.attrs = &uniform}, {{MG_SHAPE(1), MG_F32}}, {MG_SHAPE(1001), MG_F32}, .name = "random"};
    same_everywhere(&random);
}

/* Elements [first, first + n) of a draw are equal to those elements of the whole draw, so shards
 * agree. */
static void parts_of_a_draw(void **state) {
    static uint8_t whole[ROOM], part[ROOM];
    const mg_random_attrs a = {.kind = MG_RANDOM_NORMAL, .b = 1, .dtype = MG_F32, .stream = 4};
    call c = {{.attrs = &a, .draw = 7, .seed = 3},
              {{MG_SHAPE(1), MG_F32}},
              {MG_SHAPE(1001), MG_F32},
              .name = "random"};
    (void)state;
    run_call(&c, 0, NULL, whole);
    for (int first = 1; first < 9; first++) {
        c.step.first = first;
        for (int n = 1; n < 10; n++) {
            c.out.shape = MG_SHAPE(n);
            run_call(&c, 4 * (n % 4), NULL, part);
            assert_memory_equal(part, whole + 4 * first, (size_t)(4 * n));
        }
    }
}

/* Weights {KH, KW, C, K} are reordered to cuDNN's {K, KH, KW, C} and back. */
static void layouts_of_kernels(void **state) {
    static uint8_t x[ROOM], there[ROOM], back[ROOM];
    const mg_shape shapes[] = {MG_SHAPE(3, 3, 5, 7), MG_SHAPE(3, 3, 16, 64), MG_SHAPE(1, 1, 40, 33),
                               MG_SHAPE(5, 5, 1, 20)};
    const uint8_t *const from[] = {x}, *const again[] = {there};
    (void)state;
    for (int i = 0; i < ROOM; i++) x[i] = (uint8_t)(i * 37 % 251);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (mg_dtype t = MG_BF16; t <= MG_F32; t++) {
            const mg_value v = {shapes[i], t};
            const size_t size = mg_dtype_size(t), count = (size_t)mg_shape_count(&shapes[i]);
            const size_t k = (size_t)shapes[i].dim[3];
            call c = {{.n_in = 1}, {v}, v, .layout_out = MG_KRSC, .name = "reorder"};
            run_call(&c, 0, from, there);
            for (size_t e = 0; e < count; e++)
                assert_memory_equal(there + (e % k * (count / k) + e / k) * size, x + e * size,
                                    size);
            c.layout_in = MG_KRSC, c.layout_out = MG_ROW_MAJOR;
            run_call(&c, 0, again, back);
            assert_memory_equal(back, x, count * size);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(any_address_will_do),
                                       cmocka_unit_test(parts_of_a_draw),
                                       cmocka_unit_test(layouts_of_kernels)};
    Dl_info info;
    setenv("MGPU_CUDA_LIBRARIES", "build/fake_cuda", 1);
    device = mg_device_find("cuda:0");
    if (!device) {
        fprintf(stderr, "%s\n", mg_error_message());
        return 1;
    }
    if (!dladdr((const void *)(uintptr_t)device->api->alloc, &info)) return 1;
    plugin = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    const int failed = cmocka_run_group_tests_name("cuda_movement", tests, NULL, NULL);
    mg_devices_close();
    return failed;
}
