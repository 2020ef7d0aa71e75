/* The records that processes exchange with the hub: a head of 8 bytes, then a body.
 *
 * All kinds have one layout (the struct mg_record), so there is one writer and one reader. A reader
 * asks for the bytes that it wants next, so a body is received where it stays. Whoever has not
 * shown the token yet is read into a fixed buffer; the length of a body is limited, by its kind,
 * before memory is taken. */
#ifndef MG_WORLD_RECORD_H
#define MG_WORLD_RECORD_H

#include "core/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The kinds, and what their fields hold. Unnamed fields are 0 or empty. */
typedef enum mg_record_kind {
    MG_RECORD_HELLO,    /* to rank 0: number: rank; value: version; text: host; data: mg_hello */
    MG_RECORD_ACCEPTED, /* number: pid, text: host of rank 0 */
    MG_RECORD_REFUSED,  /* data: why */
    MG_RECORD_START,    /* all have joined; data: pids and hosts, see hub_lists.c */
    MG_RECORD_BEAT,     /* both ways, once a second; value: step, text: op */
    MG_RECORD_PUT,      /* to rank 0: number: of the request, text: key, data: the value */
    MG_RECORD_STORED,   /* the answer; number: of the request, value: an mg_status */
    MG_RECORD_GET,      /* to rank 0: number: of the request, value: milliseconds, text: key */
    MG_RECORD_VALUE,    /* the answer; number: of the request, data: the value */
    MG_RECORD_END,      /* both ways: the world is over; data: why */
    MG_RECORD_LEAVE,    /* to rank 0: goodbye; number: exit status, value: step */
    MG_RECORD_LEFT,     /* data: ranks that have said goodbye, see hub_lists.c */
} mg_record_kind;

enum {
    MG_RECORD_KINDS = MG_RECORD_LEFT + 1,
    MG_RECORD_TEXT_BYTES = 255,
    MG_RECORD_RANKS = 1024,                               /* in the lists of START and LEFT */
    MG_RECORD_START_BYTES = 4 + 1 + MG_RECORD_TEXT_BYTES, /* of a rank, at most */
    MG_RECORD_LEFT_BYTES = 4 + 8,
    MG_RECORD_VALUE_BYTES = 16 << 20, /* the largest value of the store */
    MG_RECORD_SENTENCE = 4096,        /* with its zero byte */
    MG_RECORD_HEAD = 8,
    MG_RECORD_FIXED = 13,
    MG_RECORD_SMALL = 512, /* a body of this size needs no memory */
};

typedef struct mg_record {
    mg_record_kind kind;
    uint32_t number;
    uint64_t value;
    const char *text; /* at most MG_RECORD_TEXT_BYTES, and a zero byte; NULL: "" */
    const void *data;
    size_t bytes;
} mg_record;

/* Writes the head and all of the body but `data`; returns how many bytes that are. */
size_t mg_record_write(const mg_record *r,
                       uint8_t to[MG_RECORD_HEAD + MG_RECORD_FIXED + MG_RECORD_TEXT_BYTES]);

/* Little-endian numbers of so many bytes. */
void mg_record_put_number(uint8_t *to, uint64_t number, int bytes);
uint64_t mg_record_number_at(const uint8_t *from, int bytes);

/* Starts as zeros; mg_record_reader_free at the end. */
typedef struct mg_record_reader {
    bool trusted; /* false: only HELLO is taken */
    uint8_t head[MG_RECORD_HEAD], small[MG_RECORD_SMALL];
    uint8_t *large; /* owned; NULL: the body is in `small` */
    size_t bytes;   /* of the body; 0 while the head is not complete */
    size_t got;     /* of head and body */
    char text[MG_RECORD_TEXT_BYTES + 1];
} mg_record_reader;

/* Where the next bytes belong, and how many are wanted: at least 1. */
void *mg_record_room(mg_record_reader *reader, size_t *wanted);
/* Takes note of n bytes that were put there. *complete: r holds a record, whose text and data are
 * valid until mg_record_next. MG_DATA: these bytes are no record; MG_UNSUPPORTED: a record of
 * another version of the protocol; MG_OOM. The reader is then of no more use. */
mg_status mg_record_received(mg_record_reader *reader, size_t n, mg_record *r, bool *complete);
/* Makes the reader ready for the next record. */
void mg_record_next(mg_record_reader *reader);
/* The data of the complete record as an owned block, for mg_free. NULL: MG_OOM. */
void *mg_record_take_data(mg_record_reader *reader, const mg_record *r);
void mg_record_reader_free(mg_record_reader *reader);

#endif
