/* The speed of a transport between ranks 0 and 1: half of the time of a round trip, the best of
 * several trials.
 *
 *     transport_speed KIND BYTES...     prints "BYTES SECONDS" for each size */
#include "../world/peers.h"

enum { TRIALS = 15 };

static const double TRIAL_SECONDS = 0.1;

static void round_trip(const peers *p, char *data, size_t bytes) {
    for (int half = 0; half < 2; half++)
        peers_wait(p, half == p->rank ? peers_send(p, 1 - p->rank, 1, data, bytes)
                                      : peers_receive(p, 1 - p->rank, 1, data, bytes));
}

static double time_of(const peers *p, char *data, size_t bytes, int rounds) {
    const double start = mg_seconds();
    for (int i = 0; i < rounds; i++) round_trip(p, data, bytes);
    return (mg_seconds() - start) / rounds / 2;
}

int main(int argc, char **argv) {
    const peers p = peers_start(argv[1]);
    for (int i = 2; i < argc && p.rank < 2; i++) {
        const size_t bytes = strtoull(argv[i], NULL, 10);
        char *data = mg_alloc(bytes);
        if (!data) return 1;
        memset(data, 1, bytes);
        double best = time_of(&p, data, bytes, 2);
        int rounds = 1 + (int)(TRIAL_SECONDS / best / 2);
        if (p.rank == 0) peers_wait(&p, peers_send(&p, 1, 2, &rounds, sizeof rounds));
        if (p.rank == 1) peers_wait(&p, peers_receive(&p, 0, 2, &rounds, sizeof rounds));
        for (int k = 0; k < TRIALS; k++) {
            const double seconds = time_of(&p, data, bytes, rounds);
            if (seconds < best) best = seconds;
        }
        if (p.rank == 0) printf("%zu %.9f\n", bytes, best);
        mg_free(data);
    }
    p.api->stop(p.transport, true);
    return 0;
}
