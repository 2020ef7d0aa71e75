/* Tasks that SLURM's srun started.
 *
 * Messages go by UCX, whatever --mpi says. An MPI library works under srun only if it was built for
 * the very PMI that --mpi chose: Open MPI's srun support wants the same PMIx, MPICH's the same
 * PMI-1 or PMI-2, and a mismatch shows as n worlds of one process each, or as a hang. UCX needs the
 * rank and the host of rank 0 only, which SLURM always tells. MGPU_TRANSPORT=openmpi or mpich
 * chooses MPI on sites where it is known to work. */
#include "world/host_list.h"
#include "world/launch_source.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_PORT = 20000, PORTS = 9973 };
/* Steps that SLURM makes by itself have the largest numbers: the shells of sbatch and salloc. */
static const unsigned long FIRST_RESERVED_STEP = 0xfffffff0;

/* A batch script has SLURM_PROCID=0 and SLURM_NTASKS, but no step; neither has salloc's shell, or
 * its step is a reserved one. */
bool mg_launch_is_srun(const char **why) {
    const char *id = mg_launch_variable("SLURM_STEP_ID");
    if (id && mg_launch_variable("SLURM_PROCID") && strtoul(id, NULL, 10) < FIRST_RESERVED_STEP)
        return true;
    if (mg_launch_variable("SLURM_JOB_ID"))
        *why = "SLURM_JOB_ID is set, but not the variables of a task of srun: start the script by "
               "srun or mgpulua --np";
    return false;
}

/* Rank 0 is on the first node of the list. Its name may not resolve where the nodes are known by
 * other names; then the host of srun may be the same: it is when a batch script calls srun. */
static mg_status find_address(mg_launch *l) {
    const char *nodes = mg_launch_variable("SLURM_STEP_NODELIST"),
               *srun = mg_launch_variable("SLURM_LAUNCH_NODE_IPADDR");
    mg_host_list list = {0};
    if (l->local_size == l->size) return mg_launch_host("127.0.0.1", "SLURM_STEP_NODELIST", l);
    if (!nodes)
        return mg_fail(MG_USAGE,
                       "%s, but SLURM_STEP_NODELIST, which tells rank 0's host, is not "
                       "set: set it, or MGPU_HUB=host:port",
                       l->seen);
    const mg_status status = mg_host_list_slurm(&list, nodes, "SLURM_STEP_NODELIST");
    char both[2 * MG_HOST_NAME];
    if (status == MG_OK)
        snprintf(both, sizeof both, "%s%s%s", list.hosts[0].name, srun ? "," : "",
                 srun ? srun : "");
    mg_host_list_free(&list);
    MG_TRY(status);
    return mg_launch_host(both, "SLURM_STEP_NODELIST", l);
}

/* All tasks of a step find the same port without exchanging a message, and steps that run at the
 * same time find different ones. It is below 32768, where the ports begin that the system gives to
 * connections. The token keeps steps apart that meet all the same; it is no secret. */
static mg_status find_port(mg_launch *l) {
    int job = 0, number = 0;
    MG_TRY(mg_launch_number("SLURM_JOB_ID", 0, INT_MAX, &job));
    MG_TRY(mg_launch_number("SLURM_STEP_ID", 0, INT_MAX, &number));
    l->port = FIRST_PORT + (int)((37ull * (unsigned)job + (unsigned)number) % PORTS);
    char token[64];
    snprintf(token, sizeof token, "slurm-%d.%d", job, number);
    mg_launch_token(l, token);
    return MG_OK;
}

mg_status mg_launch_srun(mg_launch *l) {
    const char *size =
        mg_launch_variable("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
    const char *counts = mg_launch_variable("SLURM_STEP_TASKS_PER_NODE");
    MG_TRY(mg_launch_number("SLURM_PROCID", 0, INT_MAX, &l->rank));
    MG_TRY(mg_launch_number(size, 1, INT_MAX, &l->size));
    snprintf(l->seen, sizeof l->seen, "SLURM_PROCID=%d of %s=%d", l->rank, size, l->size);
    if (mg_launch_variable("SLURM_LOCALID"))
        MG_TRY(mg_launch_number("SLURM_LOCALID", 0, INT_MAX, &l->local_rank));
    if (counts && mg_launch_variable("SLURM_NODEID")) {
        int node;
        MG_TRY(mg_launch_number("SLURM_NODEID", 0, INT_MAX, &node));
        MG_TRY(mg_slurm_count(counts, node, "SLURM_STEP_TASKS_PER_NODE", &l->local_size));
    }
    MG_TRY(find_port(l));
    return mg_launch_variable("MGPU_HUB") ? MG_OK : find_address(l);
}
