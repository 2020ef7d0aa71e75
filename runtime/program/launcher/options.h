/* Reading the values of the launch options. All of these fail with MG_USAGE. */
#ifndef MG_PROGRAM_LAUNCHER_OPTIONS_H
#define MG_PROGRAM_LAUNCHER_OPTIONS_H

#include "program/launcher/crew.h"
#include "program/program.h"

/* A whole number from 1 to `most`. */
mg_status mg_launcher_number(const char *option, const char *text, int most, int *number);
/* --output, or MGPU_OUTPUT if `text` is NULL; rank0 if that is not set either. */
mg_status mg_launcher_output(const char *text, mg_output *output);
/* Checks --nranks_per_gpu, unless it is NULL, and puts it into MGPU_RANKS_PER_GPU. */
mg_status mg_launcher_ranks_per_gpu(const char *text);

/* --restart: how often all ranks are started again; 0 if `text` is NULL. */
mg_status mg_launcher_restarts(const char *text, int *restarts);
/* --elastic: the numbers of ranks to run with; 0 and 0 if `text` is NULL. */
mg_status mg_launcher_elastic(const char *text, int *least, int *most);

#endif
