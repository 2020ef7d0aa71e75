/* The fake CUDA for cuDNN: its handle, version and words. */
#include "cudnn_handle.h"
#include <stdio.h>
#include <stdlib.h>

static _Thread_local char last_words[200];

cudnnStatus_t dnn_say(cudnnStatus_t status, const char *words) {
    snprintf(last_words, sizeof last_words, "%s", words);
    return status;
}

size_t cudnnGetVersion(void) {
    return CUDNN_VERSION;
}

const char *cudnnGetErrorString(cudnnStatus_t status) {
    static _Thread_local char text[40];
    snprintf(text, sizeof text, "CUDNN_STATUS %d", (int)status);
    return text;
}

void cudnnGetLastErrorString(char *message, size_t most) {
    snprintf(message, most, "%s", last_words);
    last_words[0] = 0;
}

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle) {
    ENTER(cudnnCreate);
    if (fake_cuda_forbid_capture() != CUDA_SUCCESS) return CUDNN_STATUS_EXECUTION_FAILED;
    *handle = calloc(1, sizeof **handle);
    return *handle ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_ALLOC_FAILED;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
    free(handle);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
    ENTER(cudnnSetStream);
    handle->stream = (CUstream)stream;
    return CUDNN_STATUS_SUCCESS;
}
