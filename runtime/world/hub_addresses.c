/* The addresses by which other hosts may reach this one. */
#define _GNU_SOURCE
#include "core/limits.h"
#include "core/string_buffer.h"
#include "core/alloc.h"
#include "world/hub.h"
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The order in which addresses are told. */
enum { REAL_V4, REAL_V6, VIRTUAL_V4, VIRTUAL_V6, LOOPBACK, CLASSES, NOT_USED };

typedef struct network { /* of MGPU_INTERFACE: "10.9.0.0/24" */
    int family, bits;
    uint8_t prefix[16];
} network;

/* Bridges and tunnels of containers and virtual machines of this host: others do not reach them. */
static bool is_virtual(const char *card) {
    static const char *const names[] = {"docker",  "br-",  "virbr", "veth",   "cni",
                                        "flannel", "cali", "tun",   "podman", "lxc"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strncmp(card, names[i], strlen(names[i])) == 0) return true;
    return false;
}

static const uint8_t *bytes_of(const struct sockaddr *a) {
    return a->sa_family == AF_INET ? (const uint8_t *)&((const struct sockaddr_in *)a)->sin_addr
                                   : (const uint8_t *)&((const struct sockaddr_in6 *)a)->sin6_addr;
}

static bool is_up(const struct ifaddrs *i) {
    return i->ifa_addr && (i->ifa_flags & IFF_UP) &&
           (i->ifa_addr->sa_family == AF_INET || i->ifa_addr->sa_family == AF_INET6);
}

/* Link-local IPv6 addresses are of no use without the name of the card on the other host. */
static int class_of(const struct ifaddrs *i) {
    const bool six = i->ifa_addr->sa_family == AF_INET6;
    const uint8_t *bytes = bytes_of(i->ifa_addr);
    if (i->ifa_flags & IFF_LOOPBACK) return six ? NOT_USED : LOOPBACK;
    if (six && bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80) return NOT_USED;
    return (is_virtual(i->ifa_name) ? VIRTUAL_V4 : REAL_V4) + six;
}

/* False: not of the form ADDRESS/BITS. */
static bool read_network(const char *text, network *to) {
    char address[64], *rest;
    const char *slash = strchr(text, '/');
    if (!slash) return false;
    snprintf(address, sizeof address, "%.*s", (int)(slash - text), text);
    to->family = strchr(address, ':') ? AF_INET6 : AF_INET;
    to->bits = (int)strtol(slash + 1, &rest, 10);
    return rest != slash + 1 && !*rest && to->bits >= 0 &&
           to->bits <= (to->family == AF_INET ? 32 : 128) &&
           inet_pton(to->family, address, to->prefix) == 1;
}

static bool is_in(const network *n, const struct sockaddr *a) {
    const uint8_t *bytes = bytes_of(a);
    if (a->sa_family != n->family) return false;
    for (int bit = 0; bit < n->bits; bit++)
        if ((bytes[bit / 8] ^ n->prefix[bit / 8]) >> (7 - bit % 8) & 1) return false;
    return true;
}

/* Whether MGPU_INTERFACE allows it. */
static bool is_wanted(const struct ifaddrs *i, const char *only) {
    network wanted;
    if (!only) return true;
    if (read_network(only, &wanted)) return is_in(&wanted, i->ifa_addr);
    return strcmp(i->ifa_name, only) == 0;
}

static const char *text_of(const struct sockaddr *a, char text[INET6_ADDRSTRLEN]) {
    return inet_ntop(a->sa_family, bytes_of(a), text, INET6_ADDRSTRLEN);
}

/* The addresses of one class, behind what is in `to`; one that does not fit is left out. */
static void add_class(const struct ifaddrs *list, int class, const char *only, char *to,
                      size_t room) {
    char text[INET6_ADDRSTRLEN];
    for (const struct ifaddrs *i = list; i; i = i->ifa_next) {
        const size_t used = strlen(to);
        if (!is_up(i) || class_of(i) != class || !is_wanted(i, only)) continue;
        if (!text_of(i->ifa_addr, text) || used + strlen(text) + 2 > room) continue;
        snprintf(to + used, room - used, "%s%s", used ? "," : "", text);
    }
}

/* MGPU_INTERFACE names none of the addresses: the message lists them. */
static mg_status fail_unknown(const struct ifaddrs *list, const char *only) {
    char text[INET6_ADDRSTRLEN];
    mg_string_buffer all = {0};
    for (const struct ifaddrs *i = list; i; i = i->ifa_next)
        if (is_up(i) && class_of(i) != NOT_USED && text_of(i->ifa_addr, text))
            mg_string_buffer_add(&all, "%s%s (%s)", all.n ? ", " : "", i->ifa_name, text);
    MG_TRY(mg_string_buffer_status(&all));
    const mg_status status = mg_fail(
        MG_USAGE, "MGPU_INTERFACE=%s: this host has no such network card or network; it has %s",
        only, all.s ? all.s : "none");
    mg_free(all.s);
    return status;
}

/* MGPU_INTERFACE, or NULL. */
static const char *named_interface(void) {
    const char *only = getenv("MGPU_INTERFACE");
    return only && *only ? only : NULL;
}

/* For freeifaddrs. */
static mg_status list_cards(struct ifaddrs **list) {
    if (getifaddrs(list) == 0) return MG_OK;
    return mg_fail(MG_COMM, "cannot list the network cards of this host: %s", mg_reason(errno));
}

mg_status mg_hub_addresses(char *to, size_t room) {
    struct ifaddrs *list;
    const char *only = named_interface();
    MG_TRY(list_cards(&list));
    to[0] = '\0';
    for (int class = 0; class < CLASSES; class ++) add_class(list, class, only, to, room);
    const mg_status status = !to[0] && only ? fail_unknown(list, only) : MG_OK;
    freeifaddrs(list);
    if (status == MG_OK && !to[0]) snprintf(to, room, "127.0.0.1");
    return status;
}

mg_status mg_hub_card(char *to, size_t room) {
    struct ifaddrs *list;
    const char *only = named_interface();
    to[0] = '\0';
    if (!only) return MG_OK;
    MG_TRY(list_cards(&list));
    for (const struct ifaddrs *i = list; i && !to[0]; i = i->ifa_next)
        if (is_up(i) && is_wanted(i, only)) snprintf(to, room, "%s", i->ifa_name);
    const mg_status status = to[0] ? MG_OK : fail_unknown(list, only);
    freeifaddrs(list);
    return status;
}
