/* A free port for the hub: see meeting.h. */
#include "program/launcher/meeting.h"
#include "core/limits.h"
#include "world/hub.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

/* Binds a socket of this family to a free port; returns that, or 0. */
static int bind_any(mg_meeting *m, int family) {
    const int yes = 1;
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } a = {.v6.sin6_family = (sa_family_t)family}; /* the rest zeros: any address and port */
    socklen_t n = family == AF_INET6 ? sizeof a.v6 : sizeof a.v4;
    m->reserved = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (m->reserved < 0) return 0;
    setsockopt(m->reserved, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(m->reserved, &a.any, n) == 0 && getsockname(m->reserved, &a.any, &n) == 0)
        return ntohs(family == AF_INET6 ? a.v6.sin6_port : a.v4.sin_port);
    close(m->reserved);
    m->reserved = -1;
    return 0;
}

/* The socket does not listen: the system gives its port to nobody else, and the hub, which sets
 * SO_REUSEADDR too, can listen on it. Not all hosts have IPv6. */
static mg_status reserve_port(mg_meeting *m, int *port) {
    *port = bind_any(m, AF_INET6);
    if (!*port) *port = bind_any(m, AF_INET);
    if (*port) return MG_OK;
    return mg_fail(MG_IO, "--np: cannot find a free port: %s", mg_reason(errno));
}

mg_status mg_meeting_open(mg_meeting *m, bool others) {
    char addresses[MG_HOST_NAME] = "127.0.0.1";
    int port;
    MG_TRY(reserve_port(m, &port));
    if (others) MG_TRY(mg_hub_addresses(addresses, sizeof addresses));
    snprintf(m->hub, sizeof m->hub, "%s:%d", addresses, port);
    return MG_OK;
}

void mg_meeting_close(mg_meeting *m) {
    if (m->reserved >= 0) close(m->reserved);
    m->reserved = -1;
}
