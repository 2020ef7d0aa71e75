/* Programs of cuda devices, captured into CUDA graphs: a step then costs the host one launch.
 *
 * cuda_graph.c keeps the graphs of a program and runs it; the other files of this folder are its
 * parts: graph_edges.c lets independent kernels of a graph overlap, graph_inputs.c keeps the
 * addresses in a graph the same from run to run, epilogue_fusion.c merges steps beforehand. */
#ifndef MG_DEVICE_CUDA_GRAPH_CUDA_GRAPH_H
#define MG_DEVICE_CUDA_GRAPH_CUDA_GRAPH_H

#include "device/program/program.h"

/* The entries of mg_device_api; a program here is a list of calls and its recordings. */
mg_status mg_cuda_program_compile(mg_device *d, const mg_kernel_set *set,
                                  const mg_kernel_graph *graph, mg_program **program);
mg_status mg_cuda_program_run(mg_program *program, const mg_run *run);
void mg_cuda_program_release(mg_program *program);
size_t mg_cuda_program_arena_bytes(const mg_program *program);

/* ---- graph_edges.c ---- */

/* Runs the calls [first, last) into the graph that d's stream records. What the stream is given
 * next comes after those that read the run's random state. */
mg_status mg_cuda_capture_calls(mg_device *d, mg_program *calls, const mg_run *run, int first,
                                int last);

/* ---- graph_inputs.c ---- */

typedef struct mg_cuda_graph_inputs mg_cuda_graph_inputs;

mg_cuda_graph_inputs *mg_cuda_graph_inputs_new(mg_device *d,
                                               const mg_kernel_graph *graph); /* NULL: MG_OOM */
void mg_cuda_graph_inputs_free(mg_cuda_graph_inputs *p);

/* Before a run: the addresses of its external values from here on, which `p` owns. Values that it
 * reads are brought, by the device's stream. */
mg_status mg_cuda_graph_inputs_copy_in(mg_cuda_graph_inputs *p, const mg_run *run,
                                       void *const **external);
/* After it: values that it has made are taken to where the run wants them. */
mg_status mg_cuda_graph_inputs_copy_out(const mg_cuda_graph_inputs *p, const mg_run *run);

/* ---- epilogue_fusion.c ---- */

/* The steps of `graph`, as many, with sums of columns fused into the step that reads or makes what
 * they add up. A block from mg_alloc, to be kept as long as a program made of them. */
mg_status mg_cuda_fuse_epilogues(mg_device *d, const mg_kernel_graph *graph, mg_step **steps);

#endif
