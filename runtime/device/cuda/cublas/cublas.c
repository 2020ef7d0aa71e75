/* Opening cuBLASLt, its handles, and turning its errors into ours. */
#include "device/cuda/cublas/cublas.h"

mg_cublas mg_blas;

MG_LIBRARY(library, mg_blas, MG_CUBLAS, .file = "libcublasLt.so.13", .what = "cuBLASLt 13",
           .install = "install libcublas-13-0 (or the wheel nvidia-cublas)");

/* cuBLASLt reports a failed launch, and errors of earlier work, as execution failures. */
mg_status mg_blas_check(mg_device *d, cublasStatus_t status, const char *what) {
    if (status == CUBLAS_STATUS_SUCCESS) return MG_OK;
    const mg_status code =
        status == CUBLAS_STATUS_ALLOC_FAILED ? MG_OOM
        : status == CUBLAS_STATUS_EXECUTION_FAILED || status == CUBLAS_STATUS_INTERNAL_ERROR
            ? MG_DEVICE
            : MG_INTERNAL;
    return mg_fail(code, "%s: cuBLASLt: %s: %s", d->name, what,
                   mg_blas.cublasLtGetStatusString(status));
}

/* A handle has no stream, because each product names its stream, so one handle serves all
 * threads. */
mg_status mg_blas_open(mg_device *d, cublasLtHandle_t *handle) {
    mg_cuda *s = d->state;
    MG_TRY(mg_library_open(&library));
    if (!s->blas)
        MG_TRY(mg_blas_check(d, mg_blas.cublasLtCreate((cublasLtHandle_t *)&s->blas), "start"));
    *handle = s->blas;
    return MG_OK;
}

/* Called with the device's context current, after the stream was waited for. */
void mg_blas_close(mg_cuda *s) {
    if (s->blas) mg_blas.cublasLtDestroy(s->blas);
    s->blas = NULL;
}
