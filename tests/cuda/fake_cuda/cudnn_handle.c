/* The fake cuDNN's handle, version and error texts. */
#include "cudnn_handle.h"
#include <stdio.h>
#include <stdlib.h>

static _Thread_local char last_words[200]; /* of the thread's last failure */

/* The text of the last failure is kept per thread, as in the real library. */
cudnnStatus_t dnn_say(cudnnStatus_t status, const char *words) {
    snprintf(last_words, sizeof last_words, "%s", words);
    return status;
}

size_t cudnnGetVersion(void) {
    return CUDNN_VERSION;
}

/* Only the number: tests check that our messages pass it on. */
const char *cudnnGetErrorString(cudnnStatus_t status) {
    static _Thread_local char text[40];
    snprintf(text, sizeof text, "CUDNN_STATUS %d", (int)status);
    return text;
}

/* Reading the text clears it. */
void cudnnGetLastErrorString(char *message, size_t most) {
    snprintf(message, most, "%s", last_words);
    last_words[0] = 0;
}

/* The real one allocates device memory, which must not happen during a capture. */
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
