/* The fake cuDNN's handle, and how its calls fail. */
#ifndef FAKE_CUDA_CUDNN_HANDLE_H
#define FAKE_CUDA_CUDNN_HANDLE_H

#include "fake_cuda.h"
#include <cudnn.h>

struct cudnnContext {
    CUstream stream;
    /* Plans were made with it. Our code makes plans on threads that may not use the stream
     * meanwhile, with handles of their own; so executing with such a handle is an error. */
    bool plans;
};

/* Begins each function: counts the call, and fails it if that was asked for. Statuses of cuDNN are
 * 1000 and above; a smaller number is a fatal error of CUDA. */
#define ENTER(function)                                                                            \
    const int entered = fake_cuda_enter(#function);                                                \
    if (entered) return entered >= 1000 ? (cudnnStatus_t)entered : CUDNN_STATUS_EXECUTION_FAILED

/* Returns the status; the words are what cudnnGetLastErrorString gives. */
cudnnStatus_t dnn_say(cudnnStatus_t status, const char *words);

#endif
