/* The fake GPUs: how many there are, their attributes and contexts, and the names of errors.
 *
 * The environment may set how many GPUs there are (MGPU_FAKE_CUDA_GPUS, else 2), the bytes of
 * memory of each (MGPU_FAKE_CUDA_MEMORY, else 1 GiB) and their multiprocessors
 * (MGPU_FAKE_CUDA_MULTIPROCESSORS, else 4: few, so that tests stay fast). All other attributes have
 * the values of an H100. */
#include "gpu.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* contexts[i] is GPU i; the first n_devices of them exist after cuInit. */
static struct CUctx_st contexts[FAKE_CUDA_GPUS];
/* Set by the first cuInit that finds a GPU. */
static int n_devices;
static bool started;
/* The context that cuCtxSetCurrent made current on this thread. */
static _Thread_local CUcontext current;

/* ---- starting ---- */

/* A number from the environment, or `otherwise`. */
static long long setting(const char *name, long long otherwise) {
    const char *text = getenv(name);
    return text && *text ? atoll(text) : otherwise;
}

/* How many of n GPUs CUDA_VISIBLE_DEVICES leaves visible. As with the real driver, its list ends at
 * the first entry that does not name a GPU. */
static int visible(int n) {
    const char *text = getenv("CUDA_VISIBLE_DEVICES");
    if (!text) return n;
    int seen = 0;
    for (char *end; seen < FAKE_CUDA_GPUS; text = end + 1, seen++) {
        const long number = strtol(text, &end, 10);
        if (end == text || number < 0 || number >= n) return seen;
        if (*end != ',') return seen + 1;
    }
    return seen;
}

/* Reads the settings once; later calls only report whether there is a GPU. */
CUresult cuInit(unsigned flags) {
    ENTER(cuInit);
    const long long n = setting("MGPU_FAKE_CUDA_GPUS", 2);
    if (flags) return CUDA_ERROR_INVALID_VALUE;
    fake_cuda_lock();
    /* A process reads the environment once: later changes have no effect. */
    if (!started) n_devices = visible(n < FAKE_CUDA_GPUS ? (int)n : FAKE_CUDA_GPUS);
    for (int i = 0; i < n_devices && !started; i++) {
        contexts[i].device = i;
        contexts[i].total = (size_t)setting("MGPU_FAKE_CUDA_MEMORY", 1 << 30);
    }
    started = n_devices > 0;
    fake_cuda_unlock();
    return started ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

/* Whether cuInit has found a GPU: before that all other functions fail. */
bool fake_cuda_started(void) {
    return started;
}

/* GPU numbers count only the GPUs that CUDA_VISIBLE_DEVICES leaves visible. */
CUcontext fake_cuda_context_of(CUdevice device) {
    return device >= 0 && device < n_devices ? &contexts[device] : NULL;
}

CUcontext fake_cuda_current(void) {
    return current;
}

/* For libraries that have no handle for a GPU, such as NCCL. */
int fake_cuda_gpu(void) {
    const CUcontext mine = fake_cuda_current();
    return mine ? mine->device : -1;
}

/* The version of the headers that this file is compiled with. */
CUresult cuDriverGetVersion(int *version) {
    ENTER(cuDriverGetVersion);
    *version = CUDA_VERSION;
    return CUDA_SUCCESS;
}

/* An undocumented function. The real NVRTC, if it is loaded into this process
 * (MGPU_FAKE_CUDA_NVRTC), finds this libcuda and calls it: it handles the answer "not found", but
 * not with a missing symbol. */
CUresult cuGetExportTable(const void **table, const CUuuid *id) {
    ENTER(cuGetExportTable);
    *table = NULL;
    return id ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_INVALID_VALUE;
}

/* ---- devices ---- */

/* Properties of devices; these need no context. */
CUresult cuDeviceGetCount(int *count) {
    ENTER(cuDeviceGetCount);
    *count = n_devices;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    ENTER(cuDeviceGet);
    if (!fake_cuda_context_of(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

/* The name shows in every list of devices that this is not a real GPU. */
CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
    ENTER(cuDeviceGetName);
    if (!fake_cuda_context_of(device)) return CUDA_ERROR_INVALID_DEVICE;
    snprintf(name, (size_t)length, "Fake GPU");
    return CUDA_SUCCESS;
}

/* The limit set by MGPU_FAKE_CUDA_MEMORY; pools cannot take more. */
CUresult cuDeviceTotalMem(size_t *bytes, CUdevice device) {
    ENTER(cuDeviceTotalMem);
    const CUcontext context = fake_cuda_context_of(device);
    if (!context) return CUDA_ERROR_INVALID_DEVICE;
    *bytes = context->total;
    return CUDA_SUCCESS;
}

/* An attribute that is not in the table is an error that names it, so that it can be added. */
CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
    /* The values of an H100, except those that can be set. */
    const struct {
        CUdevice_attribute attribute;
        int value;
    } rows[] = {{CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                 (int)setting("MGPU_FAKE_CUDA_CAPABILITY", 9)},
                {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
                {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                 (int)setting("MGPU_FAKE_CUDA_MULTIPROCESSORS", 4)},
                {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, FAKE_CUDA_SHARED},
                {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, FAKE_CUDA_SHARED_MOST},
                {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 228 << 10},
                {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
                {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048},
                {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 0x7fffffff},
                {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 0xffff},
                {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 0xffff},
                {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
                {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 50 << 20},
                {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
                {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1}};
    ENTER(cuDeviceGetAttribute);
    if (!fake_cuda_context_of(device)) return CUDA_ERROR_INVALID_DEVICE;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].attribute != attribute) continue;
        *value = rows[i].value;
        return CUDA_SUCCESS;
    }
    return fake_cuda_say(CUDA_ERROR_INVALID_VALUE, "attribute %d is not known", (int)attribute);
}

/* All GPUs reach one another; tests make cuMemPoolSetAccess fail for GPUs that do not. */
CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer) {
    ENTER(cuDeviceCanAccessPeer);
    if (!fake_cuda_context_of(device) || !fake_cuda_context_of(peer))
        return CUDA_ERROR_INVALID_DEVICE;
    *can = device != peer;
    return CUDA_SUCCESS;
}

/* ---- contexts: only each device's primary context ---- */

/* Retains are counted, so that an unbalanced release is noticed; the context itself lives on. */
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    ENTER(cuDevicePrimaryCtxRetain);
    if (!fake_cuda_context_of(device)) return CUDA_ERROR_INVALID_DEVICE;
    fake_cuda_lock();
    *context = &contexts[device];
    contexts[device].users++;
    fake_cuda_unlock();
    return CUDA_SUCCESS;
}

/* The last release does not free memory: our code must do that itself. */
CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
    ENTER(cuDevicePrimaryCtxRelease);
    if (!fake_cuda_context_of(device)) return CUDA_ERROR_INVALID_DEVICE;
    fake_cuda_lock();
    const bool held = contexts[device].users > 0;
    if (held) contexts[device].users--;
    fake_cuda_unlock();
    return held ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

/* A context must have been retained before it can be current. */
CUresult cuCtxSetCurrent(CUcontext context) {
    ENTER(cuCtxSetCurrent);
    if (context && context->users == 0) return CUDA_ERROR_INVALID_CONTEXT;
    current = context;
    return CUDA_SUCCESS;
}

/* ---- errors: the driver's names and texts, as far as our code meets them ---- */

static const struct {
    CUresult error;
    const char *name, *text;
} errors[] = {
#define ERROR(name, text)                                                                          \
    { CUDA_##name, "CUDA_" #name, text }
    ERROR(SUCCESS, "no error"),
    ERROR(ERROR_INVALID_VALUE, "invalid argument"),
    ERROR(ERROR_OUT_OF_MEMORY, "out of memory"),
    ERROR(ERROR_NOT_INITIALIZED, "initialization error"),
    ERROR(ERROR_NO_DEVICE, "no CUDA-capable device is detected"),
    ERROR(ERROR_INVALID_DEVICE, "invalid device ordinal"),
    ERROR(ERROR_INVALID_IMAGE, "device kernel image is invalid"),
    ERROR(ERROR_INVALID_CONTEXT, "invalid device context"),
    ERROR(ERROR_NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device"),
    ERROR(ERROR_ECC_UNCORRECTABLE, "uncorrectable ECC error encountered"),
    ERROR(ERROR_INVALID_HANDLE, "invalid resource handle"),
    ERROR(ERROR_NOT_FOUND, "named symbol not found"),
    ERROR(ERROR_NOT_READY, "device not ready"),
    ERROR(ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
    ERROR(ERROR_LAUNCH_OUT_OF_RESOURCES, "too many resources requested for launch"),
    ERROR(ERROR_LAUNCH_TIMEOUT, "the launch timed out and was terminated"),
    ERROR(ERROR_ASSERT, "device-side assert triggered"),
    ERROR(ERROR_HARDWARE_STACK_ERROR, "hardware stack error"),
    ERROR(ERROR_ILLEGAL_INSTRUCTION, "an illegal instruction was encountered"),
    ERROR(ERROR_MISALIGNED_ADDRESS, "misaligned address"),
    ERROR(ERROR_LAUNCH_FAILED, "unspecified launch failure"),
    ERROR(ERROR_NOT_SUPPORTED, "operation not supported"),
    ERROR(ERROR_STREAM_CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing"),
    ERROR(ERROR_STREAM_CAPTURE_INVALIDATED,
          "operation failed due to a previous error during capture"),
    ERROR(ERROR_STREAM_CAPTURE_UNJOINED, "capturing stream has unjoined work"),
    ERROR(ERROR_STREAM_CAPTURE_ISOLATION,
          "dependency created on uncaptured work in another stream"),
    ERROR(ERROR_STREAM_CAPTURE_IMPLICIT,
          "operation would make the legacy stream depend on a capturing blocking stream"),
    ERROR(ERROR_CAPTURED_EVENT, "operation not permitted on an event last recorded in a "
                                "capturing stream"),
    ERROR(ERROR_STREAM_CAPTURE_WRONG_THREAD, "attempt to terminate a thread-local capture "
                                             "sequence from another thread"),
    ERROR(ERROR_GRAPH_EXEC_UPDATE_FAILURE,
          "the graph update was not performed because it included changes which violated "
          "constraints specific to instantiated graph update"),
    ERROR(ERROR_UNKNOWN, "unknown error"),
#undef ERROR
};

/* Both give NULL and an error for a code that is not in the table. */
CUresult cuGetErrorName(CUresult error, const char **name) {
    ENTER(cuGetErrorName);
    *name = NULL;
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].error == error) *name = errors[i].name;
    return *name ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char **text) {
    ENTER(cuGetErrorString);
    *text = NULL;
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].error == error) *text = errors[i].text;
    return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
