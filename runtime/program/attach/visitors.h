/* The connections of a job: what each of them asks, and what it is to get.
 *
 * The thread of server.c owns the descriptors; the script's thread takes commands and answers them.
 * A lock protects all of it. Nobody waits for a connection: what is to be sent is kept, up to a
 * limit, until the other side reads it. */
#ifndef MG_PROGRAM_ATTACH_VISITORS_H
#define MG_PROGRAM_ATTACH_VISITORS_H

#include "program/attach/record.h"
#include <poll.h>

enum { MG_VISITORS = 16 }; /* connections at a time */

/* A command. Its body is owned: mg_visitors_done frees it. */
typedef struct mg_command {
    int slot;    /* of the connection */
    unsigned id; /* of the connection; no two have the same */
    mg_attach_kind kind;
    uint8_t *body;
    size_t bytes;
} mg_command;

/* ---- for the thread of server.c ---- */

/* Takes over a connection; false: there are too many. */
bool mg_visitors_add(int fd);
/* What to wait for, for each slot; returns MG_VISITORS. */
int mg_visitors_poll(struct pollfd list[MG_VISITORS]);
/* Reads and sends what can be, for the slot that poll has reported. */
void mg_visitors_serve(int slot, short events);
/* Closes all connections. */
void mg_visitors_close(void);

/* ---- for the script's thread ---- */

/* The command that has waited longest; false: there is none. */
bool mg_visitors_take(mg_command *c);
/* Sends a piece of output of the command, as OUTPUT or ERRORS. */
void mg_visitors_write(const mg_command *c, mg_attach_kind kind, const char *bytes, size_t n);
/* The command has ended. A result of FAILED becomes GIVEN_UP if it was cancelled. */
void mg_visitors_done(mg_command *c, mg_attach_result result, const char *text, size_t n);
/* Whether somebody wants the job to pause. */
bool mg_visitors_paused(void);
/* Waits for a change, at most this many seconds. */
void mg_visitors_wait(double seconds);
/* The id of a connection that has run commands and is gone; 0: there is none. */
unsigned mg_visitors_take_gone(void);

#endif
