/* Programs of cuda devices, recorded into CUDA graphs. */
#ifndef MG_DEVICE_CUDA_RECORD_H
#define MG_DEVICE_CUDA_RECORD_H

#include "device/program/program.h"

/* The entries of mg_device_api; a program here is a list of calls and its recordings. */
mg_status mg_cuda_program_compile(mg_device *d, const mg_kernel_set *set,
                                  const mg_kernel_graph *graph, mg_program **program);
mg_status mg_cuda_program_run(mg_program *program, const mg_run *run);
void mg_cuda_program_release(mg_program *program);
size_t mg_cuda_program_arena_bytes(const mg_program *program);

#endif
