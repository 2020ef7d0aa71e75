/* Streams: batches in the order asked for, errors where they belong, and every failing allocation.
 */
#include "core/alloc.h"
#include "data/stream.h"
#include "device/device.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static mg_device *ref;

static mg_tensor *rows_of_two(void) {
    const float v[] = {0, 1, 10, 11, 20, 21, 30, 31};
    const mg_shape shape = MG_SHAPE(4, 2);
    return mg_tensor_from_host(v, MG_F32, &shape, ref);
}

static void batches_come_in_the_order_asked_for(void **state) {
    (void)state;
    mg_tensor *t = rows_of_two(), *batch[1];
    mg_stream *s = mg_stream_new(&t, 1, 3);
    assert_int_equal(mg_stream_push(s, (int32_t[]){3, 0}, 2), MG_OK);
    assert_int_equal(mg_stream_push(s, (int32_t[]){1}, 1), MG_OK);
    assert_int_equal(mg_stream_ahead(s), 2);
    double v[4];
    assert_int_equal(mg_stream_pop(s, batch), MG_OK);
    assert_int_equal(mg_tensor_read_double(batch[0], v), MG_OK);
    assert_true(v[0] == 30 && v[1] == 31 && v[2] == 0 && v[3] == 1);
    mg_tensor_release(batch[0]);
    assert_int_equal(mg_stream_pop(s, batch), MG_OK);
    assert_int_equal(batch[0]->shape.dim[0], 1);
    mg_tensor_release(batch[0]);
    assert_int_equal(mg_stream_pop(s, batch), MG_USAGE);
    mg_stream_free(s);
    mg_tensor_release(t);
}

static void wrong_rows_and_too_many_batches_are_refused(void **state) {
    (void)state;
    mg_tensor *t = rows_of_two();
    mg_stream *s = mg_stream_new(&t, 1, 1);
    assert_int_equal(mg_stream_push(s, (int32_t[]){4}, 1), MG_DATA);
    assert_int_equal(mg_stream_push(s, (int32_t[]){-1}, 1), MG_DATA);
    assert_int_equal(mg_stream_push(s, (int32_t[]){2}, 1), MG_OK);
    assert_int_equal(mg_stream_push(s, (int32_t[]){2}, 1), MG_USAGE);
    mg_stream_free(s); /* with a batch under way */
    mg_tensor_release(t);
}

static void a_stream_survives_every_failing_allocation(void **state) {
    (void)state;
    mg_tensor *t = rows_of_two();
    const int64_t before = mg_alloc_get_stats().live_blocks;
    bool done = false;
    for (int64_t n = 1; !done; n++) {
        mg_tensor *batch[1] = {NULL};
        mg_alloc_fail_after(n);
        mg_stream *s = mg_stream_new(&t, 1, 2);
        mg_status status = s ? mg_stream_push(s, (int32_t[]){1, 2}, 2) : MG_OOM;
        if (status == MG_OK) status = mg_stream_pop(s, batch);
        mg_alloc_fail_after(0);
        assert_true(status == MG_OK || status == MG_OOM);
        done = status == MG_OK;
        mg_tensor_release(batch[0]);
        mg_stream_free(s);
        assert_int_equal(mg_alloc_get_stats().live_blocks, before);
    }
    mg_tensor_release(t);
}

static int open_device(void **state) {
    (void)state;
    ref = mg_device_find("ref:0");
    return ref ? 0 : 1;
}

static int close_devices(void **state) {
    (void)state;
    mg_devices_close();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_come_in_the_order_asked_for),
        cmocka_unit_test(wrong_rows_and_too_many_batches_are_refused),
        cmocka_unit_test(a_stream_survives_every_failing_allocation),
    };
    return cmocka_run_group_tests(tests, open_device, close_devices);
}
