/* The way to rank 0: tries its addresses, one after the other, again and again until patience is
 * over, because rank 0 may start later, and so may the name service that knows it. What went wrong
 * at the last attempt at each address is the reason in the message. */
#define _GNU_SOURCE
#include "core/printable.h"
#include "core/threads.h"
#include "world/hub_state.h"
#include <errno.h>
#include <math.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Seconds: between looks for Ctrl-C; between passes over the addresses; for an address at the first
 * pass, which is doubled at each further one up to the most. */
static const double LOOK = 0.1, PAUSE = 0.2, FIRST_TRY = 1, LONGEST_TRY = 8;

typedef struct attempt {
    mg_hub *h;
    double until;     /* of this try */
    char why[768];    /* what went wrong at each address of this pass */
    bool interrupted; /* ends all */
    bool refused;     /* rank 0 does not want this process: `why` */
} attempt;

/* Adds to the reasons of this pass. */
static void note(attempt *a, const char *at, const char *why) {
    const size_t used = strlen(a->why);
    snprintf(a->why + used, sizeof a->why - used, "%s%s%s%s", used ? "; " : "", at, *at ? ": " : "",
             why);
}

/* Waits for the events; false when the time of this try is over. */
static bool wait_for(attempt *a, int fd, short events) {
    struct pollfd one = {fd, events, 0};
    for (;;) {
        if (mg_interrupt_pending() && mg_interrupt_take()) a->interrupted = true;
        const double left = a->until - mg_seconds();
        if (a->interrupted || left <= 0) return false;
        if (poll(&one, 1, (int)ceil(fmin(left, LOOK) * 1000)) > 0) return true;
    }
}

/* A connected socket, or -1 after a note. */
static int open_socket(attempt *a, const struct addrinfo *to, const char *name) {
    int error = 0;
    socklen_t size = sizeof error;
    const int fd = socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && connect(fd, to->ai_addr, to->ai_addrlen) == 0) return fd;
    if (fd < 0 || errno != EINPROGRESS)
        error = errno;
    else if (!wait_for(a, fd, POLLOUT))
        error = ETIMEDOUT;
    else if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && !error)
        return fd;
    if (fd >= 0) close(fd);
    note(a, name, strerror(error));
    return -1;
}

static void say_hello(mg_hub *h, mg_link *link) {
    mg_hello hello;
    memcpy(hello.token, h->token, sizeof hello.token);
    mg_record_put_number(hello.size, (uint64_t)h->size, sizeof hello.size);
    mg_record_put_number(hello.pid, (uint64_t)h->members[h->rank].pid, sizeof hello.pid);
    mg_record_put_number(hello.process, h->process, sizeof hello.process);
    mg_link_send(link,
                 &(mg_record){.kind = MG_RECORD_HELLO,
                              .number = (uint32_t)h->rank,
                              .value = h->version,
                              .text = h->members[h->rank].host,
                              .data = &hello,
                              .bytes = sizeof hello},
                 false);
}

/* Whether the first record is that of a rank 0 which lets us in. */
static bool is_accepted(attempt *a, mg_link *link, const mg_record *r, const char *name) {
    char why[512];
    if (r->kind == MG_RECORD_ACCEPTED) {
        mg_hub_member *zero = &a->h->members[0];
        mg_printable(r->text, strlen(r->text), true, zero->host, sizeof zero->host);
        zero->pid = (int)r->number;
        link->rank = 0;
        mg_link_set_state(link, MG_LINK_JOINED, mg_seconds());
        return true;
    }
    a->refused = r->kind == MG_RECORD_REFUSED;
    snprintf(why, sizeof why, "%.*s", (int)r->bytes, (const char *)r->data);
    note(a, name, a->refused ? why : "another program listens there");
    return false;
}

/* No record has come as an answer: why. */
static void note_no_answer(attempt *a, mg_link_event event, const char *name) {
    a->refused = event == MG_LINK_ENDED && mg_error_code() == MG_UNSUPPORTED;
    if (event == MG_LINK_NOTHING)
        note(a, name, "what listens there does not answer");
    else if (a->refused)
        note(a, name, "another version of mgpulua runs there");
    else if (mg_error_code() == MG_OK)
        note(a, name, "the connection was closed without an answer");
    else
        note(a, name, "another program listens there");
}

/* Introduces this process over a new connection. NULL after a note. */
static mg_link *introduce(attempt *a, int fd, const char *name) {
    mg_record r;
    mg_link_event event = MG_LINK_NOTHING;
    mg_link *link = mg_link_new(fd, mg_seconds());
    if (!link) {
        note(a, name, mg_error_message());
        return NULL;
    }
    link->reader.trusted = true;
    say_hello(a->h, link);
    a->until = fmax(a->until, mg_seconds() + FIRST_TRY);
    while (event == MG_LINK_NOTHING && wait_for(a, fd, POLLIN))
        event = mg_link_receive(link, &r, mg_seconds());
    const bool accepted = event == MG_LINK_RECORD && is_accepted(a, link, &r, name);
    if (event != MG_LINK_RECORD) note_no_answer(a, event, name);
    mg_record_next(&link->reader);
    if (accepted) return link;
    mg_link_free(link);
    return NULL;
}

static mg_link *try_address(attempt *a, const char *name, double seconds, double end) {
    char port[16];
    struct addrinfo *list = NULL;
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    mg_link *link = NULL;
    snprintf(port, sizeof port, "%d", a->h->port);
    /* "localhost" is known everywhere, also where no file says so, as in small containers. */
    const int failed =
        getaddrinfo(strcmp(name, "localhost") == 0 ? NULL : name, port, &hints, &list);
    if (failed) {
        char why[512];
        snprintf(why, sizeof why, "the host name \"%s\" does not resolve (%s)", name,
                 gai_strerror(failed));
        note(a, "", why);
        return NULL;
    }
    for (const struct addrinfo *to = list; to && !link && !a->interrupted; to = to->ai_next) {
        a->until = fmin(mg_seconds() + seconds, end);
        const int fd = open_socket(a, to, name);
        if (fd >= 0) link = introduce(a, fd, name);
    }
    freeaddrinfo(list);
    return link;
}

/* One pass over the addresses, which commas separate. */
static mg_link *try_all(attempt *a, double seconds, double end) {
    char name[MG_HOST_NAME];
    mg_link *link = NULL;
    a->why[0] = '\0';
    for (const char *at = a->h->address; at && !link && !a->interrupted;) {
        const char *comma = strchr(at, ',');
        const size_t n = comma ? (size_t)(comma - at) : strlen(at);
        snprintf(name, sizeof name, "%.*s", (int)n, at);
        link = try_address(a, name, seconds, end);
        at = comma ? comma + 1 : NULL;
    }
    return link;
}

static void fail(const attempt *a) {
    const mg_hub *h = a->h;
    if (a->interrupted)
        mg_fail(MG_INTERRUPTED, "interrupted");
    else if (a->refused)
        mg_fail(MG_COMM, "rank 0 did not let rank %d in (port %d of %s)", h->rank, h->port, a->why);
    else
        mg_fail(MG_COMM,
                "rank %d cannot reach rank 0 at port %d of %s within %g seconds: %s. Is rank 0 "
                "started, and can this host reach it? MGPU_INTERFACE on its host names the network "
                "to use",
                h->rank, h->port, h->address, h->patience, a->why);
}

mg_link *mg_hub_connect(mg_hub *h) {
    const double end = mg_seconds() + h->patience;
    attempt a = {.h = h};
    char before[sizeof a.why] = "";
    double seconds = FIRST_TRY;
    for (;;) {
        mg_link *link = try_all(&a, seconds, end);
        if (link) return link;
        const bool is_last = mg_seconds() >= end;
        /* The last pass was cut short: its time-outs are not the reason. */
        if (is_last && before[0] && !a.refused) memcpy(a.why, before, sizeof before);
        if (a.interrupted || a.refused || is_last) break;
        memcpy(before, a.why, sizeof before);
        seconds = fmin(2 * seconds, LONGEST_TRY);
        a.until = fmin(mg_seconds() + PAUSE, end);
        wait_for(&a, -1, 0);
    }
    fail(&a);
    return NULL;
}
