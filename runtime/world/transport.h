/* Transports: plug-ins that carry messages between the processes of the world.
 *
 * MPI (mgpu-openmpi.so, mgpu-mpich.so, mgpu-mpi_abi.so: one source) and UCX (mgpu-ucx.so). They
 * know nothing of devices or tensors: the collectives are made of their messages in communicator.c.
 *
 * Calls are made by one thread at a time, not always the same one. */
#ifndef MG_WORLD_TRANSPORT_H
#define MG_WORLD_TRANSPORT_H

#include "core/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct mg_transport mg_transport;
typedef struct mg_message mg_message; /* one that is being sent or received */

typedef struct mg_transport_start { /* what a transport is started with */
    int rank, size;
    /* The store of the hub, through which the processes exchange their addresses; NULL for a
     * transport with own_addresses. `get` waits until the key is put, and returns owned memory. */
    mg_status (*put)(void *context, const char *key, const void *data, size_t bytes);
    mg_status (*get)(void *context, const char *key, void **data, size_t *bytes);
    void *context;   /* argument of the functions */
    double patience; /* seconds to wait for the other processes */
} mg_transport_start;

typedef struct mg_transport_api { /* returned by the function `mg_transport_plugin` of a plug-in */
    size_t size;                  /* of this struct: plug-ins of another version are refused */
    const char *kind;             /* "openmpi" */
    bool own_addresses;           /* the launcher connects the processes: no store is needed */
    /* Returns when this process can exchange messages with all others. NULL on failure: a message
     * names the library, what it said and what to do. */
    mg_transport *(*start)(const mg_transport_start *how);
    /* "Open MPI 4.1.4" */
    const char *(*version)(const mg_transport *t);
    /* Begin to send or receive. Messages from one process to another with equal tags arrive in the
     * order in which they were sent. `bytes` are equal on both sides and may be 0 or exceed 2^31;
     * `data` must stay until the message is done. */
    mg_status (*send)(mg_transport *t, int to, uint32_t tag, const void *data, size_t bytes,
                      mg_message **m);
    mg_status (*receive)(mg_transport *t, int from, uint32_t tag, void *data, size_t bytes,
                         mg_message **m);
    /* Makes progress with all messages. *done: this one is over, and m is freed, also on failure
     * (MG_COMM, which names the other process). Does not wait. */
    mg_status (*test)(mg_transport *t, mg_message *m, bool *done);
    /* Gives up a message: its memory is not touched any more after the return, and m is freed. What
     * cannot be taken back ends here at the latest: later messages with this tag may be lost, so
     * the world is over. */
    void (*cancel)(mg_transport *t, mg_message *m);
    /* Ends it. `clean`: all processes call it, so it may wait for them; otherwise some are gone,
     * and it must not wait. */
    void (*stop)(mg_transport *t, bool clean);
} mg_transport_api;

#endif
