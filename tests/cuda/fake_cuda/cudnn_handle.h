/* The handle of the fake CUDA for cuDNN, and how its calls fail. */
#ifndef FAKE_CUDA_CUDNN_HANDLE_H
#define FAKE_CUDA_CUDNN_HANDLE_H

#include "fake_cuda.h"
#include <cudnn.h>

struct cudnnContext {
    CUstream stream;
    bool plans; /* plans were made with it, by whom does not hold the stream's turn: nothing runs */
};

#define ENTER(function)                                                                            \
    const int entered = fake_cuda_enter(#function);                                                \
    if (entered) return entered >= 1000 ? (cudnnStatus_t)entered : CUDNN_STATUS_EXECUTION_FAILED

/* Gives back the status; the words are what cudnnGetLastErrorString tells. */
cudnnStatus_t dnn_say(cudnnStatus_t status, const char *words);

#endif
