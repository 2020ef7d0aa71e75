/* While a stream records: calls one after another, of which each waits only for those it must. */
#ifndef MG_DEVICE_CUDA_APART_H
#define MG_DEVICE_CUDA_APART_H

#include "device/program/program.h"

/* Runs the calls [first, last) into the graph that d's stream records. What the stream is given
 * next comes after those that read the run's random state. */
mg_status mg_cuda_run_apart(mg_device *d, mg_program *calls, const mg_run *run, int first,
                            int last);

#endif
