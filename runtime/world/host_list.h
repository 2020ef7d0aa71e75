/* Lists of hosts, in the forms of batch systems, MPI launchers and our own -H. */
#ifndef MG_WORLD_HOST_LIST_H
#define MG_WORLD_HOST_LIST_H

#include "core/status.h"
#include "world/launch.h"

enum { MG_MOST_HOSTS = 1 << 14, MG_MOST_SLOTS = 1 << 16 };

typedef struct mg_host {
    char name[MG_HOST_NAME];
    int slots; /* processes that the host takes; 0: the list does not say */
} mg_host;

typedef struct mg_host_list { /* starts as zeros */
    mg_host *hosts;           /* in the order of the list */
    int n, capacity;
} mg_host_list;

/* All of these append to a list. MG_USAGE: the text cannot be read, or names more than
 * MG_MOST_HOSTS hosts; the message begins with `who`, the variable or file that the text comes
 * from. The list is then to be freed too. */

/* A SLURM node list, "n[1-3,7],gpu[01-10]-ib": slots are 0. */
mg_status mg_host_list_slurm(mg_host_list *list, const char *text, const char *who);
/* Sets the slots of all hosts by a SLURM list of counts, "2(x2),1": one for each host. */
mg_status mg_host_list_slurm_counts(mg_host_list *list, const char *text, const char *who);
/* "a:4,b:4,c", as of -H: a host without a number has one slot. An IPv6 address is in brackets. */
mg_status mg_host_list_given(mg_host_list *list, const char *text, const char *who);
/* The text of a file with a host on each line, in the form of Open MPI, "a slots=4", of MPICH,
 * "a:4", of PBS, "a", where each further line of a host adds a slot, or of UGE, "a 4 queue@a
 * UNDEFINED". Comments begin with #. */
mg_status mg_host_list_lines(mg_host_list *list, const char *text, const char *who);

/* The number of a node in a SLURM list of counts, without a list of hosts; `node` counts from 0.
 * MG_USAGE: the text cannot be read, or has no such node. */
mg_status mg_slurm_count(const char *text, int node, const char *who, int *count);

/* Accepts a list of zeros. */
void mg_host_list_free(mg_host_list *list);

#endif
