/* Who started this process, and which place it has among the processes of the world.
 *
 * Launchers say so in environment variables, each in its own; launch.c reads them all, without
 * starting anything. The first that matches wins, in this order: mgpulua's own --np, torchrun,
 * Open MPI's mpirun, Hydra (MPICH's mpiexec), srun, PMI and PMIx, TF_CONFIG. MGPU_LAUNCH names one
 * of them, or "none". */
#ifndef MG_WORLD_LAUNCH_H
#define MG_WORLD_LAUNCH_H

#include "core/status.h"
#include <stdbool.h>

enum { MG_HOST_NAME = 256, MG_TOKEN = 64 + 1 };

typedef struct mg_launch {
    char by[16];    /* "mgpulua", "torchrun", "openmpi", "hydra", "srun", "pmi", "pmix",
                       "tf_config"; "none" */
    char seen[160]; /* the variables that told, for --doctor: "RANK=1 of WORLD_SIZE=4" */
    int rank, size; /* 0 of 1 without a launcher */
    int local_rank, local_size; /* among the processes of this host; -1 and 0: the launcher does not
                                   tell, so it is for the hub to find out */
    char role[16];              /* of TF_CONFIG: "chief", "worker", "ps", "evaluator"; else "" */
    char transport[16];         /* the plug-in mgpu-<transport>.so that carries messages: "openmpi",
                                   "mpich", "mpi_abi" or "ucx" */
    char address[MG_HOST_NAME]; /* of rank 0's host, or several, separated by commas, of which one
                                   answers; "": the transport has to tell */
    int port;                   /* of rank 0's hub; 0 if the address is "" */
    char token[MG_TOKEN];       /* processes with another one are refused by the hub; may be "" */
} mg_launch;

/* Fills in *launch. MG_USAGE: the variables of the launcher contradict each other or cannot be
 * read (named, with what to do), or MGPU_LAUNCH names no launcher.
 *
 * With every launcher, MGPU_HUB="host:port" and MGPU_TOKEN replace address, port and token, and
 * MGPU_TRANSPORT the transport. */
mg_status mg_launch_find(mg_launch *launch);
/* Writes a random token, of MG_TOKEN - 1 digits. MG_IO: the system gives no random numbers. */
mg_status mg_launch_make_token(char token[MG_TOKEN]);

#endif
