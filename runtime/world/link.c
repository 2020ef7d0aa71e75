/* Sending and receiving records over a socket that does not wait. */
#define _GNU_SOURCE
#include "world/link.h"
#include "core/alloc.h"
#include "core/printable.h"
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

struct mg_piece {
    mg_piece *next;
    const uint8_t *data; /* the record's data, behind `bytes`: borrowed, or copied there */
    size_t n, n_data, sent;
    uint8_t bytes[];
};

static void name_peer(mg_link *link) {
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    if (getpeername(link->fd, (struct sockaddr *)&address, &size) != 0 ||
        getnameinfo((struct sockaddr *)&address, size, link->peer, sizeof link->peer, NULL, 0,
                    NI_NUMERICHOST) != 0)
        snprintf(link->peer, sizeof link->peer, "an unknown address");
    static const char mapped[] = "::ffff:"; /* an IPv4 address, at a socket for both */
    if (strncmp(link->peer, mapped, strlen(mapped)) == 0)
        memmove(link->peer, link->peer + strlen(mapped), strlen(link->peer + strlen(mapped)) + 1);
}

mg_link *mg_link_new(int fd, double now) {
    const int yes = 1;
    mg_link *link = mg_alloc_zero(sizeof *link);
    if (!link) {
        close(fd);
        return NULL;
    }
    *link = (mg_link){.fd = fd, .rank = -1, .since = now, .heard = now};
    name_peer(link);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    return link;
}

void mg_link_set_state(mg_link *link, mg_link_state state, double now) {
    link->state = state;
    link->since = now;
    if (state == MG_LINK_CLOSING) mg_link_flush(link);
}

/* ---- sending ---- */

static void drop_pieces(mg_link *link) {
    while (link->first) {
        mg_piece *p = link->first;
        link->first = p->next;
        mg_free(p);
    }
    link->last = NULL;
}

/* The peer may have sent something before its end, so the link goes on receiving. */
static void cut(mg_link *link) {
    link->cut = true;
    drop_pieces(link);
}

/* False: the socket takes no more for now, or is broken. */
static bool send_first(mg_link *link) {
    mg_piece *p = link->first;
    const size_t head = p->sent < p->n ? p->sent : p->n;
    struct iovec parts[] = {{p->bytes + head, p->n - head},
                            {(void *)(p->data + (p->sent - head)), p->n_data - (p->sent - head)}};
    const struct msghdr message = {.msg_iov = parts, .msg_iovlen = p->n_data ? 2 : 1};
    const ssize_t sent = sendmsg(link->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
        if (errno == EINTR) return true;
        if (errno != EAGAIN && errno != EWOULDBLOCK) cut(link);
        return false;
    }
    p->sent += (size_t)sent;
    if (p->sent < p->n + p->n_data) return true;
    link->first = p->next;
    if (!link->first) link->last = NULL;
    mg_free(p);
    return true;
}

void mg_link_flush(mg_link *link) {
    while (link->first && send_first(link)) continue;
    if (link->state != MG_LINK_CLOSING || link->first || link->shut) return;
    link->shut = true;
    shutdown(link->fd, SHUT_WR);
}

void mg_link_send(mg_link *link, const mg_record *r, bool borrow) {
    uint8_t head[MG_RECORD_HEAD + MG_RECORD_FIXED + MG_RECORD_TEXT_BYTES];
    const size_t n = mg_record_write(r, head), copied = borrow ? 0 : r->bytes;
    if (link->cut || link->shut || link->fd < 0) return;
    mg_piece *p = mg_alloc(sizeof *p + n + copied);
    if (!p) { /* the other side finds that the connection has ended */
        cut(link);
        shutdown(link->fd, SHUT_WR);
        return;
    }
    *p = (mg_piece){.data = borrow ? r->data : p->bytes + n, .n = n, .n_data = r->bytes};
    memcpy(p->bytes, head, n);
    if (copied) memcpy(p->bytes + n, r->data, copied);
    *(link->last ? &link->last->next : &link->first) = p;
    link->last = p;
    mg_link_flush(link);
}

bool mg_link_has_output(const mg_link *link) {
    return link->first;
}

/* ---- receiving ---- */

/* Whether the other side has closed: otherwise there is nothing to read for now. */
static mg_link_event ignore_input(mg_link *link) {
    char dropped[4096];
    const ssize_t n = recv(link->fd, dropped, sizeof dropped, 0);
    if (n > 0 || (n < 0 && errno == EINTR)) return MG_LINK_NOTHING; /* for now */
    return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) ? MG_LINK_NOTHING : MG_LINK_ENDED;
}

mg_link_event mg_link_receive(mg_link *link, mg_record *r, double now) {
    mg_error_clear();
    if (link->state == MG_LINK_CLOSING) return ignore_input(link);
    for (;;) {
        size_t wanted;
        bool complete;
        void *to = mg_record_room(&link->reader, &wanted);
        const ssize_t n = recv(link->fd, to, wanted, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return MG_LINK_NOTHING;
        if (n <= 0) return MG_LINK_ENDED;
        link->heard = now;
        if (mg_record_received(&link->reader, (size_t)n, r, &complete) != MG_OK)
            return MG_LINK_ENDED;
        if (complete) return MG_LINK_RECORD;
    }
}

void mg_link_note(mg_link *link, const mg_record *r) {
    link->step = r->value;
    mg_printable(r->text, strlen(r->text), true, link->op, sizeof link->op);
}

void mg_link_close(mg_link *link) {
    if (link->fd >= 0) close(link->fd);
    link->fd = -1;
    link->state = MG_LINK_CLOSED;
    drop_pieces(link);
}

void mg_link_free(mg_link *link) {
    if (!link) return;
    mg_link_close(link);
    mg_record_reader_free(&link->reader);
    mg_free(link);
}
