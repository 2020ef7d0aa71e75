/* A message of more than 2^31 bytes, and one behind it with the same tag, from rank 0 to rank 1.
 *
 *     large KIND */
#include "peers.h"
#include <sys/mman.h>

enum { TAG = 1, MARK_EVERY = 64 << 20 };

static const size_t BYTES = ((size_t)1 << 31) + 12345;

/* Pages that are never written cost the sender no memory. */
static unsigned char *pages(void) {
    void *data = mmap(NULL, BYTES, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) exit(2);
    return data;
}

static unsigned char mark(size_t at) {
    return (unsigned char)(at / MARK_EVERY + 1);
}

int main(int argc, char **argv) {
    const peers p = peers_start(argv[argc - 1]);
    unsigned char *data = pages(), behind = 99;
    mg_message *m[2];
    int wrong = 0;
    for (size_t i = 0; p.rank == 0 && i < BYTES; i += MARK_EVERY) data[i] = mark(i);
    if (p.rank == 0) data[BYTES - 1] = 77;
    m[0] = p.rank ? peers_receive(&p, 0, TAG, data, BYTES) : peers_send(&p, 1, TAG, data, BYTES);
    if (p.rank) behind = 0;
    m[1] = p.rank ? peers_receive(&p, 0, TAG, &behind, 1) : peers_send(&p, 1, TAG, &behind, 1);
    for (int i = 0; i < 2; i++) peers_wait(&p, m[i]);
    for (size_t i = 0; i < BYTES; i += MARK_EVERY)
        wrong += data[i] != mark(i) || (i && data[i - 1] != 0);
    wrong += behind != 99 || data[BYTES - 1] != 77;
    printf("rank %d: %d wrong\n", p.rank, wrong);
    p.api->stop(p.transport, true);
    return wrong != 0;
}
