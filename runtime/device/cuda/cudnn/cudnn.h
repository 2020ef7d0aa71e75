/* cuDNN 9: the library with its graph interface, a handle per device, its errors. */
#ifndef MG_DEVICE_CUDA_CUDNN_CUDNN_H
#define MG_DEVICE_CUDA_CUDNN_CUDNN_H

#include "core/library.h"
#include "device/device.h"
#include <cudnn.h>

#define MG_CUDNN(X)                                                                                \
    X(cudnnGetVersion)                                                                             \
    X(cudnnGetErrorString)                                                                         \
    X(cudnnGetLastErrorString)                                                                     \
    X(cudnnCreate)                                                                                 \
    X(cudnnDestroy)                                                                                \
    X(cudnnSetStream)                                                                              \
    X(cudnnBackendCreateDescriptor)                                                                \
    X(cudnnBackendDestroyDescriptor)                                                               \
    X(cudnnBackendSetAttribute)                                                                    \
    X(cudnnBackendGetAttribute)                                                                    \
    X(cudnnBackendFinalize)                                                                        \
    X(cudnnBackendExecute)

MG_LIBRARY_TABLE(mg_cudnn, MG_CUDNN);
extern mg_cudnn mg_dnn; /* usable once mg_dnn_open has returned MG_OK */

/* MG_UNSUPPORTED if the library is missing. */
mg_status mg_dnn_open(void);

/* The device's handles, made on first use, ended by mg_dnn_close; the device's context is the
 * calling thread's. A handle is one thread's at a time: the first, on the device's stream, is for
 * who holds the stream's turn, and is made before there is something to run; the second is for who
 * makes a program. */
mg_status mg_dnn_handle(mg_device *d, cudnnHandle_t *handle);
mg_status mg_dnn_planner(mg_device *d, cudnnHandle_t *handle);
struct mg_cuda;
void mg_dnn_close(struct mg_cuda *s);

/* Bytes: what wants more is taken only for want of anything else. */
#define MG_DNN_MUCH_WORKSPACE ((size_t)4 << 30)

/* How cuDNN names a floating dtype. */
cudnnDataType_t mg_dnn_type(mg_dtype t);

/* MG_OK, MG_OOM, MG_UNSUPPORTED (no engine does it) or MG_DEVICE, with cuDNN's own words. */
mg_status mg_dnn_check(cudnnStatus_t result, const char *what);

#endif
