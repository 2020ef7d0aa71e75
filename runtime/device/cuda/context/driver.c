/* Opening libcuda, and turning its errors into ours.
 *
 * The plug-in is linked to no CUDA library, so that it loads on machines without a driver; the
 * table mg_cu holds the driver's functions once it is open. */
#include "device/cuda/context/driver.h"
#include <pthread.h>
#include <stdio.h>

mg_cuda_driver mg_cu;

MG_LIBRARY(library, mg_cu, MG_CUDA_DRIVER, .file = "libcuda.so.1", .what = "the NVIDIA driver",
           .install = "install one for CUDA 13 (580 or newer)", .system = 1);

/* The outcome of the first attempt, which every later call reports again. */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static mg_status opened;
static char problem[400];

/* Sets `opened`, and `problem` where that is not MG_OK. */
static void driver_start(void) {
    int version = 0, n = 0;
    opened = mg_library_open(&library);
    if (opened != MG_OK) {
        snprintf(problem, sizeof problem, "%s", mg_error_message());
        return;
    }
    const CUresult result = mg_cu.cuInit(0);
    opened = MG_UNSUPPORTED;
    if (result == CUDA_ERROR_NO_DEVICE)
        snprintf(problem, sizeof problem,
                 "the NVIDIA driver finds no GPU (CUDA_VISIBLE_DEVICES may hide it)");
    else if (result != CUDA_SUCCESS)
        snprintf(problem, sizeof problem, "the NVIDIA driver does not start (error %d)",
                 (int)result);
    else if (mg_cu.cuDriverGetVersion(&version) == CUDA_SUCCESS && version < CUDA_VERSION)
        snprintf(problem, sizeof problem,
                 "the NVIDIA driver is too old: it speaks CUDA %d.%d, %d.%d or newer is needed",
                 version / 1000, version % 1000 / 10, CUDA_VERSION / 1000,
                 CUDA_VERSION % 1000 / 10);
    else if (mg_cu.cuDeviceGetCount(&n) != CUDA_SUCCESS || n == 0)
        snprintf(problem, sizeof problem, "there is no GPU");
    else
        opened = MG_OK;
}

/* The driver cannot be opened twice: pthread_once, also for threads that come at the same time. */
mg_status mg_cuda_driver_open(void) {
    pthread_once(&once, driver_start);
    return opened == MG_OK ? MG_OK : mg_fail(opened, "%s", problem);
}

/* Errors that concern only one call are excluded from the range of errors that end a context. */
int mg_cuda_is_fatal(CUresult result) {
    return (result >= CUDA_ERROR_ILLEGAL_ADDRESS && result <= CUDA_ERROR_TENSOR_MEMORY_LEAK &&
            result != CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES &&
            result != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED &&
            result != CUDA_ERROR_PEER_ACCESS_NOT_ENABLED) ||
           result == CUDA_ERROR_ECC_UNCORRECTABLE || result == CUDA_ERROR_NVLINK_UNCORRECTABLE ||
           result == CUDA_ERROR_CONTAINED || result == CUDA_ERROR_EXTERNAL_DEVICE;
}

/* Messages name CUDA's error both in words and by its symbol, for searching. */
mg_status mg_cuda_result(CUresult result, const char *what) {
    const char *name = NULL, *text = NULL;
    if (result == CUDA_SUCCESS) return MG_OK;
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        return mg_fail(MG_OOM, "%s: the GPU's memory is full", what);
    mg_cu.cuGetErrorName(result, &name);
    mg_cu.cuGetErrorString(result, &text);
    return mg_fail(MG_DEVICE, "%s: %s (%s)", what, text ? text : "unknown error",
                   name ? name : "no name");
}
