/* Rank 1 falls silent in the middle of messages; rank 0 gives them up, keeps their memory to itself
 * afterwards, and ends.
 *
 *     cancel KIND stopped     rank 1 stops itself by SIGSTOP
 *     cancel KIND dead        rank 1 kills itself
 *     cancel KIND leaves      no rank is silent; all end by exit() without stopping the transport
 */
#include "peers.h"
#include <signal.h>

enum { LARGE = 40 << 20, SMALL = 4, HELLO = 1, DATA = 2, KINDS = 4 };

/* Rank 0 prints the process id of rank 1, so that whoever started this can end it. */
static pid_t exchange_pid(const peers *p) {
    pid_t pid = getpid();
    if (p->rank == 1) peers_wait(p, peers_send(p, 0, HELLO, &pid, sizeof pid));
    if (p->rank == 0) peers_wait(p, peers_receive(p, 1, HELLO, &pid, sizeof pid));
    peers_barrier(p, HELLO);
    return pid;
}

/* Large and small messages, both ways. Rank 1 begins the same, so that some are under way. */
static void begin(const peers *p, int peer, unsigned char **data, mg_message **m) {
    for (int i = 0; i < KINDS; i++) {
        const size_t bytes = i / 2 ? LARGE : SMALL;
        data[i] = mg_alloc(bytes);
        if (!data[i]) exit(1);
        memset(data[i], 1, bytes);
        m[i] = i % 2 == p->rank ? peers_send(p, peer, DATA + (uint32_t)i, data[i], bytes)
                                : peers_receive(p, peer, DATA + (uint32_t)i, data[i], bytes);
    }
}

/* Makes progress for a while. What ends, well or not, is no longer there to be given up. */
static void progress(const peers *p, mg_message **m, double seconds) {
    const double until = mg_seconds() + seconds;
    while (mg_seconds() < until)
        for (int i = 0; i < KINDS; i++) {
            bool done = false;
            if (m[i] && p->api->test(p->transport, m[i], &done) != MG_OK)
                printf("failed: %s\n", mg_error_message());
            if (done) m[i] = NULL;
        }
}

/* Whether all bytes are equal to the first. */
static bool is_even(const unsigned char *data, size_t bytes) {
    return memcmp(data, data + 1, bytes - 1) == 0;
}

int main(int argc, char **argv) {
    const bool leaves = argc < 3 || strcmp(argv[2], "leaves") == 0;
    const peers p = peers_start(argv[1]);
    unsigned char *data[KINDS];
    mg_message *m[KINDS];
    const pid_t pid = exchange_pid(&p);
    if (leaves) return 0;
    if (p.rank > 1) pause();
    begin(&p, 1 - p.rank, data, m);
    if (p.rank == 1) {
        kill(getpid(), strcmp(argv[2], "dead") == 0 ? SIGKILL : SIGSTOP);
        progress(&p, m, 5); /* goes on as if nothing were */
        return 0;
    }
    progress(&p, m, 1);
    int given_up = 0, changed = 0;
    const double start = mg_seconds();
    for (int i = 0; i < KINDS; i++) {
        if (m[i]) p.api->cancel(p.transport, m[i]);
        given_up += m[i] != NULL;
    }
    const double seconds = mg_seconds() - start;
    if (p.api->send(p.transport, 1, HELLO, data[0], SMALL, &m[0]) != MG_OK)
        printf("later: %s\n", mg_error_message());
    for (int i = 0; i < KINDS; i++) memset(data[i], 2, i / 2 ? LARGE : SMALL);
    kill(pid, SIGCONT);
    usleep(500 * 1000);
    for (int i = 0; i < KINDS; i++) changed += !is_even(data[i], i / 2 ? LARGE : SMALL);
    p.api->stop(p.transport, false);
    printf("%d given up %s, %d changed later\n", given_up, seconds < 2 ? "in time" : "too late",
           changed);
    if (seconds >= 2) printf("%.3f s\n", seconds);
    fflush(stdout);
    return 76;
}
