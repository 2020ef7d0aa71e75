/* The records between a job and `mgpulua --attach`: a head of 8 bytes, then a body.
 *
 * The head: 'm', 'a', the version of the protocol, the kind, and the bytes of the body. Numbers are
 * little-endian. The job says MG_ATTACH_HELLO first, so that the other side learns its version
 * before it asks for anything. The length of a body is limited, by its kind, before memory is
 * taken. */
#ifndef MG_PROGRAM_ATTACH_RECORD_H
#define MG_PROGRAM_ATTACH_RECORD_H

#include "core/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum mg_attach_kind {
    /* to the job; it answers each with the records in parentheses */
    MG_ATTACH_STATE,    /* how is it? (TOLD) */
    MG_ATTACH_WHERE,    /* what is each thread in? (TOLD) */
    MG_ATTACH_RUN,      /* run this: a byte of flags, 2 bytes of columns, the text (OUTPUT and
                           ERRORS, then DONE) */
    MG_ATTACH_COMPLETE, /* Tab: 2 bytes of columns, 4 of the cursor, the input so far; it may begin
                           with lines before the one that is edited (DONE) */
    MG_ATTACH_CANCEL,   /* give up what was to be run, or runs (nothing of its own) */
    MG_ATTACH_PAUSE,    /* stop between two steps (DONE) */
    MG_ATTACH_CONTINUE, /* go on (DONE) */
    /* from the job */
    MG_ATTACH_HELLO,  /* the version of the program */
    MG_ATTACH_TOLD,   /* lines */
    MG_ATTACH_OUTPUT, /* a piece of standard output */
    MG_ATTACH_ERRORS, /* a piece of standard error */
    MG_ATTACH_DONE,   /* a byte, mg_attach_result; then the answer to COMPLETE or a sentence */
} mg_attach_kind;

typedef enum mg_attach_result {
    MG_ATTACH_FINE,
    MG_ATTACH_FAILED, /* it raised an error, which was told */
    MG_ATTACH_GIVEN_UP
} mg_attach_result;

enum {
    MG_ATTACH_KINDS = MG_ATTACH_DONE + 1,
    MG_ATTACH_PROTOCOL = 1,
    MG_ATTACH_HEAD = 8,
    MG_ATTACH_AT_TEXT = 7,    /* in the body of COMPLETE: behind a byte of flags, columns, cursor */
    MG_ATTACH_AT_CODE = 3,    /* in that of RUN */
    MG_ATTACH_SCRIPT = 1,     /* flag of RUN: values are not printed, locals are the chunk's */
    MG_ATTACH_MOST = 1 << 20, /* bytes of any body */
    MG_ATTACH_PIECE = 32 << 10 /* bytes of OUTPUT and ERRORS */
};

/* Writes the head of a record. */
void mg_attach_head(uint8_t to[MG_ATTACH_HEAD], mg_attach_kind kind, size_t bytes);

/* Little-endian numbers of so many bytes. */
void mg_attach_put(uint8_t *to, uint32_t number, int bytes);
uint32_t mg_attach_number(const uint8_t *from, int bytes);

/* Starts as zeros; mg_attach_reader_free at the end. */
typedef struct mg_attach_reader {
    bool at_job; /* which kinds it takes */
    uint8_t head[MG_ATTACH_HEAD];
    uint8_t *body;     /* owned, with a zero byte behind it; NULL while the head is not complete */
    size_t bytes, got; /* of the body; got: of head and body */
    int version;       /* of the other side; 0: not known yet */
} mg_attach_reader;

/* Where the next bytes belong, and how many are wanted. 0: a record without a body is complete. */
void *mg_attach_room(mg_attach_reader *reader, size_t *wanted);
/* Takes note of n bytes that were put there. *complete: kind, body and bytes are valid until
 * mg_attach_next. MG_DATA: these bytes are no record; MG_UNSUPPORTED: one of another version of the
 * protocol; MG_OOM. The reader is then of no more use. */
mg_status mg_attach_received(mg_attach_reader *reader, size_t n, bool *complete);
mg_attach_kind mg_attach_kind_of(const mg_attach_reader *reader);
/* Makes the reader ready for the next record. */
void mg_attach_next(mg_attach_reader *reader);
void mg_attach_reader_free(mg_attach_reader *reader);

#endif
