/* The lists in records: who is in the world (START: for each rank its pid in 4 bytes, the length of
 * its host's name in 1, the name), and who has left it (LEFT: rank in 4 bytes, step in 8). A list
 * of n processes is sent to n processes, so it is one record and not n. */
#include "core/alloc.h"
#include "core/printable.h"
#include "world/hub_state.h"
#include <string.h>

enum { PID = 4, LENGTH = 1, RANK = 4, STEP = 8 };

mg_status mg_hub_pack_members(mg_hub *h, mg_record *start) {
    size_t n = 0;
    h->roster = mg_alloc((size_t)h->size * MG_RECORD_START_BYTES);
    if (!h->roster) return MG_OOM;
    for (int i = 0; i < h->size; i++) {
        const mg_hub_member *member = &h->members[i];
        const size_t length = strlen(member->host);
        mg_record_put_number(h->roster + n, (uint64_t)member->pid, PID);
        mg_record_put_number(h->roster + n + PID, length, LENGTH);
        memcpy(h->roster + n + PID + LENGTH, member->host, length);
        n += PID + LENGTH + length;
    }
    start->data = h->roster;
    start->bytes = n;
    return MG_OK;
}

bool mg_hub_unpack_members(mg_hub_member *members, int size, const mg_record *start) {
    const uint8_t *at = start->data, *end = at + start->bytes;
    for (int i = 0; i < size; i++) {
        if (end - at < PID + LENGTH || end - at - PID - LENGTH < at[PID]) return false;
        members[i].pid = (int)mg_record_number_at(at, PID);
        mg_printable((const char *)at + PID + LENGTH, at[PID], true, members[i].host,
                     sizeof members[i].host);
        at += PID + LENGTH + at[PID];
    }
    return at == end;
}

void mg_hub_note_left(mg_hub *h, int rank, uint64_t step) {
    uint8_t *to = h->departed + (size_t)h->n_departed++ * MG_RECORD_LEFT_BYTES;
    mg_record_put_number(to, (uint64_t)rank, RANK);
    mg_record_put_number(to + RANK, step, STEP);
    atomic_store(&h->left[rank], step + 1);
}

void mg_hub_tell_left(mg_hub *h) {
    const size_t n = (size_t)(h->n_departed - h->n_told);
    const mg_record r = {.kind = MG_RECORD_LEFT,
                         .data = h->departed + (size_t)h->n_told * MG_RECORD_LEFT_BYTES,
                         .bytes = n * MG_RECORD_LEFT_BYTES};
    for (int i = 0; i < h->n_links && n > 0; i++)
        if (h->links[i]->state == MG_LINK_JOINED) mg_link_send(h->links[i], &r, true);
    h->n_told = h->n_departed;
}

bool mg_hub_unpack_left(atomic_uint_fast64_t *left, int size, const mg_record *r) {
    const uint8_t *at = r->data;
    for (size_t n = r->bytes / MG_RECORD_LEFT_BYTES; n > 0; n--, at += MG_RECORD_LEFT_BYTES) {
        const uint64_t rank = mg_record_number_at(at, RANK);
        if (rank >= (uint64_t)size) return false;
        atomic_store(&left[rank], mg_record_number_at(at + RANK, STEP) + 1);
    }
    return r->bytes % MG_RECORD_LEFT_BYTES == 0;
}
