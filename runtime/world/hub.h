/* The hub: a TCP connection from each process of the world to rank 0, for everything but tensors.
 *
 * It brings the processes together (who is here, on which host), keeps a store of small values,
 * and watches: each process says once a second that it lives and what it does. If one is silent
 * for MG_SILENCE seconds, or its connection ends without a goodbye, rank 0 tells all others a
 * sentence that names it, and the world is over: mg_hub_over. If rank 0 itself is silent, each
 * process finds that out by itself. All of this happens on a thread of the hub's own, so a long
 * step is no death.
 *
 * Messages are length-prefixed records; a process must know the token to be let in. */
#ifndef MG_WORLD_HUB_H
#define MG_WORLD_HUB_H

#include "core/status.h"
#include "world/launch.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MG_SILENCE = 10 /* seconds */, MG_HUB_MOST = 1024 /* processes */ };

typedef struct mg_hub mg_hub;

typedef struct mg_hub_member {
    char host[MG_HOST_NAME];
    int pid;
} mg_hub_member;

typedef struct mg_hub_how {
    int rank, size;
    int listener;        /* rank 0: from mg_hub_listen; else -1 */
    const char *address; /* of rank 0: a host name or a numeric address, or several, separated by
                            commas: the first that answers; and the port */
    int port;
    const char *token;
    double patience;  /* seconds to wait for the others */
    uint64_t version; /* of program and protocol: members with another one are refused by name */
} mg_hub_how;

/* Rank 0: listens on *port of all interfaces, or on a free one if *port is 0, which it then
 * becomes. *listener is a file descriptor. MG_COMM: the port is in use (named, and what to do). */
mg_status mg_hub_listen(int *port, int *listener);
/* The numeric addresses of this host that others may reach it by, separated by commas, those of
 * real networks first, 127.0.0.1 last. MGPU_INTERFACE names a network card ("eth0") or network
 * ("10.9.0.0/24") to use. */
mg_status mg_hub_addresses(char *to, size_t room);
/* The network card that MGPU_INTERFACE names, or one in the network that it names; "" if it is not
 * set. */
mg_status mg_hub_card(char *to, size_t room);
/* Returns when all processes have joined. NULL: MG_COMM; the message says who is missing (rank 0),
 * or why rank 0 could not be reached or did not let us in. Takes over the listener. */
mg_hub *mg_hub_join(const mg_hub_how *how);
const mg_hub_member *mg_hub_member_of(const mg_hub *h, int rank);
/* The store. A key is put once. */
mg_status mg_hub_put(mg_hub *h, const char *key, const void *data, size_t bytes);
/* Waits until the key is put, for at most `patience` seconds; *data is owned (mg_free). */
mg_status mg_hub_get(mg_hub *h, const char *key, double patience, void **data, size_t *bytes);
/* What this process does, for the sentence if it dies: the number of the step, from 1 on, and the
 * name of an op (a static string). Cheap: it is called for each op. */
void mg_hub_at(mg_hub *h, uint64_t step, const char *op);
/* NULL while all is well; else why the world is over: one sentence, the same on all ranks. Valid
 * until the hub is left. Cheap: it is polled. */
const char *mg_hub_over(const mg_hub *h);
/* Seconds after which a silent process counts as dead: MGPU_SILENCE, or MG_SILENCE. */
double mg_hub_silence(const mg_hub *h);
/* Whether a process has said goodbye without an error, so that it sends no more messages; *step is
 * the one at which it left. Another process that still waits for it ends the world. Cheap. */
bool mg_hub_has_left(const mg_hub *h, int rank, uint64_t *step);
/* Ends the world: tells all others why. */
void mg_hub_end(mg_hub *h, const char *sentence);
/* Says goodbye, so that leaving is no death, and frees the hub. Rank 0 stays until all have left or
 * the world is over. With a nonzero status the others are told that this rank left early. Accepts
 * NULL. */
void mg_hub_leave(mg_hub *h, int exit_status);

#endif
