/* All pairs of processes exchange messages: of many sizes, in both directions at the same time,
 * several at a time with several tags, received in another order of tags than they were sent.
 *
 *     exchange KIND [BYTES...] */
#include "peers.h"

enum { TAGS = 5, ROUNDS = 2, MOST_PEERS = 16 };

/* Tags that are equal in their low 31, 28 or 24 bits, as transports may have to map them. */
static const uint32_t tags[TAGS] = {3, 0x80000003u, 0x10000003u, 0xffffffffu, 0x01000003u};

static uint32_t seed_of(int from, int to, int tag, int round) {
    return 2654435761u * (uint32_t)(((from * MOST_PEERS + to) * TAGS + tag) * ROUNDS + round + 1);
}

static void fill(unsigned char *data, size_t bytes, uint32_t seed) {
    for (size_t i = 0; i < bytes; i++) data[i] = (unsigned char)((seed + i * 2246822519u) >> 16);
}

/* Whether the bytes are those of fill. */
static bool is_filled(const unsigned char *data, size_t bytes, uint32_t seed) {
    for (size_t i = 0; i < bytes; i++)
        if (data[i] != (unsigned char)((seed + i * 2246822519u) >> 16)) return false;
    return true;
}

typedef struct transfer {
    mg_message *m;
    unsigned char *data;
    int peer, tag, round;
    bool receives;
} transfer;

static void start(const peers *p, transfer *x, size_t bytes) {
    x->data = mg_alloc(bytes);
    if (!x->data) exit(1);
    fill(x->data, bytes, x->receives ? 0 : seed_of(p->rank, x->peer, x->tag, x->round));
    x->m = x->receives ? peers_receive(p, x->peer, tags[x->tag], x->data, bytes)
                       : peers_send(p, x->peer, tags[x->tag], x->data, bytes);
}

static void finish(const peers *p, transfer *x, size_t bytes) {
    peers_wait(p, x->m);
    if (x->receives && !is_filled(x->data, bytes, seed_of(x->peer, p->rank, x->tag, x->round))) {
        fprintf(stderr, "rank %d: message %d of %zu bytes with tag %u from rank %d is wrong\n",
                p->rank, x->round, bytes, (unsigned)tags[x->tag], x->peer);
        exit(1);
    }
    mg_free(x->data);
}

/* Large messages use one tag only, to save memory. Even ranks send first, odd ones receive first;
 * receives begin with the last tag. */
static void exchange(const peers *p, size_t bytes) {
    static transfer all[MOST_PEERS * TAGS * ROUNDS * 2];
    const int n_tags = bytes > (1 << 20) ? 1 : TAGS;
    int n = 0;
    for (int half = 0; half < 2; half++)
        for (int peer = 0; peer < p->size; peer++)
            for (int k = 0; k < n_tags * ROUNDS && peer != p->rank; k++) {
                const bool receives = (half + p->rank) % 2;
                const int tag = k / ROUNDS;
                all[n] = (transfer){.peer = peer, .round = k % ROUNDS, .receives = receives};
                all[n].tag = receives ? n_tags - 1 - tag : tag;
                start(p, &all[n++], bytes);
            }
    for (int i = n - 1; i >= 0; i--) finish(p, &all[i], bytes);
}

int main(int argc, char **argv) {
    static const size_t usual[] = {0, 4, 1 << 16, 3 << 20, 40 << 20};
    const peers p = peers_start(argv[1]);
    if (p.size > MOST_PEERS) return 2;
    for (int i = 2; i < argc; i++) exchange(&p, strtoull(argv[i], NULL, 10));
    for (int i = 0; argc == 2 && i < (int)(sizeof usual / sizeof *usual); i++)
        exchange(&p, usual[i]);
    printf("rank %d of %d: %s exchanged\n", p.rank, p.size, p.api->version(p.transport));
    p.api->stop(p.transport, true);
    return mg_alloc_get_stats().live_blocks ? 3 : 0;
}
