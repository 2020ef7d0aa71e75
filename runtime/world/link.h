/* A connection of the hub: a socket that does not wait, with the record that is being received and
 * those that wait to be sent. It belongs to the hub, whose mutex protects it. */
#ifndef MG_WORLD_LINK_H
#define MG_WORLD_LINK_H

#include "world/record.h"

typedef enum mg_link_state {
    MG_LINK_NEW,    /* accepted, no HELLO yet */
    MG_LINK_JOINED, /* a process of the world is at the other end */
    /* No more is to be sent: what waits is, then our side is shut down, and what still comes is
     * read and ignored until the other side is shut down as well. Closing at once would discard
     * what is on its way to the other side. */
    MG_LINK_CLOSING,
    MG_LINK_CLOSED
} mg_link_state;

typedef struct mg_piece mg_piece; /* bytes that wait to be sent */

typedef struct mg_link {
    int fd;
    mg_link_state state;
    double since;  /* in this state; all times are those of mg_seconds */
    double heard;  /* the last bytes came */
    char peer[64]; /* its address, as text */
    int rank;      /* of the process at the other end; -1: not known yet */
    uint64_t step; /* what it did at its last beat */
    char op[64];
    int n_waiting; /* keys that it waits for: hub_store.c */
    mg_record_reader reader;
    mg_piece *first, *last;
    bool cut, shut; /* sending has failed; our side is shut down */
} mg_link;

typedef enum mg_link_event { MG_LINK_NOTHING, MG_LINK_RECORD, MG_LINK_ENDED } mg_link_event;

/* Takes over a socket that does not wait, also on failure. NULL: MG_OOM. */
mg_link *mg_link_new(int fd, double now);
void mg_link_set_state(mg_link *link, mg_link_state state, double now);
/* Sends a record, or keeps what the socket does not take for later. With `borrow`, the record's
 * data stay valid as long as the link. A failure is found by receiving. */
void mg_link_send(mg_link *link, const mg_record *r, bool borrow);
/* Sends what waits; in state CLOSING, shuts our side down after it. */
void mg_link_flush(mg_link *link);
bool mg_link_has_output(const mg_link *link);
/* Receives one record, valid until mg_record_next, which the caller then calls. ENDED: the other
 * side has closed the connection or sent something else than a record (mg_error_code: MG_OK,
 * MG_DATA, MG_UNSUPPORTED, MG_OOM). In state CLOSING, what comes is ignored. */
mg_link_event mg_link_receive(mg_link *link, mg_record *r, double now);
/* Notes what the other side does, of a BEAT or LEAVE. */
void mg_link_note(mg_link *link, const mg_record *r);
/* Closes the socket; the link stays until mg_link_free. */
void mg_link_close(mg_link *link);
/* Accepts NULL. */
void mg_link_free(mg_link *link);

#endif
