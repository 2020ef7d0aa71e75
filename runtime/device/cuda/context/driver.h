/* The driver API (libcuda), loaded at run time, and the mapping of its errors to ours. */
#ifndef MG_DEVICE_CUDA_CONTEXT_DRIVER_H
#define MG_DEVICE_CUDA_CONTEXT_DRIVER_H

#include "core/library.h"
#include <cuda.h>

/* clang-format off */
#define MG_CUDA_DRIVER(X)                                                                          \
    X(cuInit) X(cuDriverGetVersion) X(cuGetErrorName) X(cuGetErrorString) X(cuDeviceGetCount)      \
    X(cuDeviceGet) X(cuDeviceGetName) X(cuDeviceTotalMem) X(cuDeviceGetAttribute)                  \
    X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxRelease) X(cuCtxSetCurrent)                    \
    X(cuDeviceCanAccessPeer) X(cuMemPoolSetAccess) X(cuStreamCreate) X(cuStreamDestroy)            \
    X(cuStreamWaitEvent) X(cuStreamGetCaptureInfo)                                                 \
    X(cuStreamUpdateCaptureDependencies) X(cuStreamBeginCapture) X(cuStreamEndCapture)             \
    X(cuEventCreate) X(cuEventDestroy) X(cuEventRecord) X(cuEventQuery)                            \
    X(cuEventElapsedTime) X(cuMemAllocFromPoolAsync) X(cuMemFreeAsync) X(cuMemPoolCreate)          \
    X(cuMemPoolDestroy) X(cuMemPoolSetAttribute) X(cuMemPoolTrimTo) X(cuMemAllocHost)              \
    X(cuMemFreeHost) X(cuMemcpyHtoDAsync) X(cuMemcpyDtoHAsync) X(cuMemcpyDtoDAsync)                \
    X(cuMemcpyPeerAsync) X(cuMemcpy2DAsync) X(cuMemsetD8Async) X(cuModuleLoadData)                 \
    X(cuModuleUnload) X(cuModuleGetFunction) X(cuFuncLoad) X(cuLaunchKernel)                       \
    X(cuGraphInstantiate) X(cuGraphExecDestroy) X(cuGraphLaunch) X(cuGraphExecUpdate)              \
    X(cuGraphDestroy) X(cuCtxGetStreamPriorityRange) X(cuGraphKernelNodeSetAttribute)
/* clang-format on */

MG_LIBRARY_TABLE(mg_cuda_driver, MG_CUDA_DRIVER);
extern mg_cuda_driver mg_cu; /* usable once mg_cuda_driver_open has returned MG_OK */

/* Opens libcuda and initialises it, once per process. MG_UNSUPPORTED if there is no driver or no
 * GPU, or if the driver is older than the headers we were built with. */
mg_status mg_cuda_driver_open(void);

/* MG_OK; MG_OOM if the GPU's memory is full; else MG_DEVICE with CUDA's name and text of the error.
 * `what` names the action, such as "copy to the GPU". */
mg_status mg_cuda_result(CUresult result, const char *what);

/* Whether the error ends the context for good: an illegal address, a failed launch, an ECC error,
 * or other broken hardware. Every later call on the GPU then fails, until the process restarts. */
int mg_cuda_is_fatal(CUresult result);

#endif
