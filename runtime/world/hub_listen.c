/* The socket at which rank 0 waits for the others. */
#define _GNU_SOURCE
#include "core/limits.h"
#include "world/hub.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BACKLOG = 4096 };

/* Listens at the port of all interfaces, of IPv6 and IPv4 at once if `family` is AF_INET6. -1 with
 * errno. */
static int listen_at(int family, int port) {
    const int yes = 1, no = 0;
    const struct sockaddr_in6 six = {
        .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port), .sin6_addr = in6addr_any};
    const struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    const bool bound = family == AF_INET6
                           ? setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no) == 0 &&
                                 bind(fd, (const struct sockaddr *)&six, sizeof six) == 0
                           : bind(fd, (const struct sockaddr *)&four, sizeof four) == 0;
    if (bound && listen(fd, BACKLOG) == 0) return fd;
    const int error = errno;
    close(fd);
    errno = error;
    return -1;
}

static int port_of(int fd) {
    struct sockaddr_in6 address; /* the port is at the same place in a sockaddr_in */
    socklen_t size = sizeof address;
    if (getsockname(fd, (struct sockaddr *)&address, &size) != 0) return 0;
    return ntohs(address.sin6_port);
}

mg_status mg_hub_listen(int *port, int *listener) {
    if (*port < 0 || *port > 65535)
        return mg_fail(MG_USAGE, "port %d: a port is a number from 1 to 65535", *port);
    *listener = listen_at(AF_INET6, *port);
    if (*listener < 0 && errno != EADDRINUSE && errno != EACCES)
        *listener = listen_at(AF_INET, *port); /* a host without IPv6 */
    if (*listener < 0 && errno == EADDRINUSE)
        return mg_fail(
            MG_COMM,
            "port %d is in use on this host: an earlier run may still be there (`ss -tlnp` "
            "names the process); end it, or choose another port",
            *port);
    if (*listener < 0)
        return mg_fail(MG_COMM, "cannot listen at port %d: %s", *port, mg_reason(errno));
    *port = port_of(*listener);
    return MG_OK;
}
