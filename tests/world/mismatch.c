/* What goes wrong between rank 0, which sends, and rank 1: messages of other sizes than expected.
 * At the end the transport is started once more.
 *
 *     mismatch KIND */
#include "peers.h"
#include <unistd.h>

enum { TAG = 1 };

/* Rank 1 receives `room` bytes of a message of 4. If the message is there already, the call that
 * begins to receive it may fail, else the test of it does. */
static void receive_into(const peers *p, size_t room, bool late) {
    char data[64] = "abc";
    if (p->rank && late) usleep(200000);
    mg_message *m = NULL;
    mg_status status = p->rank ? p->api->receive(p->transport, 0, TAG, data, room, &m)
                               : p->api->send(p->transport, 1, TAG, data, 4, &m);
    for (bool done = status != MG_OK; !done;) status = p->api->test(p->transport, m, &done);
    if (status != MG_OK)
        printf("rank %d, %zu%s: %s\n", p->rank, room, late ? " late" : "", mg_error_message());
}

int main(int argc, char **argv) {
    const peers p = peers_start(argv[argc - 1]);
    for (int late = 0; late < 2; late++) {
        receive_into(&p, 4, late);
        receive_into(&p, 8, late);
        receive_into(&p, 2, late);
    }
    p.api->stop(p.transport, true);
    if (p.api->own_addresses) peers_start(argv[argc - 1]);
    return 0;
}
