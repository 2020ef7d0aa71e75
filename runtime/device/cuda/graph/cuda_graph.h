/* Programs of cuda devices, captured into CUDA graphs: a step then costs the host one launch.
 *
 * cuda_graph.c keeps the graphs of a program and runs it. The other files of this folder are its
 * parts: graph_edges.c lets independent kernels of a graph overlap, graph_inputs.c keeps the
 * addresses in a graph the same from run to run, epilogue_fusion.c and loss_fusion.c merge steps
 * beforehand (merging.h). */
#ifndef MG_DEVICE_CUDA_GRAPH_CUDA_GRAPH_H
#define MG_DEVICE_CUDA_GRAPH_CUDA_GRAPH_H

#include "device/program/program.h"

/* The entries of mg_device_api. A program of this device is a list of calls with its graphs. */
mg_status mg_cuda_program_compile(mg_device *d, const mg_kernel_set *set,
                                  const mg_kernel_graph *graph, mg_program **program);
mg_status mg_cuda_program_run(mg_program *program, const mg_run *run);
void mg_cuda_program_release(mg_program *program);
size_t mg_cuda_program_arena_bytes(const mg_program *program);

/* Enqueues the kernel that advances the random state in device memory by `draws` draws. */
mg_status mg_cuda_advance_rng(const mg_device *d, uint64_t draws);

/* ---- graph_edges.c ---- */

/* Captures the calls [first, last) into the graph that d's stream is capturing, with edges only
 * where one call must wait for another; then, with `advances_rng`, the advance of the random state
 * by the run's draws. Afterwards the stream depends on all of it. */
mg_status mg_cuda_capture_calls(mg_device *d, mg_program *calls, const mg_run *run, int first,
                                int last, bool advances_rng);

/* ---- graph_inputs.c ---- */

/* Memory that a program owns for those of its external values whose address keeps changing. */
typedef struct mg_cuda_graph_inputs mg_cuda_graph_inputs;

/* NULL is MG_OOM. */
mg_cuda_graph_inputs *mg_cuda_graph_inputs_new(mg_device *d, const mg_kernel_graph *graph);
void mg_cuda_graph_inputs_free(mg_cuda_graph_inputs *p);

/* Before a run: *external becomes the list of addresses to use, which `p` owns. Inputs that have
 * memory here are copied to it on the device's stream. */
mg_status mg_cuda_graph_inputs_copy_in(mg_cuda_graph_inputs *p, const mg_run *run,
                                       void *const **external);
/* After a run: results that have memory here are copied to where the run wants them. */
mg_status mg_cuda_graph_inputs_copy_out(const mg_cuda_graph_inputs *p, const mg_run *run);

/* ---- epilogue_fusion.c ---- */

/* For mg_kernel_set.merge: fuses column sums into the step that reads or makes their operand. */
mg_status mg_cuda_fuse_epilogues(mg_device *d, const mg_kernel_graph *graph, mg_step **steps);

/* ---- loss_fusion.c ---- */

enum { MG_LOSS_ROOM = 5 };
/* Fuses each cross-entropy with its gradient, in the copy `steps` of the graph's. *room: the next
 * of MG_LOSS_ROOM places per step, for lists of values. */
void mg_cuda_fuse_losses(const mg_kernel_graph *graph, mg_step *steps, int **room);

#endif
