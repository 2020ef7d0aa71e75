/* Rank 0: lets the processes in, starts the world when all are here, and answers their records. */
#define _GNU_SOURCE
#include "core/alloc.h"
#include "core/printable.h"
#include "core/threads.h"
#include "world/hub_state.h"
#include <stdio.h>
#include <string.h>

/* Takes as long for a wrong token that begins well as for another one. */
static bool is_equal(const uint8_t *a, const uint8_t *b, size_t n) {
    volatile uint8_t differ = 0;
    for (size_t i = 0; i < n; i++) differ = (uint8_t)(differ | (a[i] ^ b[i]));
    return differ == 0;
}

/* ---- joining ---- */

static mg_link *link_of(mg_hub *h, int rank) {
    for (int i = 0; i < h->n_links; i++)
        if (h->links[i]->state == MG_LINK_JOINED && h->links[i]->rank == rank) return h->links[i];
    return NULL;
}

/* Whether the other side of a link has closed it, which may not have been noticed yet. */
static bool has_ended(mg_hub *h, mg_link *link) {
    struct pollfd one = {link->fd, POLLRDHUP, 0};
    return !h->started && poll(&one, 1, 0) == 1;
}

/* The sentence for a process that is not let in; "" if it is welcome. */
static void find_fault(mg_hub *h, const mg_record *r, const mg_hello *hello, char *why,
                       size_t room) {
    why[0] = '\0';
    if (!is_equal(hello->token, (const uint8_t *)h->token, MG_TOKEN)) {
        snprintf(why, room,
                 "it has another token than rank 0: it belongs to another run, or the launcher's "
                 "variables differ between the hosts");
        return;
    }
    const unsigned size = (unsigned)mg_record_number_at(hello->size, 4);
    mg_link *other = r->number < (unsigned)h->size ? link_of(h, (int)r->number) : NULL;
    if (r->value != h->version)
        snprintf(why, room,
                 "its program has version %llx, that of rank 0 %llx: install the same build of "
                 "mgpulua on all hosts",
                 (unsigned long long)r->value, (unsigned long long)h->version);
    else if (size != (unsigned)h->size)
        snprintf(why, room,
                 "it is one of %u processes, rank 0 one of %d: start all with the same number",
                 size, h->size);
    else if (r->number < 1 || r->number >= (unsigned)h->size)
        snprintf(why, room, "it is rank %u, and the others are 1 to %d: give each its own rank",
                 r->number, h->size - 1);
    else if (other && (has_ended(h, other) ||
                       h->processes[r->number] == mg_record_number_at(hello->process, 8)))
        mg_hub_forget_member(h, other, "its connection ended"), mg_link_close(other);
    else if (other || h->started)
        snprintf(why, room, "there is a rank %u already (host %s, pid %d): give each its own rank",
                 r->number, h->members[r->number].host, h->members[r->number].pid);
}

void mg_hub_refuse(mg_hub *h, mg_link *link, const char *why) {
    snprintf(h->rejected, sizeof h->rejected, "a process at %s was not let in: %s", link->peer,
             why);
    mg_link_send(link, &(mg_record){.kind = MG_RECORD_REFUSED, .data = why, .bytes = strlen(why)},
                 false);
    mg_link_set_state(link, MG_LINK_CLOSING, mg_seconds());
}

static void let_in(mg_hub *h, mg_link *link, const mg_record *r, const mg_hello *hello) {
    mg_hub_member *member = &h->members[r->number];
    mg_printable(r->text, strlen(r->text), true, member->host, sizeof member->host);
    member->pid = (int)mg_record_number_at(hello->pid, 4);
    h->processes[r->number] = mg_record_number_at(hello->process, 8);
    link->rank = (int)r->number;
    link->reader.trusted = true;
    mg_link_set_state(link, MG_LINK_JOINED, mg_seconds());
    h->n_here++;
    mg_link_send(link,
                 &(mg_record){.kind = MG_RECORD_ACCEPTED,
                              .number = (uint32_t)h->members[0].pid,
                              .text = h->members[0].host},
                 false);
    mg_hub_start_if_complete(h);
}

static bool serve_hello(mg_hub *h, mg_link *link, const mg_record *r) {
    mg_hello hello;
    char why[512];
    if (link->state != MG_LINK_NEW || r->bytes != sizeof hello) return false;
    memcpy(&hello, r->data, sizeof hello);
    find_fault(h, r, &hello, why, sizeof why);
    if (!why[0] && atomic_load(&h->over))
        snprintf(why, sizeof why, "%.*s", (int)sizeof why - 1, h->sentence);
    if (why[0])
        mg_hub_refuse(h, link, why);
    else
        let_in(h, link, r, &hello);
    return true;
}

void mg_hub_forget_member(mg_hub *h, mg_link *link, const char *why) {
    mg_hub_member *member = &h->members[link->rank];
    snprintf(h->rejected, sizeof h->rejected, "rank %d (host %s, pid %d) was here, but %s",
             link->rank, member->host, member->pid, why);
    member->pid = 0;
    h->n_here--;
}

void mg_hub_start_if_complete(mg_hub *h) {
    if (h->started || h->n_here < h->size || atomic_load(&h->over)) return;
    mg_record start = {.kind = MG_RECORD_START};
    if (mg_hub_pack_members(h, &start) != MG_OK) {
        mg_hub_set_over(h, mg_error_message());
        return;
    }
    h->started = true;
    for (int i = 0; i < h->n_links; i++)
        if (h->links[i]->state == MG_LINK_JOINED) mg_link_send(h->links[i], &start, true);
    pthread_cond_broadcast(&h->changed);
}

/* ---- records of processes that have joined ---- */

static bool serve_beat(mg_hub *h, mg_link *link, const mg_record *r) {
    (void)h;
    mg_link_note(link, r);
    return true;
}

static bool serve_put(mg_hub *h, mg_link *link, const mg_record *r) {
    void *data = mg_record_take_data(&link->reader, r);
    const mg_status status = data ? mg_hub_store_put(h, r->text, data, r->bytes) : MG_OOM;
    if (status != MG_OK) mg_free(data);
    mg_link_send(link, &(mg_record){.kind = MG_RECORD_STORED, .number = r->number, .value = status},
                 false);
    return true;
}

/* Without memory for it, the process waits as for a key that is never put. */
static bool serve_get(mg_hub *h, mg_link *link, const mg_record *r) {
    const double until = mg_seconds() + (double)r->value / 1000;
    (void)mg_hub_store_await(h, r->text, link, r->number, until);
    return true;
}

static bool serve_end(mg_hub *h, mg_link *link, const mg_record *r) {
    (void)link;
    mg_hub_take_end(h, r);
    return true;
}

static bool serve_leave(mg_hub *h, mg_link *link, const mg_record *r) {
    if (!h->started) return false;
    mg_link_note(link, r);
    h->n_here--;
    mg_link_set_state(link, MG_LINK_CLOSING, mg_seconds());
    if (r->number)
        mg_hub_set_over_by(h, link->rank, MG_HUB_LEFT_EARLY, link->step, (int)r->number);
    else
        mg_hub_note_left(h, link->rank, link->step);
    pthread_cond_broadcast(&h->changed);
    return true;
}

bool mg_hub_serve(mg_hub *h, mg_link *link, const mg_record *r) {
    static bool (*const serve[MG_RECORD_KINDS])(mg_hub *, mg_link *, const mg_record *) = {
        [MG_RECORD_HELLO] = serve_hello, [MG_RECORD_BEAT] = serve_beat,
        [MG_RECORD_PUT] = serve_put,     [MG_RECORD_GET] = serve_get,
        [MG_RECORD_END] = serve_end,     [MG_RECORD_LEAVE] = serve_leave,
    };
    return serve[r->kind] && serve[r->kind](h, link, r);
}
