/* What goes wrong between rank 0, which sends, and rank 1: messages of other sizes than expected.
 * At the end the transport is started once more.
 *
 *     mismatch KIND */
#include "peers.h"

enum { TAG = 1 };

/* Rank 1 receives `room` bytes of a message of 4. */
static void receive_into(const peers *p, size_t room) {
    char data[64] = "abc";
    mg_message *m = p->rank ? peers_receive(p, 0, TAG, data, room) : peers_send(p, 1, TAG, data, 4);
    mg_status status = MG_OK;
    for (bool done = false; !done;) status = p->api->test(p->transport, m, &done);
    if (status != MG_OK) printf("rank %d, %zu: %s\n", p->rank, room, mg_error_message());
}

int main(int argc, char **argv) {
    const peers p = peers_start(argv[argc - 1]);
    receive_into(&p, 4);
    receive_into(&p, 8);
    receive_into(&p, 2);
    p.api->stop(p.transport, true);
    if (p.api->own_addresses) peers_start(argv[argc - 1]);
    return 0;
}
