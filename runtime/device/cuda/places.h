/* Places of a program's own for external values that lie elsewhere at every run, such as the batch
 * of a loop, or the loss that it returns and nobody frees. Recordings hold for one list of
 * addresses: such a value is brought to its place first, or taken from there to where it belongs,
 * so that the list stays the same. */
#ifndef MG_DEVICE_CUDA_PLACES_H
#define MG_DEVICE_CUDA_PLACES_H

#include "device/device.h"

typedef struct mg_cuda_places mg_cuda_places;

mg_cuda_places *mg_cuda_places_new(mg_device *d, const mg_kernel_graph *graph); /* NULL: MG_OOM */
void mg_cuda_places_free(mg_cuda_places *p);

/* Before a run: the addresses of its external values from here on, which `p` owns. Values that it
 * reads are brought, by the device's stream. */
mg_status mg_cuda_places_bring(mg_cuda_places *p, const mg_run *run, void *const **external);
/* After it: values that it has made are taken to where the run wants them. */
mg_status mg_cuda_places_take(const mg_cuda_places *p, const mg_run *run);

#endif
