/* What communicators have in common. */
#include "comm/comm.h"
#include "core/alloc.h"
#include "core/plugin.h"
#include <stdlib.h>

mg_status mg_comm_set_up(mg_comm *c, const mg_comm_api *api, int n) {
    const char *deadline = getenv("MGPU_DEADLINE");
    c->api = api;
    c->n = n;
    c->deadline = deadline && atof(deadline) > 0 ? atof(deadline) : 600;
    c->bytes_moved = mg_alloc_zero((size_t)n * sizeof *c->bytes_moved);
    c->waited = mg_alloc_zero((size_t)n * sizeof *c->waited);
    c->busy = mg_alloc_zero((size_t)n * sizeof *c->busy);
    return c->bytes_moved && c->waited && c->busy ? MG_OK : MG_OOM;
}

void mg_comm_clear(mg_comm *c) {
    mg_free(c->bytes_moved);
    mg_free(c->waited);
    mg_free(c->busy);
}

const mg_comm_kind *mg_comm_find(const char *kind) {
    const char *why = NULL;
    const mg_comm_kind *(*plugin)(void) = NULL;
    *(void **)&plugin = mg_plugin_symbol(kind, "mg_comm_plugin", &why);
    if (plugin) return plugin();
    mg_fail(MG_UNSUPPORTED, "there is no communicator \"%s\": mgpu-%s.so: %s", kind, kind, why);
    return NULL;
}

/* ---- over a local one ---- */

mg_status mg_comm_over_set_up(mg_comm_over *c, const mg_comm_api *api, int n) {
    c->host = mg_comm_local(n);
    if (!c->host) return MG_OOM;
    c->comm = *c->host;
    c->comm.api = api;
    return MG_OK;
}

void mg_comm_over_clear(mg_comm_over *c) {
    if (c->host) c->host->api->free(c->host);
}

static mg_comm *host_of(mg_comm *c) {
    return ((mg_comm_over *)c)->host;
}

mg_status mg_comm_over_barrier(mg_comm *c, int rank) {
    return host_of(c)->api->barrier(host_of(c), rank);
}

void mg_comm_over_abort(mg_comm *c) {
    host_of(c)->api->abort(host_of(c));
}

void mg_comm_over_reset(mg_comm *c) {
    host_of(c)->api->reset(host_of(c));
}

mg_status mg_comm_over_check(mg_comm *c) {
    return host_of(c)->api->check(host_of(c));
}
