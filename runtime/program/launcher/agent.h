/* The agent: a process of mgpulua on another host, started through ssh, that starts the ranks
 * there.
 *
 * All it needs, the token too, comes through its standard input, so nothing has to be quoted for a
 * shell or is shown by ps. After that, each byte is the number of a signal for its ranks. At the
 * end of the input, when the launcher or the connection has gone, it ends them. */
#ifndef MG_PROGRAM_LAUNCHER_AGENT_H
#define MG_PROGRAM_LAUNCHER_AGENT_H

#include "program/launcher/meeting.h"
#include "program/launcher/ranks.h"

typedef struct mg_agent_orders {
    mg_ranks ranks;
    int size;                /* of the world */
    const char *hub, *token; /* hub: "" if the agent has to find a place to meet on its host */
} mg_agent_orders;

/* Starts an agent for the crew's next member, whose host is filled in, and sends it its orders, the
 * working folder and the environment variables that travel. MG_IO, MG_OOM. */
mg_status mg_agent_start(mg_crew *crew, const mg_agent_orders *orders);
/* Waits until the last started agent, whose orders had no hub, tells one; "" if it fails or a
 * signal comes. */
void mg_agent_hub(mg_crew *crew, char hub[MG_HUB_TEXT]);

#endif
