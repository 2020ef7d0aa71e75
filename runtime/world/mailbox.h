/* Mailboxes: messages between single ranks where each decides by itself what comes next, as workers
 * and parameter servers do.
 *
 * The receiver says first of which rank it expects a message and how long it is; at most one from
 * each rank and one to each rank are on their way at a time. A rank may send to itself. Waiting has
 * no deadline, since another rank may compute for long: it ends with MG_COMM when the world is over
 * or some rank has left the script, and with MG_INTERRUPTED after an interrupt. */
#ifndef MG_WORLD_MAILBOX_H
#define MG_WORLD_MAILBOX_H

#include "core/dtype.h"
#include "core/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct mg_mailbox mg_mailbox;

/* Every rank makes the same mailboxes in the same order. NULL: MG_OOM. */
mg_mailbox *mg_mailbox_new(void);
/* Accepts NULL. Messages that are still on their way are given up, and the world is over. */
void mg_mailbox_free(mg_mailbox *b);

/* Where to write the next message to a rank, once the previous one has gone. NULL on failure. */
char *mg_mailbox_write(mg_mailbox *b, int to, size_t bytes);
/* Begins to send what was written. */
mg_status mg_mailbox_send(mg_mailbox *b, int to);
/* Waits until all messages have been sent. */
mg_status mg_mailbox_settle(mg_mailbox *b);

/* Begins to receive the next message of a rank. Overwrites the previous one. */
mg_status mg_mailbox_expect(mg_mailbox *b, int from, size_t bytes);
/* Waits for one of the messages that are expected; *from becomes its rank. MG_INTERNAL if none is.
 */
mg_status mg_mailbox_next(mg_mailbox *b, int *from);
/* The last message of a rank, and its length. */
const char *mg_mailbox_read(const mg_mailbox *b, int from, size_t *bytes);
/* sum += the `count` elements at byte `at` of the last message of a
 * rank; the first of several is copied instead. MG_USAGE: the message is shorter. */
mg_status mg_mailbox_add(const mg_mailbox *b, int from, size_t at, int64_t count, mg_dtype t,
                         bool first, void *sum);

#endif
