/* The external values that a program only reads. Recordings hold for one list of addresses; a value
 * that lies elsewhere at every run, such as the batch of a loop, is brought to a place of the
 * program's own first, so that the list stays the same. */
#ifndef MG_DEVICE_CUDA_INPUTS_H
#define MG_DEVICE_CUDA_INPUTS_H

#include "device/device.h"

typedef struct mg_cuda_inputs mg_cuda_inputs;

mg_cuda_inputs *mg_cuda_inputs_new(mg_device *d, const mg_work *work); /* NULL: MG_OOM */
void mg_cuda_inputs_free(mg_cuda_inputs *in);

/* The addresses of the run's external values from here on, which `in` owns. Values are brought, by
 * the device's stream, at the compute phase. */
mg_status mg_cuda_inputs_bring(mg_cuda_inputs *in, const mg_run *run, void *const **external);

#endif
