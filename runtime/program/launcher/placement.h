/* Which ranks run on which hosts. */
#ifndef MG_PROGRAM_LAUNCHER_PLACEMENT_H
#define MG_PROGRAM_LAUNCHER_PLACEMENT_H

#include "program/program.h"
#include "world/host_list.h"

typedef struct mg_place { /* ranks `first` to first + n - 1 */
    const char *host;     /* borrowed from the list; NULL: this host */
    int first, n;
    int local_first, local_size; /* their places among the processes of their host */
} mg_place;

typedef struct mg_placement { /* starts as zeros */
    int np;                   /* ranks in all */
    int least;                /* as many must remain when hosts are lost; 0: all */
    int n;                    /* places, in the order of ranks */
    mg_place *places;         /* owned */
    bool any_host;            /* no host was named: all ranks run here, whatever their number */
    mg_host_list list;
} mg_placement;

/* Finds the hosts in the options, or, without -H and --hostfile, in what a batch system has
 * allocated, and fills them with ranks in their order. MG_USAGE, MG_IO, MG_OOM. */
mg_status mg_placement_find(const mg_launch_options *options, mg_placement *placement);
/* Does without a host that was lost. False: that leaves too few slots. */
bool mg_placement_lose(mg_placement *placement, const char *host);
/* Accepts a placement of zeros. */
void mg_placement_free(mg_placement *placement);

#endif
