/* The state of a hub, and what its files call of each other: hub.c (the interface), hub_thread.c
 * (the thread: polls the links, beats, watches), hub_server.c (rank 0's answers to records),
 * hub_member.c (those of the others), hub_store.c (the keys and values), hub_lists.c (lists of
 * processes), hub_connect.c (the way to rank 0).
 *
 * Rank 0 has a link to each other process, another process only one, to rank 0. One mutex protects
 * everything below that is not atomic; the thread holds it whenever it does not wait in poll. What
 * is called here is called with the mutex held, unless it says otherwise. */
#ifndef MG_WORLD_HUB_STATE_H
#define MG_WORLD_HUB_STATE_H

#include "world/hub.h"
#include "world/link.h"
#include <pthread.h>
#include <inttypes.h>
#include <poll.h>
#include <stdatomic.h>

/* What HELLO carries besides number, value and text. Before the token was compared, nothing else of
 * it is looked at. */
typedef struct mg_hello {
    uint8_t token[MG_TOKEN], size[4], pid[4], process[8]; /* numbers: little-endian */
} mg_hello;

enum {
    MG_HUB_SPARE_LINKS = 64, /* connections beyond those of the processes, at a time */
    MG_HUB_BUCKETS = 1024
};

typedef struct mg_hub_entry mg_hub_entry;
typedef struct mg_hub_request mg_hub_request;

struct mg_hub {
    int rank, size, port;
    const char *address; /* the caller's, while it joins */
    char token[MG_TOKEN];
    double patience, silence;
    uint64_t version;
    uint64_t process; /* a random number: this process, and no other one of the same rank */

    atomic_uint_fast64_t step; /* what this process does */
    _Atomic(const char *) op;
    _Atomic(const char *) over; /* NULL, or the sentence */
    char sentence[MG_RECORD_SENTENCE];
    mg_hub_member *members; /* of each rank; unchanging once `started` */

    pthread_mutex_t mutex;
    pthread_cond_t changed; /* something that callers wait for */
    pthread_t thread;
    bool running;       /* there is a thread to join */
    int wake, listener; /* an eventfd; a socket of rank 0, else -1 */
    double listen_from; /* the listener is not polled before this time */
    double next_beat;
    bool started; /* all have joined */
    bool ending;  /* the thread ends once all links are closed */
    mg_link **links;
    int n_links, room;
    struct pollfd *polled; /* of the thread */
    int polled_room;
    atomic_uint_fast64_t *left; /* of each rank: 0, or 1 + the step at which it said goodbye */
    uint8_t *roster, *departed; /* rank 0: the data of START and LEFT */
    int n_departed, n_told;     /* ranks in `departed`; those of them that the others know */
    uint64_t *processes;        /* rank 0: mg_hub.process of the members that are here */
    int n_here; /* rank 0: processes that have joined and not left, itself included */
    /* Rank 0: who was last not let in, or was lost again before the start, and why. */
    char rejected[512];
    mg_hub_entry *entries[MG_HUB_BUCKETS]; /* rank 0: the store */
    mg_hub_request *requests;              /* other ranks: calls that wait for an answer */
    uint32_t next_request;
};

/* ---- hub.c ---- */

/* Makes the world over, unless it is already, and tells that over all links. */
void mg_hub_set_over(mg_hub *h, const char *sentence);
/* The same, with the sentence of an END. */
void mg_hub_take_end(mg_hub *h, const mg_record *r);
/* The same, with "rank 2 (host b, pid 4711) " in front. */
void mg_hub_set_over_by(mg_hub *h, int rank, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* For it: the step and the exit status. */
#define MG_HUB_LEFT_EARLY "left the script at step %" PRIu64 " while others go on: exit status %d"
/* Waits until something has changed; also returns now and then without a change, and at the time
 * `until`. MG_COMM: the world is over; MG_INTERRUPTED. */
mg_status mg_hub_wait(mg_hub *h, double until);

/* ---- hub_thread.c ---- */

/* False, after mg_fail: no memory or no thread. Without the mutex. */
bool mg_hub_thread_start(mg_hub *h);
/* Makes the thread look at the links again. */
void mg_hub_wake(mg_hub *h);
/* Takes over the link. MG_OOM. */
mg_status mg_hub_add_link(mg_hub *h, mg_link *link);

/* ---- hub_server.c, hub_member.c ---- */

/* A record has come: false if it must not come over this link. */
bool mg_hub_serve(mg_hub *h, mg_link *link, const mg_record *r);
bool mg_hub_take_answer(mg_hub *h, mg_link *link, const mg_record *r);
/* Tells the other side why it is not let in, and closes the link. */
void mg_hub_refuse(mg_hub *h, mg_link *link, const char *why);
/* Rank 0 before the start: a process whose link has ended is missing again. */
void mg_hub_forget_member(mg_hub *h, mg_link *link, const char *why);
/* Rank 0: starts the world once all are here. */
void mg_hub_start_if_complete(mg_hub *h);

struct mg_hub_request { /* on the stack of the call that waits */
    mg_hub_request *next;
    uint32_t number;
    bool done;
    mg_status status;
    void *data; /* owned */
    size_t bytes;
};
/* Of a process other than rank 0: sends a PUT or GET and waits for the answer; request->done is
 * false if none has come after `patience` seconds. MG_COMM: the world is over; MG_INTERRUPTED.
 * Without the mutex. */
mg_status mg_hub_request_wait(mg_hub *h, const mg_record *what, double patience,
                              mg_hub_request *request);

/* ---- hub_connect.c ---- */

/* The way to rank 0, which has accepted this process. NULL: MG_COMM, MG_OOM, MG_INTERRUPTED. Before
 * there is a thread. */
mg_link *mg_hub_connect(mg_hub *h);

/* ---- hub_lists.c ---- */

/* Fills in the record's data, which stay valid as long as the hub. MG_OOM. */
mg_status mg_hub_pack_members(mg_hub *h, mg_record *start);
/* False: the data are no list of these processes. */
bool mg_hub_unpack_members(mg_hub_member *members, int size, const mg_record *start);
/* Rank 0: a process has said goodbye. The others are told at the next beat, of many processes at
 * once. */
void mg_hub_note_left(mg_hub *h, int rank, uint64_t step);
void mg_hub_tell_left(mg_hub *h);
bool mg_hub_unpack_left(atomic_uint_fast64_t *left, int size, const mg_record *r);

/* ---- hub_store.c ---- */

/* *data is taken over if that succeeds. MG_USAGE: the key was put before; MG_OOM. Without a message
 * but for MG_OOM. */
mg_status mg_hub_store_put(mg_hub *h, const char *key, void *data, size_t bytes);
/* Whether the key is there. The value stays where it is until the hub is freed. */
bool mg_hub_store_find(const mg_hub *h, const char *key, const void **data, size_t *bytes);
/* Sends the value when it is there; forgets that at the time `until`. */
mg_status mg_hub_store_await(mg_hub *h, const char *key, mg_link *link, uint32_t request,
                             double until);
/* Forgets what a link waits for (NULL: what is overdue). */
void mg_hub_store_forget(mg_hub *h, mg_link *link, double now);
void mg_hub_store_free(mg_hub *h);

#endif
