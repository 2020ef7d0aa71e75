/* mgpu-httpd.so: an HTTP server on libmicrohttpd. See server.h for what it does, httpd.h for its
 * parts. */
#include "server/httpd/httpd.h"
#include <math.h>
#include <string.h>
#include <unistd.h>

enum { BODY = 64 << 20, HEADER = 32 << 10, CONNECTIONS = 2048, IDLE = 60 };

/* ---- memory ---- */

static void free_server(mg_server *s) {
    httpd_free_documents(s);
    httpd_free_logs(s);
    for (int i = 0; i < s->n_names; i++) mg_free(s->names[i]);
    mg_free(s->names);
    mg_free(s->token);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->arrived);
    pthread_cond_destroy(&s->drained);
    pthread_cond_destroy(&s->tick);
    mg_free(s);
}

/* The host and the names, which Host may have. */
static mg_status copy_names(mg_server *s, const mg_server_options *o) {
    s->names = mg_alloc_zero((size_t)(o->n_names + 1) * sizeof *s->names);
    if (!s->names) return MG_OOM;
    for (int i = -1; i < o->n_names; i++) {
        const char *name = i < 0 ? o->host : o->names[i];
        if (!name) continue;
        s->names[s->n_names] = mg_strdup(name);
        if (!s->names[s->n_names]) return MG_OOM;
        s->n_names++;
    }
    return MG_OK;
}

static mg_status copy_options(mg_server *s, const mg_server_options *o) {
    if (o->token && !*o->token) return mg_fail(MG_USAGE, "server: the token is empty");
    s->process = getpid();
    s->has_requests = o->has_requests;
    s->body_bytes = o->body_bytes ? o->body_bytes : BODY;
    s->idle_seconds = o->idle_seconds ? o->idle_seconds : IDLE;
    MG_TRY(copy_names(s, o));
    s->token = o->token ? mg_strdup(o->token) : NULL;
    return o->token && !s->token ? MG_OOM : MG_OK;
}

/* NULL: MG_USAGE, MG_OOM. */
static mg_server *new_server(const mg_server_options *o) {
    mg_server *s = mg_alloc_zero(sizeof *s);
    if (!s) return NULL;
    pthread_mutex_init(&s->lock, NULL);
    mg_cond_init(&s->arrived);
    mg_cond_init(&s->drained);
    mg_cond_init(&s->tick);
    if (copy_options(s, o) == MG_OK) return s;
    free_server(s);
    return NULL;
}

/* ---- opening ---- */

/* Starts libmicrohttpd on the listening socket, which is then its own. NULL: it did not start. */
static struct MHD_Daemon *start_daemon(mg_server *s, const mg_server_options *o, int fd) {
    const unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME |
                           (strchr(s->address, ':') ? MHD_USE_IPv6 : 0);
    const size_t header = o->header_bytes ? o->header_bytes : HEADER;
    const int connections = httpd_raise_limit(o->connections ? o->connections : CONNECTIONS);
    mg_signals_kept signals; /* its thread blocks them */
    mg_signals_keep(&signals);
    struct MHD_Daemon *d = MHD_start_daemon(
        flags, 0, NULL, NULL, httpd_on_request, s, MHD_OPTION_LISTEN_SOCKET, fd,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)connections, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)s->idle_seconds, MHD_OPTION_CONNECTION_MEMORY_LIMIT, header,
        MHD_OPTION_URI_LOG_CALLBACK, httpd_on_line, s, MHD_OPTION_NOTIFY_COMPLETED, httpd_on_end, s,
        MHD_OPTION_NOTIFY_CONNECTION, httpd_on_client, s, MHD_OPTION_END);
    mg_signals_restore(&signals);
    return d;
}

static mg_server *open_server(const mg_server_options *o) {
    mg_server *s = new_server(o);
    if (!s) return NULL;
    const int fd = httpd_listen(s, o->host ? o->host : "127.0.0.1", o->port);
    if (fd < 0) {
        free_server(s);
        return NULL;
    }
    if (!mg_thread_start(&s->clock, httpd_clock, s)) {
        mg_fail(MG_OOM, "server: cannot start a thread");
        close(fd);
        free_server(s);
        return NULL;
    }
    s->daemon = start_daemon(s, o, fd);
    if (s->daemon) return s;
    mg_fail(MG_OOM,
            "server: libmicrohttpd does not start: memory, threads or open files are short");
    close(fd);
    pthread_mutex_lock(&s->lock);
    s->closing = true;
    pthread_cond_signal(&s->tick);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->clock, NULL);
    free_server(s);
    return NULL;
}

static int get_port(const mg_server *s) {
    return s->port;
}

static const char *get_address(const mg_server *s) {
    return s->address;
}

static int get_clients(mg_server *s) {
    pthread_mutex_lock(&s->lock);
    const int n = s->n_clients;
    pthread_mutex_unlock(&s->lock);
    return n;
}

/* ---- closing ---- */

static void stop_server(mg_server *s) {
    pthread_mutex_lock(&s->lock);
    const bool was_stopping = s->stopping;
    s->stopping = true;
    pthread_mutex_unlock(&s->lock);
    if (was_stopping) return;
    const MHD_socket fd = MHD_quiesce_daemon(s->daemon);
    if (fd != MHD_INVALID_SOCKET) close(fd);
}

/* Waits until all answers were sent, or the time is over. */
static void drain(mg_server *s, double seconds) {
    const struct timespec until = mg_time_after(seconds > 0 ? seconds : 0);
    pthread_mutex_lock(&s->lock);
    int failed = 0;
    while (s->busy && !failed) failed = pthread_cond_timedwait(&s->drained, &s->lock, &until);
    pthread_mutex_unlock(&s->lock);
}

static void close_server(mg_server *s, double seconds) {
    if (getpid() != s->process) return; /* the threads are in the other process */
    stop_server(s);
    pthread_mutex_lock(&s->lock);
    s->closing = true; /* from here on, nothing is suspended */
    pthread_cond_signal(&s->tick);
    exchange *waiters = httpd_unlink_waiters(s, NULL, INFINITY, 0);
    pthread_mutex_unlock(&s->lock);
    httpd_resume(waiters);
    httpd_refuse_requests(s);
    drain(s, seconds);
    pthread_join(s->clock, NULL);
    MHD_stop_daemon(s->daemon);
    free_server(s);
}

/* ---- the table ---- */

extern const mg_server_api mg_server_plugin;
const mg_server_api mg_server_plugin = {
    .open = open_server,
    .port = get_port,
    .address = get_address,
    .clients = get_clients,
    .stop = stop_server,
    .close = close_server,
    .document = httpd_document,
    .append = httpd_append,
    .take = httpd_take,
    .parts = httpd_parts,
    .reply = httpd_reply,
};
