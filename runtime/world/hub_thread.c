/* The hub's thread: it waits in poll for its links, the listener and the next beat; it receives and
 * answers, says once a second that this process lives, and finds those that are silent. */
#define _GNU_SOURCE
#include "core/alloc.h"
#include "core/limits.h"
#include "core/threads.h"
#include "world/hub_state.h"
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

/* Seconds: between beats; until a connection has to say HELLO; until a closing one is closed. */
static const double BEAT = 1, HELLO = 5, CLOSING = 1;

enum { RECORDS_AT_A_TIME = 64 }; /* of a link, before the other links have their turn */

/* "at step 41, in conv2d". Short steps are many between two beats: then rank 0 tells where it is
 * itself; the others, who speak when rank 0 has died, must all say the same. */
static const char *where_of(const mg_hub *h, const mg_link *link, char *text, size_t room) {
    const char *in = link->op[0] ? ", in " : "";
    const unsigned long long own = atomic_load(&h->step);
    int n = link->step ? snprintf(text, room, "at step %llu%s%s", (unsigned long long)link->step,
                                  in, link->op)
                       : snprintf(text, room, "before its first step%s%s", in, link->op);
    if (h->rank == 0 && own > link->step && n < (int)room)
        snprintf(text + n, room - (size_t)n, "; rank 0 was at step %llu, in %s", own,
                 atomic_load(&h->op));
    return text;
}

/* ---- links ---- */

/* Why a link has ended, after MG_LINK_ENDED. */
static const char *why_ended(char *text, size_t room) {
    if (mg_error_code() == MG_OK) return "its connection ended";
    snprintf(text, room, "its connection broke (%s)", mg_error_message());
    return text;
}

/* The other side has closed the link, or has sent something wrong. */
static void end_link(mg_hub *h, mg_link *link, const char *why) {
    char where[256];
    const bool joined = link->state == MG_LINK_JOINED, watched = joined && !atomic_load(&h->over);
    if (watched && h->started)
        mg_hub_set_over_by(h, link->rank, "died: %s (last seen %s)", why,
                           where_of(h, link, where, sizeof where));
    else if (watched && h->rank == 0)
        mg_hub_forget_member(h, link, why);
    else if (watched)
        mg_hub_set_over_by(h, 0, "died while the processes were joining: %s", why);
    else if (link->state == MG_LINK_NEW)
        snprintf(h->rejected, sizeof h->rejected, "a connection from %s was no process of this run",
                 link->peer);
    if (h->rank == 0 && h->started && joined) h->n_here--;
    mg_link_close(link);
    pthread_cond_broadcast(&h->changed);
}

static void read_link(mg_hub *h, mg_link *link, double now) {
    for (int i = 0; i < RECORDS_AT_A_TIME && link->fd >= 0; i++) {
        mg_record r;
        char why[256];
        const mg_link_event event = mg_link_receive(link, &r, now);
        if (event == MG_LINK_NOTHING) return;
        if (event == MG_LINK_ENDED && link->state == MG_LINK_NEW &&
            mg_error_code() == MG_UNSUPPORTED) {
            mg_hub_refuse(h, link, "its mgpulua speaks another version of the protocol");
            return;
        }
        if (event == MG_LINK_ENDED) {
            end_link(h, link, why_ended(why, sizeof why));
            return;
        }
        const bool known =
            h->rank == 0 ? mg_hub_serve(h, link, &r) : mg_hub_take_answer(h, link, &r);
        mg_record_next(&link->reader);
        if (!known) end_link(h, link, "its connection broke (a record out of place)");
    }
}

/* Removes the links that are closed. */
static void sweep(mg_hub *h) {
    int n = 0;
    for (int i = 0; i < h->n_links; i++)
        if (h->links[i]->fd >= 0) {
            h->links[n++] = h->links[i];
        } else {
            mg_hub_store_forget(h, h->links[i], 0);
            mg_link_free(h->links[i]);
        }
    if (n != h->n_links) pthread_cond_broadcast(&h->changed);
    h->n_links = n;
}

mg_status mg_hub_add_link(mg_hub *h, mg_link *link) {
    if (mg_reserve((void **)&h->links, h->n_links, &h->room, sizeof *h->links) != MG_OK) {
        mg_link_free(link);
        return MG_OOM;
    }
    h->links[h->n_links++] = link;
    return MG_OK;
}

/* Without a free descriptor, poll would report the listener again at once: it rests until the next
 * beat. */
static void accept_links(mg_hub *h, double now) {
    while (h->n_links < h->size + MG_HUB_SPARE_LINKS) {
        const int fd = accept4(h->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0 && (errno == EINTR || errno == ECONNABORTED)) continue;
        if (fd < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
        if (fd < 0) {
            snprintf(h->rejected, sizeof h->rejected, "rank 0 cannot accept connections: %s",
                     mg_reason(errno));
            h->listen_from = now + BEAT;
            return;
        }
        mg_link *link = mg_link_new(fd, now);
        if (!link || mg_hub_add_link(h, link) != MG_OK) return;
    }
}

/* ---- beats and silence ---- */

static void beat(mg_hub *h, double now) {
    const mg_record r = {.kind = MG_RECORD_BEAT,
                         .value = atomic_load_explicit(&h->step, memory_order_relaxed),
                         .text = atomic_load_explicit(&h->op, memory_order_relaxed)};
    if (now < h->next_beat) return;
    h->next_beat = now + BEAT;
    for (int i = 0; i < h->n_links; i++)
        if (h->links[i]->state == MG_LINK_JOINED && !atomic_load(&h->over))
            mg_link_send(h->links[i], &r, false);
    mg_hub_tell_left(h);
    mg_hub_store_forget(h, NULL, now);
}

/* Until when something has to come over the link. */
static double limit_of(const mg_hub *h, const mg_link *link) {
    switch (link->state) {
    case MG_LINK_NEW: return link->since + HELLO;
    case MG_LINK_CLOSING: return link->since + CLOSING;
    case MG_LINK_JOINED: return atomic_load(&h->over) ? INFINITY : link->heard + h->silence;
    default: return INFINITY;
    }
}

static void watch(mg_hub *h, mg_link *link, double now) {
    char where[256];
    if (link->fd < 0 || now < limit_of(h, link)) return;
    if (link->state == MG_LINK_JOINED && h->started)
        mg_hub_set_over_by(h, link->rank, "has not answered for %g s (last seen %s)", h->silence,
                           where_of(h, link, where, sizeof where));
    else if (link->state == MG_LINK_CLOSING)
        mg_link_close(link);
    else
        end_link(h, link, "it did not answer");
}

/* ---- the thread ---- */

/* First the eventfd and the listener, then the links. Without memory, the links wait for the next
 * round. */
static nfds_t fill(mg_hub *h, double now) {
    const bool listens = h->listener >= 0 && now >= h->listen_from && !h->ending &&
                         h->n_links < h->size + MG_HUB_SPARE_LINKS;
    int n = 0;
    h->polled[n++] = (struct pollfd){h->wake, POLLIN, 0};
    h->polled[n++] = (struct pollfd){listens ? h->listener : -1, POLLIN, 0};
    for (int i = 0; i < h->n_links; i++, n++) {
        const short output = mg_link_has_output(h->links[i]) ? POLLOUT : 0;
        if (mg_reserve((void **)&h->polled, n, &h->polled_room, sizeof *h->polled) != MG_OK) break;
        h->polled[n] = (struct pollfd){h->links[i]->fd, (short)(POLLIN | output), 0};
    }
    return (nfds_t)n;
}

static double wait_limit(const mg_hub *h) {
    double until = h->next_beat;
    for (int i = 0; i < h->n_links; i++) until = fmin(until, limit_of(h, h->links[i]));
    return until;
}

static void take_wake(mg_hub *h) {
    uint64_t count;
    if (read(h->wake, &count, sizeof count) < 0) return; /* it was not set */
}

/* Waits, then does what is due. A process that was stopped itself (SIGSTOP, a suspended machine)
 * has not seen the silence of others: all have time again. */
static void do_round(mg_hub *h) {
    const double from = mg_seconds(), until = wait_limit(h);
    const nfds_t n = fill(h, from);
    const int wait_ms = until > from ? (int)ceil((until - from) * 1000) : 0;
    pthread_mutex_unlock(&h->mutex);
    poll(h->polled, n, wait_ms);
    pthread_mutex_lock(&h->mutex);
    const double now = mg_seconds();
    const bool stopped = now - from > h->silence / 2 + BEAT;
    take_wake(h);
    const int n_polled = (int)n - 2;
    for (int i = 0; i < h->n_links; i++) {
        mg_link *link = h->links[i];
        const short events = i < n_polled ? h->polled[i + 2].revents : 0;
        if (stopped) link->heard = now;
        if (events & POLLOUT) mg_link_flush(link);
        if (events & ~POLLOUT) read_link(h, link, now);
    }
    if (h->polled[1].revents) accept_links(h, now);
    for (int i = 0; i < h->n_links; i++) watch(h, h->links[i], now);
    beat(h, now);
    sweep(h);
}

static void *thread_main(void *argument) {
    mg_hub *h = argument;
    pthread_mutex_lock(&h->mutex);
    while (!h->ending || h->n_links) do_round(h);
    pthread_mutex_unlock(&h->mutex);
    return NULL;
}

bool mg_hub_thread_start(mg_hub *h) {
    if (mg_reserve((void **)&h->polled, 1, &h->polled_room, sizeof *h->polled) != MG_OK)
        return false;
    h->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (h->wake < 0) {
        mg_fail(MG_IO, "cannot make an eventfd: %s", mg_reason(errno));
        return false;
    }
    h->running = mg_thread_start(&h->thread, thread_main, h);
    if (!h->running) mg_fail(MG_OOM, "cannot start the hub's thread: %s", mg_reason(errno));
    return h->running;
}

void mg_hub_wake(mg_hub *h) {
    const uint64_t one = 1;
    if (h->wake >= 0 && write(h->wake, &one, sizeof one) < 0) return; /* it is set already */
}
