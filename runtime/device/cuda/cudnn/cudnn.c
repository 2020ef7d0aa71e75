/* cuDNN: opening the library, its handles, turning its errors into ours. */
#include "device/cuda/cudnn/cudnn.h"
#include "device/cuda/context/context.h"

mg_cudnn mg_dnn;
MG_LIBRARY(library, mg_dnn, MG_CUDNN, .file = "libcudnn.so.9", .what = "cuDNN 9",
           .install = "install libcudnn9-cuda-13, or pip's nvidia-cudnn-cu13");

/* MG_LIBRARY opens it once; later calls report the same outcome. */
mg_status mg_dnn_open(void) {
    return mg_library_open(&library);
}

/* f64 has a name too, but accepts_conv refuses it: cuDNN would compute in float. */
cudnnDataType_t mg_dnn_type(mg_dtype t) {
    return t == MG_F16    ? CUDNN_DATA_HALF
           : t == MG_BF16 ? CUDNN_DATA_BFLOAT16
           : t == MG_F64  ? CUDNN_DATA_DOUBLE
                          : CUDNN_DATA_FLOAT;
}

/* Our code for a status: cuDNN 9 groups its statuses into categories. */
static mg_status status_of(cudnnStatus_t result) {
    switch ((int)result) {
    case CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED:
    case CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED: return MG_OOM;
    }
    switch (CUDNN_STATUS_CATEGORY((int)result)) {
    case CUDNN_STATUS_BAD_PARAM: return MG_INTERNAL;
    case CUDNN_STATUS_NOT_SUPPORTED: return MG_UNSUPPORTED;
    default: return MG_DEVICE;
    }
}

/* The message has both texts of cuDNN: the name of the status, and the details. */
mg_status mg_dnn_check(cudnnStatus_t result, const char *what) {
    char words[256] = "";
    if (result == CUDNN_STATUS_SUCCESS) return MG_OK;
    mg_dnn.cudnnGetLastErrorString(words, sizeof words);
    words[sizeof words - 1] = 0;
    return mg_fail(status_of(result), "cuDNN: %s: %s%s%s", what, mg_dnn.cudnnGetErrorString(result),
                   words[0] ? ": " : "", words);
}

mg_status mg_dnn_handle(mg_device *d, cudnnHandle_t *handle) {
    mg_cuda *s = d->state;
    if (!s->dnn) {
        cudnnHandle_t made = NULL;
        MG_TRY(mg_dnn_open());
        MG_TRY(mg_dnn_check(mg_dnn.cudnnCreate(&made), "start"));
        const mg_status status =
            mg_dnn_check(mg_dnn.cudnnSetStream(made, s->stream), "choose the stream");
        if (status == MG_OK)
            s->dnn = made;
        else
            mg_dnn.cudnnDestroy(made);
        MG_TRY(status);
    }
    *handle = s->dnn;
    return MG_OK;
}

/* The stream has been waited for: nothing uses the handle any more. */
void mg_dnn_close(mg_cuda *s) {
    if (s->dnn) mg_dnn.cudnnDestroy(s->dnn);
    s->dnn = NULL;
}
