/* Fuzzer of the records of attached prompts: any bytes must be read as records or refused, without
 * leaking memory, and a record that was read has the head that writing it makes. The first byte
 * says which side reads, and how many bytes come at a time. Run by `make fuzz`. */
#include "core/alloc.h"
#include "program/attach/record.h"
#include <stdlib.h>
#include <string.h>

/* `came` begins with the head of the record. */
static void look_at(const mg_attach_reader *reader, const uint8_t *came) {
    uint8_t head[MG_ATTACH_HEAD];
    const mg_attach_kind kind = mg_attach_kind_of(reader);
    if ((int)kind >= MG_ATTACH_KINDS || (kind < MG_ATTACH_HELLO) != reader->at_job) abort();
    if (reader->bytes > MG_ATTACH_MOST || reader->body[reader->bytes] != 0) abort();
    if (kind == MG_ATTACH_RUN && reader->bytes < MG_ATTACH_AT_CODE) abort();
    if (kind == MG_ATTACH_COMPLETE && reader->bytes < MG_ATTACH_AT_TEXT) abort();
    mg_attach_head(head, kind, reader->bytes);
    if (memcmp(head, came, sizeof head) != 0) abort();
    if (memcmp(reader->body, came + sizeof head, reader->bytes) != 0) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    const int64_t blocks = mg_alloc_get_stats().live_blocks;
    mg_attach_reader reader = {.at_job = n && bytes[0] & 1};
    const size_t at_a_time = n ? 1 + (bytes[0] >> 1) : 1;
    mg_status status = MG_OK;
    for (size_t at = 1, start = 1; at < n && status == MG_OK;) {
        bool complete;
        size_t wanted;
        void *to = mg_attach_room(&reader, &wanted);
        if (!wanted) abort();
        if (wanted > at_a_time) wanted = at_a_time;
        if (wanted > n - at) wanted = n - at;
        memcpy(to, bytes + at, wanted);
        at += wanted;
        status = mg_attach_received(&reader, wanted, &complete);
        if (status != MG_OK || !complete) continue;
        look_at(&reader, bytes + start);
        mg_attach_next(&reader);
        start = at;
    }
    mg_attach_reader_free(&reader);
    if (mg_alloc_get_stats().live_blocks != blocks) abort();
    return 0;
}
