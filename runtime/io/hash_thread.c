/* A thread that hashes the bytes that its owner writes. */
#include "io/hash_thread.h"
#include "core/threads.h"

/* In bytes: from this size on, hashing takes much longer than starting a thread. */
enum { WORTH_A_THREAD = 4 << 20 };

static void *hash_main(void *argument) {
    mg_hash_thread *h = argument;
    pthread_mutex_lock(&h->mutex);
    for (;;) {
        while (!h->bytes && !h->end) pthread_cond_wait(&h->changed, &h->mutex);
        if (!h->bytes) break;
        pthread_mutex_unlock(&h->mutex);
        XXH3_64bits_update(&h->state, h->bytes, h->n);
        pthread_mutex_lock(&h->mutex);
        h->bytes = NULL;
        pthread_cond_signal(&h->changed);
    }
    pthread_mutex_unlock(&h->mutex);
    return NULL;
}

void mg_hash_thread_start(mg_hash_thread *h, int64_t bytes) {
    XXH3_64bits_reset(&h->state);
    h->bytes = NULL;
    h->end = h->started = false;
    if (bytes < WORTH_A_THREAD || mg_core_count() < 2) return;
    pthread_mutex_init(&h->mutex, NULL);
    pthread_cond_init(&h->changed, NULL);
    h->started = mg_thread_start(&h->thread, hash_main, h);
    if (h->started) return;
    pthread_cond_destroy(&h->changed);
    pthread_mutex_destroy(&h->mutex);
}

void mg_hash_thread_wait(mg_hash_thread *h) {
    if (!h->started) return;
    pthread_mutex_lock(&h->mutex);
    while (h->bytes) pthread_cond_wait(&h->changed, &h->mutex);
    pthread_mutex_unlock(&h->mutex);
}

void mg_hash_thread_add(mg_hash_thread *h, const void *bytes, size_t n) {
    mg_hash_thread_wait(h);
    if (!h->started) {
        XXH3_64bits_update(&h->state, bytes, n);
        return;
    }
    pthread_mutex_lock(&h->mutex);
    h->bytes = bytes;
    h->n = n;
    pthread_cond_signal(&h->changed);
    pthread_mutex_unlock(&h->mutex);
}

uint64_t mg_hash_thread_end(mg_hash_thread *h) {
    mg_hash_thread_wait(h);
    if (h->started) {
        pthread_mutex_lock(&h->mutex);
        h->end = true;
        pthread_cond_signal(&h->changed);
        pthread_mutex_unlock(&h->mutex);
        pthread_join(h->thread, NULL);
        pthread_cond_destroy(&h->changed);
        pthread_mutex_destroy(&h->mutex);
    }
    return XXH3_64bits_digest(&h->state);
}
