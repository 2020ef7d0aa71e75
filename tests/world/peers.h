/* What the programs of this folder share: each is started in several processes, which exchange
 * messages through a transport.
 *
 * A process is told its place by the launcher's variables (Open MPI's, or PMI's of Hydra), or by
 * PEER_RANK and PEER_SIZE. For a transport that needs a store, PEER_STORE is a folder: a key is a
 * file. PEER_PATIENCE is the time to wait for the others, in seconds. */
#ifndef MG_TESTS_WORLD_PEERS_H
#define MG_TESTS_WORLD_PEERS_H

#include "core/alloc.h"
#include "core/plugin.h"
#include "core/threads.h"
#include "world/transport.h"
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct peers {
    int rank, size;
    const char *store;
    double patience;
    const mg_transport_api *api;
    mg_transport *transport;
} peers;

/* Ends the program with the last error. */
static inline void peers_must(const peers *p, mg_status status) {
    if (status == MG_OK) return;
    fprintf(stderr, "rank %d: %s\n", p->rank, mg_error_message());
    exit(1);
}

static inline int peers_number(const char *const *variables) {
    for (; *variables; variables++)
        if (getenv(*variables)) return atoi(getenv(*variables));
    return -1;
}

/* ---- the store ---- */

static inline mg_status peers_put(void *context, const char *key, const void *data, size_t bytes) {
    const peers *p = context;
    char path[600], part[sizeof path + 5];
    snprintf(path, sizeof path, "%s/%s", p->store, key);
    snprintf(part, sizeof part, "%s.part", path);
    FILE *file = fopen(part, "wb");
    const int written = file && fwrite(data, 1, bytes, file) == bytes;
    if (!file || fclose(file) != 0 || !written || rename(part, path) != 0)
        return mg_fail(MG_IO, "cannot write %s", path);
    return MG_OK;
}

static inline mg_status peers_get(void *context, const char *key, void **data, size_t *bytes) {
    const peers *p = context;
    const double until = mg_seconds() + p->patience;
    char path[600];
    FILE *file;
    snprintf(path, sizeof path, "%s/%s", p->store, key);
    while (!(file = fopen(path, "rb"))) {
        if (mg_seconds() > until) return mg_fail(MG_COMM, "nobody put %s", key);
        usleep(1000);
    }
    fseek(file, 0, SEEK_END);
    *bytes = (size_t)ftell(file);
    rewind(file);
    *data = mg_alloc(*bytes);
    const int complete = *data && fread(*data, 1, *bytes, file) == *bytes;
    fclose(file);
    return complete ? MG_OK : mg_fail(MG_IO, "cannot read %s", path);
}

/* ---- start, messages ---- */

/* Loads the plug-in and starts it. */
static inline peers peers_start(const char *kind) {
    static const char *const ranks[] = {"PEER_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", NULL};
    static const char *const sizes[] = {"PEER_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", NULL};
    peers p = {.rank = peers_number(ranks), .size = peers_number(sizes)};
    p.store = getenv("PEER_STORE");
    p.patience = getenv("PEER_PATIENCE") ? atof(getenv("PEER_PATIENCE")) : 60;
    const char *problem = "";
    const mg_transport_api *(*plugin)(void);
    *(void **)&plugin = mg_plugin_symbol(kind, "mg_transport_plugin", &problem);
    if (!plugin) {
        fprintf(stderr, "rank %d: %s\n", p.rank, problem);
        exit(1);
    }
    p.api = plugin();
    const mg_transport_start how = {p.rank, p.size, peers_put, peers_get, &p, p.patience};
    p.transport = p.api->start(&how);
    peers_must(&p, p.transport ? MG_OK : mg_error_code());
    return p;
}

static inline mg_message *peers_send(const peers *p, int to, uint32_t tag, const void *data,
                                     size_t bytes) {
    mg_message *m = NULL;
    peers_must(p, p->api->send(p->transport, to, tag, data, bytes, &m));
    return m;
}

static inline mg_message *peers_receive(const peers *p, int from, uint32_t tag, void *data,
                                        size_t bytes) {
    mg_message *m = NULL;
    peers_must(p, p->api->receive(p->transport, from, tag, data, bytes, &m));
    return m;
}

/* Leaves the core to others after a while: there may be fewer cores than processes. */
static inline void peers_wait(const peers *p, mg_message *m) {
    enum { SPINS = 200 };
    bool done = false;
    for (int i = 0; !done; i++) {
        peers_must(p, p->api->test(p->transport, m, &done));
        if (!done && i >= SPINS) sched_yield();
    }
}

/* Returns when all have called it. */
static inline void peers_barrier(const peers *p, uint32_t tag) {
    for (int k = 1; k < p->size; k *= 2) {
        mg_message *sent = peers_send(p, (p->rank + k) % p->size, tag, NULL, 0);
        peers_wait(p, peers_receive(p, (p->rank - k + p->size) % p->size, tag, NULL, 0));
        peers_wait(p, sent);
    }
}

#endif
