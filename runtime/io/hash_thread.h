/* The XXH3 hash of bytes while they are being written: for large data, and if the process may use
 * several cores, a separate thread computes it. */
#ifndef MG_IO_HASH_THREAD_H
#define MG_IO_HASH_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

typedef struct mg_hash_thread {
    XXH3_state_t state;
    bool started; /* else the caller's thread hashes */
    pthread_t thread;
    /* under the mutex: */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    const void *bytes; /* to be hashed, n of them; NULL: all is hashed */
    size_t n;
    bool end;
} mg_hash_thread;

/* Begins a hash of about `bytes` bytes. Every start needs an end. */
void mg_hash_thread_start(mg_hash_thread *h, int64_t bytes);
/* Adds n bytes, which must not change until the next call of any of these functions returns. */
void mg_hash_thread_add(mg_hash_thread *h, const void *bytes, size_t n);
/* Waits until all bytes that were added are hashed. */
void mg_hash_thread_wait(mg_hash_thread *h);
/* The hash of all bytes. */
uint64_t mg_hash_thread_end(mg_hash_thread *h);

#endif
