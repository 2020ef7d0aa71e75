/* Finds the plug-in that serves, and hands the calls on to it. */
#include "server/server.h"
#include "core/plugin.h"
#include <stdatomic.h>

static _Atomic(const mg_server_api *) found; /* NULL until it was found */

static const mg_server_api *find_api(void) {
    const char *why = NULL;
    const mg_server_api *api = atomic_load(&found);
    if (!api) api = mg_plugin_symbol("httpd", MG_SERVER_SYMBOL, &why);
    atomic_store(&found, api);
    if (!api)
        mg_fail(MG_UNSUPPORTED,
                "cannot serve HTTP: mgpu-httpd.so: %s; install libmicrohttpd-dev and build again",
                why);
    return api;
}

mg_server *mg_server_open(const mg_server_options *o) {
    const mg_server_api *api = find_api();
    return api ? api->open(o) : NULL;
}

/* Whoever has a server or a request has found the plug-in. */
static const mg_server_api *get_api(void) {
    return atomic_load(&found);
}

int mg_server_port(const mg_server *s) {
    return get_api()->port(s);
}

const char *mg_server_address(const mg_server *s) {
    return get_api()->address(s);
}

int mg_server_clients(mg_server *s) {
    return get_api()->clients(s);
}

void mg_server_stop(mg_server *s) {
    get_api()->stop(s);
}

void mg_server_close(mg_server *s, double seconds) {
    if (s) get_api()->close(s, seconds);
}

mg_status mg_server_document(mg_server *s, const char *path, const char *type, const void *bytes,
                             size_t n) {
    return get_api()->document(s, path, type, bytes, n);
}

mg_status mg_server_append(mg_server *s, const char *path, const void *bytes, size_t n,
                           size_t most) {
    return get_api()->append(s, path, bytes, n, most);
}

mg_status mg_server_take(mg_server *s, double seconds, mg_request **r) {
    return get_api()->take(s, seconds, r);
}

const mg_request_parts *mg_request_get_parts(const mg_request *r) {
    return get_api()->parts(r);
}

mg_status mg_request_reply(mg_request *r, const mg_answer *a) {
    return get_api()->reply(r, a);
}
