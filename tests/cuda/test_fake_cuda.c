/* Tests of the fake driver and the fake NVRTC themselves: threads of a block, graphs, failures on
 * request, and the mistakes that they must find (wild addresses, barriers that not all threads
 * reach, races).
 *
 * A fake that accepts everything would make the tests of the cuda device worthless, so each rule
 * that it checks is broken here once. */
#include "fake_cuda.h"
#include "core/status.h"
#include "device/cuda/context/driver.h"
#include <dirent.h>
#include <dlfcn.h>
#include <nvrtc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { N = 1000, THREADS = 256 };

#define OK(call) assert_int_equal(call, CUDA_SUCCESS)

/* Kernels for the tests, compiled once per test by the fake NVRTC. `wrong` does what p.what says:
 * 0 a barrier that one thread does not reach, 1 a write to a wild address, 2 a write just behind
 * the allocation, 3 a write beyond dynamic shared memory, 4 a shuffle with a part of a warp. */
static const char *const text =
    "#include \"kernel.h\"\n"
    "typedef struct { float *out; const float *in; int64_t n; int what; } params;\n"
    "KERNEL(add_one, params) {\n"
    "    for (int64_t i = FIRST; i < p.n; i += STEP) p.out[i] += 1;\n"
    "}\n"
    "KERNEL(reduce, params) {\n"
    "    __shared__ float cells[MG_WARP];\n"
    "    SHARED(float, mine);\n"
    "    float v = 0;\n"
    "    mine[threadIdx.x] = threadIdx.x < p.n ? p.in[threadIdx.x] : 0;\n"
    "    __syncthreads();\n"
    "    v = mine[blockDim.x - 1 - threadIdx.x];\n"
    "    BLOCK_REDUCE(float, v, MG_ADD, cells);\n"
    "    if (threadIdx.x == blockDim.x / 2) p.out[blockIdx.x] = v;\n"
    "}\n"
    "KERNEL(lanes, params) {\n"
    "    const int lane = threadIdx.x % 32;\n"
    "    const int up = __shfl_up_sync(0xffffffffu, lane, 1);\n"
    "    const int down = __shfl_down_sync(0xffffffffu, lane, 2);\n"
    "    const int first = __shfl_sync(0xffffffffu, threadIdx.x, 0);\n"
    "    const unsigned odd = __ballot_sync(0xffffffffu, lane & 1);\n"
    "    if (up != (lane ? lane - 1 : 0) || down != (lane < 30 ? lane + 2 : lane)\n"
    "        || first != (int)threadIdx.x - lane || odd != 0xaaaaaaaau) p.out[1] = 1;\n"
    "    atomicAdd(&p.out[0], 1.0f);\n"
    "}\n"
    "KERNEL(race, params) {\n"
    "    __shared__ float last;\n"
    "    if (blockIdx.x == 0 && threadIdx.x == 0) p.out[1] = last != last;\n"
    "    last = threadIdx.x;\n"
    "    __syncthreads();\n"
    "    p.out[0] = last + 1000 * blockIdx.x;\n"
    "}\n"
    "KERNEL(wrong, params) {\n"
    "    if (p.what == 0 && threadIdx.x) __syncthreads();\n"
    "    if (p.what == 1 && threadIdx.x == 3) *(volatile float *)16 = 1;\n"
    "    if (p.what == 2 && threadIdx.x == 3) p.out[p.n] = 1;\n"
    "    if (p.what == 3) { SHARED(char, mine); mine[threadIdx.x] = 1; }\n"
    "    if (p.what == 4) __shfl_xor_sync(0xffffu, 1, 1);\n"
    "}\n";

typedef struct params { /* as in the text */
    float *out;
    const float *in;
    int64_t n;
    int what;
} params;

typedef struct gpu {
    CUcontext context;
    CUstream stream;
    CUmemoryPool pool;
    CUmodule module;
    CUdeviceptr memory; /* N floats */
} gpu;

/* ---- set-up ---- */

static char *read_text(const char *path) {
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    char *all = calloc(1, 1 << 16);
    assert_true(fread(all, 1, (1 << 16) - 1, f) > 0);
    fclose(f);
    return all;
}

/* Compiles a text: returns the object, owned by the caller, or NULL; `log` gets the compiler's
 * messages. */
static char *compile_for(const char *architecture, const char *source, char *log, size_t room) {
    nvrtcProgram program;
    size_t bytes = 0;
    char *header = read_text("runtime/device/cuda/kernels/kernel.h"), *image = NULL;
    const char *headers[] = {header}, *names[] = {"kernel.h"};
    const char *options[] = {architecture};
    assert_int_equal(nvrtcCreateProgram(&program, source, "test.cu", 1, headers, names), 0);
    if (nvrtcCompileProgram(program, 1, options) == NVRTC_SUCCESS) {
        assert_int_equal(nvrtcGetCUBINSize(program, &bytes), 0);
        image = malloc(bytes);
        assert_int_equal(nvrtcGetCUBIN(program, image), 0);
    }
    assert_int_equal(nvrtcGetProgramLogSize(program, &bytes), 0);
    assert_true(bytes <= room);
    nvrtcGetProgramLog(program, log);
    nvrtcDestroyProgram(&program);
    free(header);
    return image;
}

static char *compile(const char *source, char *log, size_t room) {
    return compile_for("--gpu-architecture=sm_90", source, log, room);
}

static int set_up(void **state) {
    static gpu g;
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    char log[1 << 14];
    cuuint64_t keep = UINT64_MAX;
    fake_cuda_revive();
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&g.context, 0));
    OK(cuCtxSetCurrent(g.context));
    OK(cuStreamCreate(&g.stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemPoolCreate(&g.pool, &props));
    OK(cuMemPoolSetAttribute(g.pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
    OK(cuMemAllocFromPoolAsync(&g.memory, N * sizeof(float), g.pool, g.stream));
    OK(cuMemsetD8Async(g.memory, 0, N * sizeof(float), g.stream));
    char *image = compile(text, log, sizeof log);
    if (!image) print_error("%s\n", log);
    assert_non_null(image);
    OK(cuModuleLoadData(&g.module, image));
    free(image);
    *state = &g;
    return 0;
}

static int tear_down(void **state) {
    gpu *g = *state;
    fake_cuda_revive();
    cuMemFreeAsync(g->memory, g->stream);
    fake_cuda_revive();
    OK(cuMemPoolDestroy(g->pool));
    OK(cuModuleUnload(g->module));
    OK(cuStreamDestroy(g->stream));
    OK(cuDevicePrimaryCtxRelease(0));
    return 0;
}

/* Launches a kernel of the text in one dimension. */
static CUresult launch(gpu *g, const char *name, unsigned blocks, unsigned threads, unsigned shared,
                       params p) {
    CUfunction f;
    void *list[] = {&p};
    OK(cuModuleGetFunction(&f, g->module, name));
    OK(cuFuncLoad(f));
    return cuLaunchKernel(f, blocks, 1, 1, threads, 1, 1, shared, g->stream, list, NULL);
}

/* The test's device memory: an address for kernels. */
static float *on_gpu(const gpu *g) {
    return (float *)(uintptr_t)g->memory;
}

/* The first number of it, copied to the host. */
static float first_of(const gpu *g) {
    float v = -1;
    OK(cuMemcpyDtoHAsync(&v, g->memory, sizeof v, g->stream));
    OK(cuStreamSynchronize(g->stream));
    return v;
}

/* ---- tests ---- */

/* What our loader of the driver looks up (driver.h). */
static void every_function_of_the_driver_is_there(void **state) {
    static const char *const names[] = MG_LIBRARY_SYMBOLS(MG_CUDA_DRIVER);
    (void)state;
    for (int i = 0; names[i]; i++)
        if (!dlsym(RTLD_DEFAULT, names[i])) fail_msg("no %s", names[i]);
}

/* A block sum through static and dynamic shared memory. */
static void threads_meet_at_barriers_and_shuffles(void **state) {
    gpu *g = *state;
    float values[THREADS], sum = 0, sums[3];
    for (int i = 0; i < THREADS; i++) sum += values[i] = (float)(i % 17);
    OK(cuMemcpyHtoDAsync(g->memory + 100 * sizeof(float), values, sizeof values, g->stream));
    const params p = {.out = on_gpu(g), .in = on_gpu(g) + 100, .n = THREADS};
    OK(launch(g, "reduce", 3, THREADS, sizeof values, p));
    OK(cuMemcpyDtoHAsync(sums, g->memory, sizeof sums, g->stream));
    for (int i = 0; i < 3; i++) assert_true(sums[i] == sum);
}

static void lanes_exchange_values_and_votes(void **state) {
    gpu *g = *state;
    float counted[2] = {0};
    OK(launch(g, "lanes", 2, THREADS, 0, (params){.out = on_gpu(g)}));
    OK(cuMemcpyDtoHAsync(counted, g->memory, sizeof counted, g->stream));
    assert_true(counted[0] == 2 * THREADS && counted[1] == 0);
}

/* Capture runs nothing; two launches of the graph do its four nodes twice. Events are no nodes. */
static void recorded_work_runs_when_its_graph_does(void **state) {
    gpu *g = *state;
    CUgraph graph;
    CUgraphExec exec;
    CUevent event;
    size_t n = 0;
    const long long before = fake_cuda_count("kernel add_one in graph");
    OK(cuEventCreate(&event, 0));
    OK(cuStreamBeginCapture(g->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    OK(cuMemsetD8Async(g->memory, 0, N * sizeof(float), g->stream));
    for (int i = 0; i < 3; i++)
        OK(launch(g, "add_one", 2, 32, 0, (params){.out = on_gpu(g), .n = N}));
    OK(cuEventRecord(event, g->stream));
    OK(cuStreamWaitEvent(g->stream, event, 0));
    OK(cuStreamEndCapture(g->stream, &graph));
    assert_int_equal(cuEventSynchronize(event), CUDA_ERROR_CAPTURED_EVENT);
    assert_true(first_of(g) == 0);
    OK(cuGraphGetNodes(graph, NULL, &n));
    assert_int_equal(n, 4);
    OK(cuGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 2; i++) OK(cuGraphLaunch(exec, g->stream));
    assert_true(first_of(g) == 3);
    assert_int_equal(fake_cuda_count("kernel add_one in graph") - before, 6);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuEventDestroy(event));
}

/* A graph of n launches of add_one. */
static CUgraph record(gpu *g, int kernels, float *out) {
    CUgraph graph = NULL;
    OK(cuStreamBeginCapture(g->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    for (int i = 0; i < kernels; i++)
        OK(launch(g, "add_one", 1, 32, 0, (params){.out = out, .n = 1}));
    OK(cuStreamEndCapture(g->stream, &graph));
    return graph;
}

static void a_graph_takes_new_addresses_but_not_other_nodes(void **state) {
    gpu *g = *state;
    CUgraphExecUpdateResultInfo info;
    CUgraphExec exec;
    CUgraph one = record(g, 1, on_gpu(g) + 5), same = record(g, 1, on_gpu(g)),
            more = record(g, 2, on_gpu(g));
    OK(cuGraphInstantiate(&exec, one, 0));
    OK(cuGraphExecUpdate(exec, same, &info));
    assert_int_equal(cuGraphExecUpdate(exec, more, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    OK(cuGraphLaunch(exec, g->stream));
    assert_true(first_of(g) == 1);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(one));
    OK(cuGraphDestroy(same));
    OK(cuGraphDestroy(more));
}

/* Each of these calls makes the capture invalid: later launches and the end of the capture fail. */
static void waiting_and_allocating_spoil_a_recording(void **state) {
    gpu *g = *state;
    CUgraph graph;
    CUdeviceptr memory;
    void *pinned;
    for (int what = 0; what < 4; what++) {
        OK(cuStreamBeginCapture(g->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        const CUresult r = what == 0   ? cuStreamSynchronize(g->stream)
                           : what == 1 ? cuMemAllocFromPoolAsync(&memory, 64, g->pool, g->stream)
                           : what == 2 ? cuMemAllocHost(&pinned, 64)
                                       : cuMemFreeAsync(g->memory, g->stream);
        assert_int_equal(r, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        assert_int_equal(launch(g, "add_one", 1, 32, 0, (params){0}),
                         CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        assert_int_equal(cuStreamEndCapture(g->stream, &graph),
                         CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        assert_null(graph);
    }
    assert_true(first_of(g) == 0);
}

/* A request fails one call; a fatal error fails all calls after it. */
static void a_call_fails_when_asked_to_and_a_fatal_error_lasts(void **state) {
    gpu *g = *state;
    float v;
    fake_cuda_fail("cuMemcpyDtoHAsync", 2, CUDA_ERROR_INVALID_VALUE);
    OK(cuMemcpyDtoHAsync(&v, g->memory, sizeof v, g->stream));
    assert_int_equal(cuMemcpyDtoHAsync(&v, g->memory, sizeof v, g->stream),
                     CUDA_ERROR_INVALID_VALUE);
    OK(cuMemcpyDtoHAsync(&v, g->memory, sizeof v, g->stream));
    fake_cuda_fail("cuStreamSynchronize", 1, CUDA_ERROR_ILLEGAL_ADDRESS);
    for (int i = 0; i < 2; i++)
        assert_int_equal(cuStreamSynchronize(g->stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(cuCtxSetCurrent(g->context), CUDA_ERROR_ILLEGAL_ADDRESS);
}

/* Lazy loading: a kernel must be loaded before it is recorded. */
static void a_first_launch_spoils_a_recording(void **state) {
    gpu *g = *state;
    const params p = {.out = on_gpu(g), .n = N};
    void *list[] = {(void *)(uintptr_t)&p};
    CUfunction f;
    CUgraph graph = NULL;
    OK(cuModuleGetFunction(&f, g->module, "add_one"));
    OK(cuStreamBeginCapture(g->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    assert_int_equal(cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, g->stream, list, NULL),
                     CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_int_equal(cuStreamEndCapture(g->stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

/* Copies beyond an allocation, in the wrong direction, or with the wrong GPU are refused (error 1).
 */
static void copies_keep_to_memory(void **state) {
    gpu *g = *state;
    float v[N + 1] = {0};
    CUdeviceptr host = (CUdeviceptr)(uintptr_t)v;
    const size_t bytes = N * sizeof(float);
    OK(cuMemcpyHtoDAsync(g->memory, v, bytes, g->stream));
    assert_int_equal(cuMemcpyHtoDAsync(g->memory, v, bytes + 4, g->stream), 1);
    assert_int_equal(cuMemcpyHtoDAsync(g->memory + 4, v, bytes, g->stream), 1);
    assert_int_equal(cuMemcpyHtoDAsync(host, v, 4, g->stream), 1);
    assert_int_equal(cuMemcpyDtoHAsync(v, host, 4, g->stream), 1);
    assert_int_equal(cuMemcpyDtoHAsync(on_gpu(g), g->memory, 4, g->stream), 1);
    assert_int_equal(cuMemcpyDtoDAsync(g->memory, host, 4, g->stream), 1);
    CUcontext other;
    OK(cuDevicePrimaryCtxRetain(&other, 1));
    OK(cuMemcpyPeerAsync(g->memory, g->context, g->memory + 4, g->context, 4, g->stream));
    assert_int_equal(cuMemcpyPeerAsync(g->memory, other, g->memory + 4, g->context, 4, g->stream),
                     1);
    assert_int_equal(cuMemcpyPeerAsync(g->memory, g->context, g->memory + 4, other, 4, g->stream),
                     1);
    OK(cuDevicePrimaryCtxRelease(1));
    assert_int_equal(cuMemsetD8Async(g->memory, 0, bytes + 1, g->stream), 1);
    assert_false(fake_cuda_owns(v, 4));
    assert_true(fake_cuda_owns(on_gpu(g), bytes));
}

/* Out of memory, use after free, double free, and reuse within a pool. */
static void memory_ends_and_what_was_given_back_is_none(void **state) {
    gpu *g = *state;
    CUdeviceptr a, b;
    size_t there = 0, total = 0;
    OK(cuMemGetInfo(&there, &total));
    assert_int_equal(cuMemAllocFromPoolAsync(&a, there + 1, g->pool, g->stream),
                     CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemAllocFromPoolAsync(&a, 5000, g->pool, g->stream));
    OK(cuMemFreeAsync(a, g->stream));
    assert_int_equal(cuMemsetD8Async(a, 0, 4, g->stream), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemFreeAsync(a, g->stream), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemAllocFromPoolAsync(&b, 5000, g->pool, g->stream));
    assert_true(a == b); /* a pool gives the same memory again */
    OK(cuMemFreeAsync(b, g->stream));
}

/* Each mistake of the kernel `wrong` is an error, of the launch or when the stream is waited for,
 * and stays one until the GPU is revived; then other kernels run again. Impossible launches are
 * refused without an effect. */
static void wrong_kernels_are_found_out(void **state) {
    gpu *g = *state;
    static const CUresult wanted[] = {CUDA_ERROR_LAUNCH_FAILED, CUDA_ERROR_ILLEGAL_ADDRESS,
                                      CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_LAUNCH_FAILED,
                                      CUDA_ERROR_LAUNCH_FAILED};
    for (int what = 0; what < 5; what++) {
        const params p = {.out = on_gpu(g), .n = N, .what = what};
        CUresult r = launch(g, "wrong", 2, 64, 32, p);
        if (r == CUDA_SUCCESS) r = cuStreamSynchronize(g->stream);
        assert_int_equal(r, wanted[what]);
        assert_int_equal(cuStreamSynchronize(g->stream), wanted[what]);
        fake_cuda_revive();
        if (what != 2) OK(launch(g, "reduce", 1, 64, 256, (params){on_gpu(g), on_gpu(g), 64, 0}));
    }
    const params none = {.out = on_gpu(g), .what = 9};
    assert_int_equal(launch(g, "wrong", 1, 1025, 0, none), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(launch(g, "wrong", 0, 32, 0, none), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(launch(g, "wrong", 1, 32, 49153, none), CUDA_ERROR_INVALID_VALUE);
    OK(launch(g, "wrong", 1, 1024, 49152, none));
}

/* In the opposite order other threads and blocks write last. Shared memory begins as NaN in each
 * block. */
static void a_race_comes_out_differently_backwards(void **state) {
    gpu *g = *state;
    const params p = {.out = on_gpu(g)};
    float stale = 0;
    OK(launch(g, "race", 3, 64, 0, p));
    assert_float_equal(first_of(g), 2063, 0);
    OK(cuMemcpyDtoHAsync(&stale, g->memory + sizeof stale, sizeof stale, g->stream));
    OK(cuStreamSynchronize(g->stream));
    assert_float_equal(stale, 1, 0);
    setenv("MGPU_FAKE_CUDA_ORDER", "backwards", 1);
    OK(launch(g, "race", 3, 64, 0, p));
    unsetenv("MGPU_FAKE_CUDA_ORDER");
    assert_float_equal(first_of(g), 0, 0);
}

/* The log has file and line, and unknown functions are errors, not implicit declarations. */
static void a_text_that_does_not_compile_is_explained(void **state) {
    (void)state;
    char log[1 << 14] = "";
    assert_null(compile("int f(int a) {\n    return nothing;\n}\n", log, sizeof log));
    assert_true(strstr(log, "test.cu:2") || strstr(log, "test.cu(2)")); /* gcc; the real NVRTC */
    assert_non_null(strstr(log, "nothing"));
    assert_null(compile("int f(int a) { return __unheard_of(a); }\n", log, sizeof log));
}

static int count_objects(const char *folder) {
    int n = 0;
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (struct dirent *e = readdir(d); e; e = readdir(d)) n += strstr(e->d_name, ".so") != NULL;
    closedir(d);
    return n;
}

/* The number of cached objects after each request: another option or another text gives a new one.
 */
static void objects_are_kept_by_text_and_options(void **state) {
    (void)state;
    static const char *const asked[][2] = {{"--gpu-architecture=sm_90", "int a;\n"},
                                           {"--gpu-architecture=sm_90", "int a;\n"},
                                           {"--gpu-architecture=sm_80", "int a;\n"},
                                           {"--gpu-architecture=sm_80", "int b;\n"}};
    const int objects[] = {1, 1, 2, 3};
    char folder[] = "/tmp/mgpu-test-fake_cuda-XXXXXX", command[64], log[1 << 14];
    const char *kept = getenv("MGPU_FAKE_CUDA_CACHE");
    assert_non_null(mkdtemp(folder));
    setenv("MGPU_FAKE_CUDA_CACHE", folder, 1);
    for (int i = 0; i < 4; i++) {
        char *image = compile_for(asked[i][0], asked[i][1], log, sizeof log);
        assert_non_null(image);
        free(image);
        assert_int_equal(count_objects(folder), objects[i]);
    }
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
    setenv("MGPU_FAKE_CUDA_CACHE", kept ? kept : "", 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
        TEST(every_function_of_the_driver_is_there),
        TEST(threads_meet_at_barriers_and_shuffles),
        TEST(lanes_exchange_values_and_votes),
        TEST(recorded_work_runs_when_its_graph_does),
        TEST(a_graph_takes_new_addresses_but_not_other_nodes),
        TEST(waiting_and_allocating_spoil_a_recording),
        TEST(a_call_fails_when_asked_to_and_a_fatal_error_lasts),
        TEST(a_first_launch_spoils_a_recording),
        TEST(copies_keep_to_memory),
        TEST(memory_ends_and_what_was_given_back_is_none),
        TEST(wrong_kernels_are_found_out),
        TEST(a_race_comes_out_differently_backwards),
        TEST(a_text_that_does_not_compile_is_explained),
        TEST(objects_are_kept_by_text_and_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
