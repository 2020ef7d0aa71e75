/* Starting the ranks of one host, by the launcher or by its agent. */
#ifndef MG_PROGRAM_LAUNCHER_RANKS_H
#define MG_PROGRAM_LAUNCHER_RANKS_H

#include "program/launcher/crew.h"

typedef struct mg_ranks {
    char *const *argv; /* of each rank */
    mg_output output;
    int first, n;                /* ranks */
    int local_first, local_size; /* their places among the processes of this host */
} mg_ranks;

/* Sets in this process's environment, which ranks inherit, what is the same for all of them. */
void mg_ranks_prepare(int size, const char *hub, const char *token);
/* Starts them as further members of the crew. */
mg_status mg_ranks_start(mg_crew *crew, const mg_ranks *ranks);

#endif
