/* Writing and reading the records of attached prompts: see record.h. */
#include "program/attach/record.h"
#include "core/alloc.h"
#include <string.h>

enum { AT_PROTOCOL = 2, AT_KIND = 3, AT_BYTES = 4 };

/* The fewest and the most bytes of a body of each kind, and who reads it. */
static const struct limits {
    size_t least, most;
    bool to_job;
} limits[MG_ATTACH_KINDS] = {
    [MG_ATTACH_STATE] = {0, 0, true},
    [MG_ATTACH_WHERE] = {0, 0, true},
    [MG_ATTACH_RUN] = {MG_ATTACH_AT_CODE, MG_ATTACH_MOST, true},
    [MG_ATTACH_COMPLETE] = {MG_ATTACH_AT_TEXT, 64 << 10, true},
    [MG_ATTACH_CANCEL] = {0, 0, true},
    [MG_ATTACH_PAUSE] = {0, 0, true},
    [MG_ATTACH_CONTINUE] = {0, 0, true},
    [MG_ATTACH_HELLO] = {0, 64, false},
    [MG_ATTACH_TOLD] = {0, 128 << 10, false},
    [MG_ATTACH_OUTPUT] = {0, MG_ATTACH_PIECE, false},
    [MG_ATTACH_ERRORS] = {0, MG_ATTACH_PIECE, false},
    [MG_ATTACH_DONE] = {1, MG_ATTACH_MOST, false},
};

void mg_attach_put(uint8_t *to, uint32_t number, int bytes) {
    for (int i = 0; i < bytes; i++) to[i] = (uint8_t)(number >> 8 * i);
}

uint32_t mg_attach_number(const uint8_t *from, int bytes) {
    uint32_t number = 0;
    for (int i = 0; i < bytes; i++) number |= (uint32_t)from[i] << 8 * i;
    return number;
}

void mg_attach_head(uint8_t to[MG_ATTACH_HEAD], mg_attach_kind kind, size_t bytes) {
    to[0] = 'm', to[1] = 'a', to[AT_PROTOCOL] = MG_ATTACH_PROTOCOL, to[AT_KIND] = (uint8_t)kind;
    mg_attach_put(to + AT_BYTES, (uint32_t)bytes, 4);
}

/* The head is complete: what does it announce? */
static mg_status read_head(mg_attach_reader *reader) {
    const uint8_t *head = reader->head, kind = head[AT_KIND];
    const size_t bytes = mg_attach_number(head + AT_BYTES, 4);
    if (head[0] != 'm' || head[1] != 'a') return mg_fail(MG_DATA, "not a record");
    reader->version = head[AT_PROTOCOL];
    if (head[AT_PROTOCOL] != MG_ATTACH_PROTOCOL)
        return mg_fail(MG_UNSUPPORTED, "version %d of the protocol, here %d", head[AT_PROTOCOL],
                       MG_ATTACH_PROTOCOL);
    if (kind >= MG_ATTACH_KINDS || limits[kind].to_job != reader->at_job)
        return mg_fail(MG_DATA, "an unexpected record of kind %d", kind);
    if (bytes < limits[kind].least || bytes > limits[kind].most)
        return mg_fail(MG_DATA, "a record of kind %d with %zu bytes", kind, bytes);
    reader->body = mg_alloc(bytes + 1);
    if (!reader->body) return MG_OOM;
    reader->body[bytes] = 0;
    reader->bytes = bytes;
    return MG_OK;
}

void *mg_attach_room(mg_attach_reader *reader, size_t *wanted) {
    if (!reader->body) {
        *wanted = MG_ATTACH_HEAD - reader->got;
        return reader->head + reader->got;
    }
    const size_t got = reader->got - MG_ATTACH_HEAD;
    *wanted = reader->bytes - got;
    return reader->body + got;
}

mg_status mg_attach_received(mg_attach_reader *reader, size_t n, bool *complete) {
    *complete = false;
    reader->got += n;
    if (reader->got < MG_ATTACH_HEAD) return MG_OK;
    if (!reader->body) MG_TRY(read_head(reader));
    *complete = reader->got == MG_ATTACH_HEAD + reader->bytes;
    return MG_OK;
}

mg_attach_kind mg_attach_kind_of(const mg_attach_reader *reader) {
    return (mg_attach_kind)reader->head[AT_KIND];
}

void mg_attach_next(mg_attach_reader *reader) {
    mg_attach_reader_free(reader);
    reader->bytes = reader->got = 0;
}

void mg_attach_reader_free(mg_attach_reader *reader) {
    mg_free(reader->body);
    reader->body = NULL;
}
