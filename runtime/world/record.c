/* Writing and reading records. The head: 'm', 'g', the version of the protocol, the kind, and the
 * bytes of the body. The body: number, value, length of the text, text, data. Numbers are
 * little-endian. */
#include "world/record.h"
#include "core/alloc.h"
#include <string.h>

enum { PROTOCOL = 1, AT_PROTOCOL = 2, AT_KIND = 3, AT_BYTES = 4, AT_VALUE = 4, AT_LENGTH = 12 };

/* The most bytes of data in a record of each kind. */
static const size_t most_data[MG_RECORD_KINDS] = {
    [MG_RECORD_HELLO] = MG_RECORD_SMALL - MG_RECORD_FIXED - MG_RECORD_TEXT_BYTES,
    [MG_RECORD_REFUSED] = MG_RECORD_SENTENCE,
    [MG_RECORD_END] = MG_RECORD_SENTENCE,
    [MG_RECORD_START] = MG_RECORD_RANKS * MG_RECORD_START_BYTES,
    [MG_RECORD_LEFT] = MG_RECORD_RANKS * MG_RECORD_LEFT_BYTES,
    [MG_RECORD_PUT] = MG_RECORD_VALUE_BYTES,
    [MG_RECORD_VALUE] = MG_RECORD_VALUE_BYTES,
};

void mg_record_put_number(uint8_t *to, uint64_t number, int bytes) {
    for (int i = 0; i < bytes; i++) to[i] = (uint8_t)(number >> 8 * i);
}

uint64_t mg_record_number_at(const uint8_t *from, int bytes) {
    uint64_t number = 0;
    for (int i = 0; i < bytes; i++) number |= (uint64_t)from[i] << 8 * i;
    return number;
}

/* The head is complete: what does it announce? */
static mg_status read_head(mg_record_reader *reader) {
    const uint8_t *head = reader->head, kind = head[AT_KIND];
    const size_t bytes = mg_record_number_at(head + AT_BYTES, 4);
    if (head[0] != 'm' || head[1] != 'g') return mg_fail(MG_DATA, "not a record");
    if (head[AT_PROTOCOL] != PROTOCOL)
        return mg_fail(MG_UNSUPPORTED, "version %d of the protocol, here %d", head[AT_PROTOCOL],
                       PROTOCOL);
    if (kind >= MG_RECORD_KINDS || (!reader->trusted && kind != MG_RECORD_HELLO))
        return mg_fail(MG_DATA, "an unexpected record of kind %d", kind);
    if (bytes < MG_RECORD_FIXED || bytes > MG_RECORD_FIXED + MG_RECORD_TEXT_BYTES + most_data[kind])
        return mg_fail(MG_DATA, "a record of kind %d with %zu bytes", kind, bytes);
    if (bytes > MG_RECORD_SMALL && !(reader->large = mg_alloc(bytes))) return MG_OOM;
    reader->bytes = bytes;
    return MG_OK;
}

static const uint8_t *body_of(const mg_record_reader *reader) {
    return reader->large ? reader->large : reader->small;
}

static mg_status read_body(mg_record_reader *reader, mg_record *r) {
    const uint8_t *body = body_of(reader);
    const size_t length = body[AT_LENGTH], rest = reader->bytes - MG_RECORD_FIXED;
    const mg_record_kind kind = reader->head[AT_KIND];
    if (length > rest || rest - length > most_data[kind])
        return mg_fail(MG_DATA, "a record of kind %d with a text of %zu bytes", (int)kind, length);
    memcpy(reader->text, body + MG_RECORD_FIXED, length);
    reader->text[length] = '\0';
    *r = (mg_record){.kind = kind,
                     .number = (uint32_t)mg_record_number_at(body, 4),
                     .value = mg_record_number_at(body + AT_VALUE, 8),
                     .text = reader->text,
                     .data = body + MG_RECORD_FIXED + length,
                     .bytes = rest - length};
    return MG_OK;
}

size_t mg_record_write(const mg_record *r,
                       uint8_t to[MG_RECORD_HEAD + MG_RECORD_FIXED + MG_RECORD_TEXT_BYTES]) {
    const char *text = r->text ? r->text : "";
    const size_t length = strnlen(text, MG_RECORD_TEXT_BYTES);
    const size_t written = MG_RECORD_HEAD + MG_RECORD_FIXED + length;
    uint8_t *body = to + MG_RECORD_HEAD;
    to[0] = 'm', to[1] = 'g', to[AT_PROTOCOL] = PROTOCOL, to[AT_KIND] = (uint8_t)r->kind;
    mg_record_put_number(to + AT_BYTES, written - MG_RECORD_HEAD + r->bytes, 4);
    mg_record_put_number(body, r->number, 4);
    mg_record_put_number(body + AT_VALUE, r->value, 8);
    body[AT_LENGTH] = (uint8_t)length;
    memcpy(body + MG_RECORD_FIXED, text, length);
    return written;
}

void *mg_record_room(mg_record_reader *reader, size_t *wanted) {
    if (!reader->bytes) {
        *wanted = MG_RECORD_HEAD - reader->got;
        return reader->head + reader->got;
    }
    const size_t got = reader->got - MG_RECORD_HEAD;
    *wanted = reader->bytes - got;
    return (reader->large ? reader->large : reader->small) + got;
}

mg_status mg_record_received(mg_record_reader *reader, size_t n, mg_record *r, bool *complete) {
    *complete = false;
    reader->got += n;
    if (!reader->bytes) return reader->got == MG_RECORD_HEAD ? read_head(reader) : MG_OK;
    if (reader->got < MG_RECORD_HEAD + reader->bytes) return MG_OK;
    *complete = true;
    return read_body(reader, r);
}

void mg_record_next(mg_record_reader *reader) {
    mg_free(reader->large);
    reader->large = NULL;
    reader->bytes = reader->got = 0;
}

/* A large body is handed over instead of copied. */
void *mg_record_take_data(mg_record_reader *reader, const mg_record *r) {
    uint8_t *block = reader->large;
    if (!block) block = mg_alloc(r->bytes);
    if (block && r->bytes) memmove(block, r->data, r->bytes);
    if (block == reader->large) reader->large = NULL;
    return block;
}

void mg_record_reader_free(mg_record_reader *reader) {
    mg_free(reader->large);
    reader->large = NULL;
}
