/* Collectives among the ranks of the world, made of the transport's messages; and single messages.
 *
 * Every rank makes the same calls, with the same tags. Reductions add up in the
 * order of ranks, so all ranks get the same bits, and the same from run to run. A call fails with
 * MG_COMM once the world is over, with MG_INTERRUPTED after an interrupt, and when other ranks do
 * not come within the deadline (MGPU_DEADLINE). */
#ifndef MG_WORLD_EXCHANGE_H
#define MG_WORLD_EXCHANGE_H

#include "core/dtype.h"
#include "core/placement.h"
#include "world/transport.h"

typedef struct mg_channel { /* messages of different channels are never mistaken for each other */
    uint32_t id, calls;
} mg_channel;

/* What exchanges go through. Set once, when the world starts. */
void mg_exchange_start(const mg_transport_api *api, mg_transport *transport, int rank, int size);
/* After it no call is made any more. */
void mg_exchange_stop(bool clean);

/* Every rank opens the same channels in the same order. */
mg_channel mg_channel_open(void);
/* The tag of the channel's next call: every rank takes the tags of a channel in the same order,
 * while the calls themselves may run at the same time, on several threads. */
uint32_t mg_channel_tag(mg_channel *c);
/* Whether more ranks than cores share this machine: then all waits sleep at once. */
void mg_exchange_set_crowded(bool crowded);
/* The calling thread sleeps where others would poll: for work beside a computation. */
void mg_exchange_be_patient(void);

/* out = in of rank 0 op in of rank 1 op ..., on every rank, or on the rank `root` alone if it is
 * not -1; elsewhere `out` is not touched. in and out are the same memory or do not overlap. */
mg_status mg_exchange_reduce(uint32_t tag, const void *in, void *out, int64_t count, mg_dtype t,
                             enum mg_reduce_kind op, int root);
/* `all` holds the ranks' blocks one after another, bytes[r] of rank r; each rank has put its own in
 * place. */
mg_status mg_exchange_gather(uint32_t tag, void *all, const size_t *bytes);
/* The same without the deadline: some ranks may do other work first, however long it takes. */
mg_status mg_exchange_gather_when_ready(uint32_t tag, void *all, const size_t *bytes);
mg_status mg_exchange_broadcast(uint32_t tag, int root, void *data, size_t bytes);
/* `in` becomes the peer's `out`; the peer makes the same call with this rank as its peer. -1: this
 * rank has none. */
mg_status mg_exchange_swap(uint32_t tag, int peer, const void *out, void *in, size_t bytes);

/* ---- single messages: mailbox.c ---- */

/* Begin to send or receive; `data` must stay until the message is done. As in mg_transport_api, but
 * a rank that has died is named. */
mg_status mg_exchange_send(uint32_t tag, int to, const void *data, size_t bytes, mg_message **m);
mg_status mg_exchange_receive(uint32_t tag, int from, void *data, size_t bytes, mg_message **m);
/* Waits until at least one of the n messages is done; done ones become NULL. Without a deadline. */
mg_status mg_exchange_wait_any(mg_message **list, int n);
/* Gives up the messages of the list that are not NULL, which become so. */
void mg_exchange_cancel(mg_message **list, int n);

/* ---- measuring ---- */

/* Ranks a and b send `bytes` to and fro, `rounds` times; *seconds becomes the time of one way on a.
 * The other ranks return at once. */
mg_status mg_exchange_bounce(uint32_t tag, int a, int b, size_t bytes, int rounds, double *seconds);

#endif
