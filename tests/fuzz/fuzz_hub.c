/* Fuzzer of the records of the hub: any bytes must be read as records or refused, without leaking
 * memory, and a record that was read must be written as it came. The first byte says whether the
 * other side has shown the token, and how many bytes come at a time. Run by `make fuzz`. */
#include "core/alloc.h"
#include "world/hub_state.h"
#include <stdlib.h>
#include <string.h>

enum { TRUSTED = 1, PROCESSES = 3 };

/* `came` begins with the head of the record. */
static void look_at(mg_record_reader *reader, const mg_record *r, const uint8_t *came) {
    uint8_t head[MG_RECORD_HEAD + MG_RECORD_FIXED + MG_RECORD_TEXT_BYTES];
    if ((int)r->kind >= MG_RECORD_KINDS || strlen(r->text) > MG_RECORD_TEXT_BYTES) abort();
    if (!reader->trusted && (r->kind != MG_RECORD_HELLO || reader->large)) abort();
    const size_t n = mg_record_write(r, head), length = came[MG_RECORD_HEAD + 12];
    /* A text with a zero byte is cut there. */
    if (strlen(r->text) == length &&
        (memcmp(head, came, n) != 0 || memcmp(r->data, came + n, r->bytes) != 0))
        abort();
    mg_hub_member members[PROCESSES];
    atomic_uint_fast64_t left[PROCESSES];
    if (r->kind == MG_RECORD_START) mg_hub_unpack_members(members, PROCESSES, r);
    if (r->kind == MG_RECORD_LEFT) mg_hub_unpack_left(left, PROCESSES, r);
    void *data = mg_record_take_data(reader, r);
    if (!data || memcmp(data, came + MG_RECORD_HEAD + MG_RECORD_FIXED + length, r->bytes) != 0)
        abort();
    mg_free(data);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    const int64_t blocks = mg_alloc_get_stats().live_blocks;
    mg_record_reader reader = {.trusted = n && bytes[0] & TRUSTED};
    const size_t at_a_time = n ? 1 + (bytes[0] >> 1) : 1;
    mg_status status = MG_OK;
    for (size_t at = 1, start = 1; at < n && status == MG_OK;) {
        mg_record r;
        bool complete;
        size_t wanted;
        void *to = mg_record_room(&reader, &wanted);
        if (!wanted) abort();
        if (wanted > at_a_time) wanted = at_a_time;
        if (wanted > n - at) wanted = n - at;
        memcpy(to, bytes + at, wanted);
        at += wanted;
        status = mg_record_received(&reader, wanted, &r, &complete);
        if (status != MG_OK || !complete) continue;
        look_at(&reader, &r, bytes + start);
        mg_record_next(&reader);
        start = at;
    }
    mg_record_reader_free(&reader);
    if (mg_alloc_get_stats().live_blocks != blocks) abort();
    return 0;
}
