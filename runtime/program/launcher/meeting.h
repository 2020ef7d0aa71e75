/* Where the ranks meet: a port of rank 0's host that is free, and the addresses of that host. */
#ifndef MG_PROGRAM_LAUNCHER_MEETING_H
#define MG_PROGRAM_LAUNCHER_MEETING_H

#include "core/status.h"
#include "world/launch.h"
#include <stdbool.h>

enum { MG_HUB_TEXT = MG_HOST_NAME + 8 };

typedef struct mg_meeting {
    char hub[MG_HUB_TEXT]; /* for MGPU_HUB: "10.0.0.1,127.0.0.1:40000" */
    int reserved;          /* the socket that keeps others from taking the port; -1: none */
} mg_meeting;

/* Finds a free port of this host. `others`: ranks on other hosts come too. MG_IO, MG_COMM. */
mg_status mg_meeting_open(mg_meeting *meeting, bool others);
void mg_meeting_close(mg_meeting *meeting);

#endif
