/* The listening socket, with errors that name host and port. */
#define _GNU_SOURCE
#include "core/limits.h"
#include "server/httpd/httpd.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BACKLOG = 4096, OWN_FILES = 256 }; /* files that the rest of the process may have open */

static bool is_loopback(const struct sockaddr *a) {
    if (a->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr) >> 24 == 127;
    return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr);
}

/* "localhost" is 127.0.0.1, which ssh and browsers try in any case. */
static mg_status look_up(const char *host, struct addrinfo **found) {
    const struct addrinfo hints = {
        .ai_family = strcmp(host, "localhost") == 0 ? AF_INET : AF_UNSPEC,
        .ai_socktype = SOCK_STREAM,
        .ai_flags = AI_PASSIVE,
    };
    const int problem = getaddrinfo(host, NULL, &hints, found);
    if (!problem) return MG_OK;
    return mg_fail(MG_USAGE,
                   "server: host \"%s\": %s: give an address of this machine, such as 127.0.0.1",
                   host, problem == EAI_SYSTEM ? mg_reason(errno) : gai_strerror(problem));
}

static mg_status fail_to_listen(const char *host, int port, int error) {
    switch (error) {
    case EADDRINUSE:
        return mg_fail(MG_IO,
                       "server: port %d of %s is in use (`ss -tlnp` names the process): end that, "
                       "or choose another port; 0 is any free one",
                       port, host);
    case EACCES:
        return mg_fail(MG_IO,
                       "server: port %d of %s: %s: choose a port of at least 1024; 0 is any free "
                       "one",
                       port, host, mg_reason(error));
    case EADDRNOTAVAIL:
        return mg_fail(MG_USAGE,
                       "server: host \"%s\" is not an address of this machine: give 127.0.0.1, or "
                       "one that `ip address` lists",
                       host);
    default:
        return mg_fail(MG_IO, "server: cannot listen at port %d of %s: %s", port, host,
                       mg_reason(error));
    }
}

/* Sets the port in the address, and listens there. -1 with errno. */
static int listen_at(struct sockaddr *address, socklen_t size, int port) {
    const int yes = 1;
    const int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1;
    /* the port is at the same place in a sockaddr_in6 */
    ((struct sockaddr_in *)(void *)address)->sin_port = htons((uint16_t)port);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(fd, address, size) == 0 && listen(fd, BACKLOG) == 0) return fd;
    const int error = errno;
    close(fd);
    errno = error;
    return -1;
}

/* Notes where the socket listens. */
static void note_address(mg_server *s, int fd) {
    struct sockaddr_in6 room;
    socklen_t size = sizeof room;
    struct sockaddr *a = (struct sockaddr *)&room;
    if (getsockname(fd, a, &size) != 0) return;
    s->port = ntohs(room.sin6_port);
    s->is_loopback = is_loopback(a);
    const void *address = a->sa_family == AF_INET6
                              ? (const void *)&room.sin6_addr
                              : &((const struct sockaddr_in *)(const void *)a)->sin_addr;
    inet_ntop(a->sa_family, address, s->address, sizeof s->address);
}

int httpd_listen(mg_server *s, const char *host, int port) {
    struct addrinfo *found;
    if (port < 0 || port > 65535) {
        mg_fail(MG_USAGE, "server: port %d: a port is a number from 1 to 65535, or 0: a free one",
                port);
        return -1;
    }
    if (look_up(host, &found) != MG_OK) return -1;
    const int fd = listen_at(found->ai_addr, found->ai_addrlen, port);
    const int error = errno;
    freeaddrinfo(found);
    if (fd < 0)
        fail_to_listen(host, port, error);
    else
        note_address(s, fd);
    return fd;
}

int httpd_raise_limit(int connections) {
    struct rlimit files;
    const rlim_t wanted = (rlim_t)connections + OWN_FILES;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur >= wanted) return connections;
    files.rlim_cur = files.rlim_max < wanted ? files.rlim_max : wanted;
    setrlimit(RLIMIT_NOFILE, &files);
    if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur >= wanted) return connections;
    const int possible = (int)files.rlim_cur - OWN_FILES;
    return possible > (int)files.rlim_cur / 2 ? possible : (int)files.rlim_cur / 2;
}
