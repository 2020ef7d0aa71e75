/* The processes other than rank 0: what rank 0 tells them, and calls that wait for its answer. */
#include "core/alloc.h"
#include "core/threads.h"
#include "world/hub_state.h"

static bool take_start(mg_hub *h, mg_link *link, const mg_record *r) {
    (void)link;
    if (h->started || !mg_hub_unpack_members(h->members, h->size, r)) return false;
    h->started = true;
    pthread_cond_broadcast(&h->changed);
    return true;
}

static bool take_beat(mg_hub *h, mg_link *link, const mg_record *r) {
    (void)h;
    mg_link_note(link, r);
    return true;
}

static mg_hub_request *request_of(mg_hub *h, uint32_t number) {
    mg_hub_request *request = h->requests;
    while (request && request->number != number) request = request->next;
    return request;
}

/* STORED or VALUE. The call may have given up. */
static bool take_outcome(mg_hub *h, mg_link *link, const mg_record *r) {
    mg_hub_request *request = request_of(h, r->number);
    if (!request || request->done) return true;
    request->done = true;
    request->status = r->kind == MG_RECORD_STORED ? (mg_status)r->value : MG_OK;
    if (r->kind == MG_RECORD_VALUE) {
        request->data = mg_record_take_data(&link->reader, r);
        request->bytes = r->bytes;
        if (!request->data) request->status = MG_OOM;
    }
    pthread_cond_broadcast(&h->changed);
    return true;
}

static bool take_left(mg_hub *h, mg_link *link, const mg_record *r) {
    (void)link;
    return mg_hub_unpack_left(h->left, h->size, r);
}

static bool take_end(mg_hub *h, mg_link *link, const mg_record *r) {
    (void)link;
    mg_hub_take_end(h, r);
    return true;
}

bool mg_hub_take_answer(mg_hub *h, mg_link *link, const mg_record *r) {
    static bool (*const take[MG_RECORD_KINDS])(mg_hub *, mg_link *, const mg_record *) = {
        [MG_RECORD_START] = take_start,    [MG_RECORD_BEAT] = take_beat,
        [MG_RECORD_STORED] = take_outcome, [MG_RECORD_VALUE] = take_outcome,
        [MG_RECORD_END] = take_end,        [MG_RECORD_LEFT] = take_left,
    };
    return take[r->kind] && take[r->kind](h, link, r);
}

static void forget_request(mg_hub *h, const mg_hub_request *request) {
    mg_hub_request **place = &h->requests;
    while (*place != request) place = &(*place)->next;
    *place = request->next;
}

mg_status mg_hub_request_wait(mg_hub *h, const mg_record *what, double patience,
                              mg_hub_request *request) {
    mg_record r = *what;
    mg_status status = MG_OK;
    const double until = mg_seconds() + patience;
    pthread_mutex_lock(&h->mutex);
    r.number = h->next_request++;
    *request = (mg_hub_request){.next = h->requests, .number = r.number};
    h->requests = request;
    if (h->n_links) mg_link_send(h->links[0], &r, false);
    mg_hub_wake(h);
    while (!request->done && status == MG_OK && mg_seconds() < until)
        status = mg_hub_wait(h, until);
    forget_request(h, request);
    pthread_mutex_unlock(&h->mutex);
    if (status != MG_OK) mg_free(request->data); /* interrupted when it had just come */
    return status;
}
