/* cuBLASLt: the library loaded at run time, a handle per device, its errors. */
#ifndef MG_DEVICE_CUDA_CUBLAS_CUBLAS_H
#define MG_DEVICE_CUDA_CUBLAS_CUBLAS_H

#include "device/cuda/context/context.h"
#include <cublasLt.h>

/* clang-format off */
#define MG_CUBLAS(X)                                                                               \
    X(cublasLtCreate) X(cublasLtDestroy) X(cublasLtGetVersion) X(cublasLtGetStatusString)          \
    X(cublasLtMatmul) X(cublasLtMatmulDescCreate) X(cublasLtMatmulDescDestroy)                     \
    X(cublasLtMatmulDescSetAttribute) X(cublasLtMatrixLayoutCreate)                                \
    X(cublasLtMatrixLayoutDestroy) X(cublasLtMatrixLayoutSetAttribute)                             \
    X(cublasLtMatmulPreferenceCreate) X(cublasLtMatmulPreferenceDestroy)                           \
    X(cublasLtMatmulPreferenceSetAttribute) X(cublasLtMatmulAlgoGetHeuristic)
/* clang-format on */

MG_LIBRARY_TABLE(mg_cublas, MG_CUBLAS);
extern mg_cublas mg_blas; /* usable once mg_blas_open has returned MG_OK */

/* The device's handle, made on first use and freed by mg_blas_close. MG_UNSUPPORTED without
 * cuBLASLt. */
mg_status mg_blas_open(mg_device *d, cublasLtHandle_t *handle);
void mg_blas_close(mg_cuda *s);

/* MG_OK; MG_OOM if memory ran out; MG_DEVICE if something failed on the GPU; else MG_INTERNAL.
 * `what` names the action. */
mg_status mg_blas_check(mg_device *d, cublasStatus_t status, const char *what);

#endif
