/* Messages between single ranks: see mailbox.h. */
#include "world/mailbox.h"
#include "comm/reduce.h"
#include "core/alloc.h"
#include "world/exchange.h"
#include "world/world.h"
#include <string.h>

typedef struct slot { /* the messages to or from one rank */
    char *data;
    size_t bytes, room;
    bool expected; /* receiving: its message is not yet taken */
    bool here;     /* and has come, of one that a rank sends to itself */
} slot;

struct mg_mailbox {
    uint32_t tag;
    int size, own;
    int last;       /* the rank whose message came last: the next in turn is first */
    slot *out, *in; /* per rank */
    mg_message **sending, **arriving; /* per rank; NULL: none is on its way */
};

static mg_status reserve(slot *s, size_t bytes) {
    s->bytes = bytes;
    if (s->room >= bytes && s->data) return MG_OK;
    mg_free(s->data);
    s->room = 0;
    s->data = mg_alloc(bytes + 1);
    if (!s->data) return MG_OOM;
    s->room = bytes;
    return MG_OK;
}

mg_mailbox *mg_mailbox_new(void) {
    mg_channel channel = mg_channel_open();
    const size_t size = (size_t)mg_world_size();
    mg_mailbox *b = mg_alloc_zero(sizeof *b);
    if (!b) return NULL;
    *b = (mg_mailbox){
        .tag = mg_channel_tag(&channel), .size = (int)size, .own = mg_world_rank(), .last = -1};
    b->out = mg_alloc_zero(size * sizeof *b->out);
    b->in = mg_alloc_zero(size * sizeof *b->in);
    b->sending = mg_alloc_zero(size * sizeof(mg_message *));
    b->arriving = mg_alloc_zero(size * sizeof(mg_message *));
    if (b->out && b->in && b->sending && b->arriving) return b;
    mg_mailbox_free(b);
    return NULL;
}

void mg_mailbox_free(mg_mailbox *b) {
    if (!b) return;
    if (b->sending) mg_exchange_cancel(b->sending, b->size);
    if (b->arriving) mg_exchange_cancel(b->arriving, b->size);
    for (int r = 0; r < b->size; r++) {
        if (b->out) mg_free(b->out[r].data);
        if (b->in) mg_free(b->in[r].data);
    }
    mg_free(b->out);
    mg_free(b->in);
    mg_free(b->sending);
    mg_free(b->arriving);
    mg_free(b);
}

/* ---- sending ---- */

static mg_status wait_sent(mg_mailbox *b, int to) {
    return mg_exchange_wait_any(&b->sending[to], 1);
}

char *mg_mailbox_write(mg_mailbox *b, int to, size_t bytes) {
    if (wait_sent(b, to) != MG_OK || reserve(&b->out[to], bytes) != MG_OK) return NULL;
    return b->out[to].data;
}

/* What a rank sends to itself has arrived at once. */
static mg_status send_to_self(mg_mailbox *b) {
    slot *out = &b->out[b->own], *in = &b->in[b->own];
    if (!in->expected || in->bytes != out->bytes)
        return mg_fail(MG_INTERNAL, "mailbox: rank %d does not expect what it sends", b->own);
    memcpy(in->data, out->data, out->bytes);
    in->here = true;
    return MG_OK;
}

mg_status mg_mailbox_send(mg_mailbox *b, int to) {
    if (to == b->own) return send_to_self(b);
    MG_TRY(mg_world_check());
    return mg_exchange_send(b->tag, to, b->out[to].data, b->out[to].bytes, &b->sending[to]);
}

mg_status mg_mailbox_settle(mg_mailbox *b) {
    for (int r = 0; r < b->size; r++) MG_TRY(wait_sent(b, r));
    return MG_OK;
}

/* ---- receiving ---- */

mg_status mg_mailbox_expect(mg_mailbox *b, int from, size_t bytes) {
    slot *in = &b->in[from];
    if (in->expected)
        return mg_fail(MG_INTERNAL, "mailbox: a message of rank %d is expected already", from);
    MG_TRY(reserve(in, bytes));
    if (from != b->own)
        MG_TRY(mg_exchange_receive(b->tag, from, in->data, bytes, &b->arriving[from]));
    in->expected = true;
    return MG_OK;
}

/* The next rank in turn whose message is here; -1: none. *coming: whether one is on its way. */
static int find_arrived(const mg_mailbox *b, bool *coming) {
    *coming = false;
    for (int i = 1; i <= b->size; i++) {
        const int r = (b->last + i) % b->size;
        if (!b->in[r].expected) continue;
        if (r == b->own ? b->in[r].here : !b->arriving[r]) return r;
        *coming |= r != b->own;
    }
    return -1;
}

mg_status mg_mailbox_next(mg_mailbox *b, int *from) {
    bool coming;
    while ((*from = find_arrived(b, &coming)) < 0) {
        if (!coming) return mg_fail(MG_INTERNAL, "mailbox: no message is expected");
        MG_TRY(mg_exchange_wait_any(b->arriving, b->size));
    }
    b->last = *from;
    b->in[*from].expected = b->in[*from].here = false;
    return MG_OK;
}

const char *mg_mailbox_read(const mg_mailbox *b, int from, size_t *bytes) {
    *bytes = b->in[from].bytes;
    return b->in[from].data;
}

mg_status mg_mailbox_add(const mg_mailbox *b, int from, size_t at, int64_t count, mg_dtype t,
                         bool first, void *sum) {
    const size_t length = (size_t)count * mg_dtype_size(t);
    const slot *in = &b->in[from];
    if (in->bytes < at || in->bytes - at < length)
        return mg_fail(MG_USAGE, "mailbox: the message of rank %d is too short", from);
    if (first)
        memcpy(sum, in->data + at, length);
    else
        mg_reduce(sum, in->data + at, count, t, MG_REDUCE_SUM);
    return MG_OK;
}
