/* cuDNN 9, of which we use the graph interface: the library loaded at run time, two handles per
 * device, its errors. */
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

/* The device's handle, made on first use and freed by mg_dnn_close. The device's context must be
 * current. cuDNN allows only one thread at a time to use a handle: the thread that holds the
 * device's turn, for making plans as well as for running them. There is only this handle, because
 * cuDNN's documentation does not say that a plan may run on another handle than it was finalised
 * with. It must be made before a capture, in which making it is not allowed. */
mg_status mg_dnn_handle(mg_device *d, cudnnHandle_t *handle);
struct mg_cuda;
void mg_dnn_close(struct mg_cuda *s);

/* Bytes of workspace: plans that need more are used only if there is no other. */
#define MG_DNN_MUCH_WORKSPACE ((size_t)4 << 30)

/* cuDNN's name of a floating dtype. */
cudnnDataType_t mg_dnn_type(mg_dtype t);

/* MG_OK, MG_OOM, MG_UNSUPPORTED (no engine can do it), MG_INTERNAL (wrong use of cuDNN) or
 * MG_DEVICE, with cuDNN's own message. `what` names the action. */
mg_status mg_dnn_check(cudnnStatus_t result, const char *what);

#endif
