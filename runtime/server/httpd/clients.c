/* The list of connections, and the thread that ends what takes too long: waits for logs, and
 * connections of clients that send a request too slowly. libmicrohttpd's own time limit starts
 * again with every byte. */
#include "server/httpd/httpd.h"
#include <math.h>
#include <sys/socket.h>

static void link_client(mg_server *s, client *c) {
    pthread_mutex_lock(&s->lock);
    c->next = s->clients;
    if (c->next) c->next->previous = c;
    s->clients = c;
    s->n_clients++;
    pthread_mutex_unlock(&s->lock);
}

static void unlink_client(mg_server *s, client *c) {
    pthread_mutex_lock(&s->lock);
    if (c->next) c->next->previous = c->previous;
    if (c->previous)
        c->previous->next = c->next;
    else
        s->clients = c->next;
    s->n_clients--;
    pthread_mutex_unlock(&s->lock);
}

/* Called when a connection begins, and before its socket is closed. Without memory it has no limit
 * but libmicrohttpd's. */
void httpd_on_client(void *server, struct MHD_Connection *connection, void **context,
                     enum MHD_ConnectionNotificationCode how) {
    mg_server *s = server;
    if (how == MHD_CONNECTION_NOTIFY_CLOSED) {
        if (*context) unlink_client(s, *context);
        mg_free(*context);
        *context = NULL;
        return;
    }
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    client *c = info ? mg_alloc_zero(sizeof *c) : NULL;
    *context = c;
    if (!c) return;
    c->fd = info->connect_fd;
    c->deadline = mg_seconds() + 2 * s->idle_seconds;
    link_client(s, c);
}

client *httpd_client_of(struct MHD_Connection *connection) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

/* Ends the connections of clients that are too slow: libmicrohttpd then closes them. Returns when
 * the next one may be. */
static double drop_slow_clients(const mg_server *s, double now) {
    double next = INFINITY;
    for (client *c = s->clients; c; c = c->next) {
        if (c->deadline <= now) {
            shutdown(c->fd, SHUT_RDWR);
            c->deadline = INFINITY;
        }
        if (c->deadline < next) next = c->deadline;
    }
    return next;
}

static double next_waiter(const mg_server *s) {
    double next = INFINITY;
    for (const exchange *e = s->waiters; e; e = e->next)
        if (e->deadline < next) next = e->deadline;
    return next;
}

/* It looks at least as often as clients may be idle, so nobody has to tell it of new ones. */
void *httpd_clock(void *server) {
    mg_server *s = server;
    pthread_mutex_lock(&s->lock);
    while (!s->closing) {
        const double now = mg_seconds();
        const double slow = drop_slow_clients(s, now);
        exchange *ready = httpd_unlink_waiters(s, NULL, now, 0);
        if (ready) {
            pthread_mutex_unlock(&s->lock);
            httpd_resume(ready);
            pthread_mutex_lock(&s->lock);
            continue;
        }
        const double next = fmin(fmin(slow, next_waiter(s)), now + s->idle_seconds);
        const struct timespec until = mg_time_after(fmax(next - now, 0));
        pthread_cond_timedwait(&s->tick, &s->lock, &until);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}
