/* Tests of the fake's streams: each missing wait, between streams or between a stream and the host,
 * must give wrong numbers in one of its orders, and the wait must make them right. */
#include "fake_cuda.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

enum { BYTES = 64, OLD = 1, NEW = 2, UNWRITTEN = 0xff };

#define OK(call) assert_int_equal(call, CUDA_SUCCESS)

typedef struct gpu {
    CUcontext context;
    CUmemoryPool pool;
    CUstream a, b;
    CUevent event;
    CUdeviceptr x, y;
    unsigned char *pinned;
} gpu;

static int set_up(void **state) {
    static gpu g;
    const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    fake_cuda_streams("now");
    fake_cuda_hang(0);
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&g.context, 0));
    OK(cuCtxSetCurrent(g.context));
    OK(cuStreamCreate(&g.a, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&g.b, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&g.event, CU_EVENT_DISABLE_TIMING));
    OK(cuMemPoolCreate(&g.pool, &props));
    OK(cuMemAllocFromPoolAsync(&g.x, BYTES, g.pool, g.a));
    OK(cuMemAllocFromPoolAsync(&g.y, BYTES, g.pool, g.a));
    OK(cuMemAllocHost((void **)&g.pinned, BYTES));
    memset(g.pinned, NEW, BYTES);
    *state = &g;
    return 0;
}

static int tear_down(void **state) {
    gpu *g = *state;
    OK(cuMemFreeAsync(g->x, g->a));
    OK(cuMemFreeAsync(g->y, g->a));
    OK(cuStreamDestroy(g->a));
    OK(cuStreamDestroy(g->b));
    OK(cuEventDestroy(g->event));
    OK(cuMemPoolDestroy(g->pool));
    OK(cuMemFreeHost(g->pinned));
    OK(cuDevicePrimaryCtxRelease(0));
    return 0;
}

/* The first byte of y when stream b has done its work. */
static int result(gpu *g) {
    unsigned char v = 0;
    OK(cuMemcpyDtoHAsync(&v, g->y, 1, g->b));
    return v;
}

/* Stream b continues after all work of stream a. */
static void wait_for_a(gpu *g) {
    OK(cuEventRecord(g->event, g->a));
    OK(cuStreamWaitEvent(g->b, g->event, 0));
}

/* Stream a copies to the GPU what b reads there. */
static void a_reader_that_does_not_wait_comes_too_early(void **state) {
    gpu *g = *state;
    for (int waits = 0; waits < 2; waits++) {
        fake_cuda_streams("now");
        OK(cuMemsetD8Async(g->x, UNWRITTEN, BYTES, g->a));
        fake_cuda_streams("late");
        OK(cuMemcpyHtoDAsync(g->x, g->pinned, BYTES, g->a));
        if (waits) wait_for_a(g);
        OK(cuMemcpyDtoDAsync(g->y, g->x, BYTES, g->b));
        assert_int_equal(result(g), waits ? NEW : UNWRITTEN);
    }
}

/* Stream b copies to where a has not read yet. */
static void a_writer_that_does_not_wait_comes_too_early(void **state) {
    gpu *g = *state;
    for (int waits = 0; waits < 2; waits++) {
        unsigned char v = 0;
        fake_cuda_streams("now");
        OK(cuMemsetD8Async(g->x, OLD, BYTES, g->a));
        fake_cuda_streams("early");
        OK(cuMemcpyDtoDAsync(g->y, g->x, BYTES, g->a));
        if (waits) wait_for_a(g);
        OK(cuMemcpyHtoDAsync(g->x, g->pinned, BYTES, g->b));
        OK(cuMemcpyDtoHAsync(&v, g->y, 1, g->a));
        assert_int_equal(v, waits ? OLD : NEW);
    }
}

static void pinned_memory_is_read_when_the_copy_runs_and_other_memory_at_once(void **state) {
    gpu *g = *state;
    unsigned char plain[BYTES];
    fake_cuda_streams("late");
    for (int waits = 0; waits < 2; waits++) {
        memset(g->pinned, OLD, BYTES);
        OK(cuMemcpyHtoDAsync(g->y, g->pinned, BYTES, g->b));
        OK(cuEventRecord(g->event, g->b));
        if (waits) OK(cuEventSynchronize(g->event));
        memset(g->pinned, NEW, BYTES);
        assert_int_equal(result(g), waits ? OLD : NEW);
    }
    memset(plain, OLD, BYTES);
    OK(cuMemcpyHtoDAsync(g->y, plain, BYTES, g->b));
    memset(plain, NEW, BYTES);
    assert_int_equal(result(g), OLD);
}

/* The query of an event says that it is not reached yet; a little later it is reached. */
static void a_query_does_not_wait(void **state) {
    gpu *g = *state;
    fake_cuda_streams("late");
    OK(cuMemsetD8Async(g->y, OLD, BYTES, g->b));
    OK(cuEventRecord(g->event, g->b));
    assert_int_equal(cuEventQuery(g->event), CUDA_ERROR_NOT_READY);
    OK(cuEventQuery(g->event));
}

/* The last test: what hangs is never freed. */
static void work_that_hangs_is_never_done_but_other_streams_go_on(void **state) {
    gpu *g = *state;
    static const char *const orders[] = {"now", "late", "early"};
    for (int i = 0; i < 3; i++) {
        fake_cuda_streams(orders[i]);
        OK(cuMemsetD8Async(g->y, OLD, BYTES, g->b));
        if (i == 0) fake_cuda_hang(1);
        OK(cuMemsetD8Async(g->x, OLD, BYTES, g->a));
        OK(cuEventRecord(g->event, g->a));
        for (int k = 0; k < 3; k++) assert_int_equal(cuEventQuery(g->event), CUDA_ERROR_NOT_READY);
        assert_int_equal(result(g), OLD);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
        TEST(a_reader_that_does_not_wait_comes_too_early),
        TEST(a_writer_that_does_not_wait_comes_too_early),
        TEST(pinned_memory_is_read_when_the_copy_runs_and_other_memory_at_once),
        TEST(a_query_does_not_wait),
        cmocka_unit_test_setup(work_that_hangs_is_never_done_but_other_streams_go_on, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
