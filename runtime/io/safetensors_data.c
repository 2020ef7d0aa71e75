/* Reading the tensors of a safetensors file, in pieces of the size of a huge page, which stay in
 * the processor's caches until they are hashed. Each block of a piece is checked for NaN and
 * infinity as soon as it is read.
 *
 * For large files, further threads read and check pieces, too. The hash needs the bytes in order,
 * so the calling thread computes it: it hashes the next piece as soon as it has been read, and
 * otherwise reads pieces like the others. */
#define _GNU_SOURCE
#include "core/alloc.h"
#include "core/threads.h"
#include "io/hash.h"
#include "io/safetensors.h"
#include <stdio.h>

/* In bytes: a piece; a block of a piece, which fits into the cache of a core; the size at which a
 * batch ends, which limits the host memory if the tensors are on another device; and the smallest
 * batch that is worth starting threads for. More than MAX_HELPERS threads do not read faster,
 * because memory is the limit. */
enum {
    PIECE = 2 << 20,
    BLOCK = 256 << 10,
    BATCH = 256 << 20,
    WORTH_THREADS = 16 << 20,
    MAX_HELPERS = 3
};

typedef struct piece {
    const mg_store_entry *entry;
    unsigned char *bytes;
    size_t n;
    int64_t position; /* in the file */
    bool done;        /* the bytes have been read */
    bool nonfinite;   /* once it is done: a NaN or an infinity is in it */
} piece;

/* Some tensors that follow one another in the file. */
typedef struct batch {
    mg_store_file *f;
    mg_store_entry *entries; /* borrowed */
    int n_entries, n_pieces;
    mg_store_room *rooms; /* owned: of the entries */
    piece *pieces;        /* owned: in the order of the file */
    pthread_t helpers[MAX_HELPERS];
    int n_helpers;
    /* under the mutex: the flag `done` of the pieces, and */
    pthread_mutex_t mutex;
    pthread_cond_t changed; /* a piece is done, or one has failed */
    int next;               /* the first piece that no thread has taken */
    mg_status status;       /* of the first failure */
    char message[512];
} batch;

/* ---- reading pieces ---- */

static mg_status read_piece(mg_store_file *f, piece *p) {
    for (size_t at = 0, got; at < p->n; at += got) {
        const size_t n = p->n - at < BLOCK ? p->n - at : BLOCK;
        MG_TRY(mg_io_read_at(f->file, p->bytes + at, n, p->position + (int64_t)at, &got));
        if (got < n)
            return mg_fail(MG_DATA, "%s: the file ends within %.80s", f->path, p->entry->name);
        const size_t count = n / mg_dtype_size(p->entry->dtype);
        if (p->entry->stored) continue; /* checked when it has been widened */
        p->nonfinite |= mg_store_has_nonfinite(p->entry->dtype, p->bytes + at, count);
    }
    return MG_OK;
}

/* Takes the next piece and reads it. The mutex is held, but released while reading. A failure is
 * stored in the batch with its message, because messages belong to threads; no further piece is
 * taken. */
static void read_next(batch *b) {
    piece *p = &b->pieces[b->next++];
    pthread_mutex_unlock(&b->mutex);
    const mg_status status = read_piece(b->f, p);
    pthread_mutex_lock(&b->mutex);
    p->done = status == MG_OK;
    if (status != MG_OK) b->next = b->n_pieces;
    if (status != MG_OK && b->status == MG_OK) {
        b->status = status;
        snprintf(b->message, sizeof b->message, "%s", mg_error_message());
    }
    pthread_cond_signal(&b->changed);
}

static void *helper_main(void *argument) {
    batch *b = argument;
    pthread_mutex_lock(&b->mutex);
    while (b->next < b->n_pieces) read_next(b);
    pthread_mutex_unlock(&b->mutex);
    return NULL;
}

/* The calling thread's part: reads pieces, and hashes them all in their order. */
static void read_and_hash(batch *b, mg_hash *hash) {
    pthread_mutex_lock(&b->mutex);
    for (int i = 0; i < b->n_pieces && b->status == MG_OK;) {
        if (b->pieces[i].done) {
            pthread_mutex_unlock(&b->mutex);
            mg_hash_add(hash, b->pieces[i].bytes, b->pieces[i].n);
            pthread_mutex_lock(&b->mutex);
            i++;
        } else if (b->next < b->n_pieces) {
            read_next(b);
        } else {
            pthread_cond_wait(&b->changed, &b->mutex);
        }
    }
    pthread_mutex_unlock(&b->mutex);
}

/* ---- threads ---- */

/* It is no error if fewer threads can be started. */
static void start_helpers(batch *b, int64_t bytes) {
    const int cores = bytes >= WORTH_THREADS ? mg_core_count() : 1;
    const int wanted = cores - 1 < MAX_HELPERS ? cores - 1 : MAX_HELPERS;
    while (b->n_helpers < wanted && mg_thread_start(&b->helpers[b->n_helpers], helper_main, b))
        b->n_helpers++;
}

static mg_status read_pieces(batch *b, int64_t bytes, mg_hash *hash) {
    pthread_mutex_init(&b->mutex, NULL);
    pthread_cond_init(&b->changed, NULL);
    start_helpers(b, bytes);
    read_and_hash(b, hash);
    for (int i = 0; i < b->n_helpers; i++) pthread_join(b->helpers[i], NULL);
    pthread_cond_destroy(&b->changed);
    pthread_mutex_destroy(&b->mutex);
    return b->status == MG_OK ? MG_OK : mg_fail(b->status, "%s", b->message);
}

/* ---- batches ---- */

/* The end of the piece that begins at byte `at` of n: at a multiple of PIECE in memory, so that no
 * two threads fill the same huge page. */
static int64_t piece_end(const unsigned char *bytes, int64_t at, int64_t n) {
    const int64_t size = PIECE - (int64_t)(((uintptr_t)bytes + (uintptr_t)at) % PIECE);
    return n - at < size ? n : at + size;
}

/* Divides the entries' bytes into pieces; the data begins at position `start` of the file. */
static mg_status make_pieces(batch *b, int64_t start) {
    int room = 0;
    for (int i = 0; i < b->n_entries; i++) {
        const mg_store_entry *e = &b->entries[i];
        const int64_t n = e->end - e->begin;
        unsigned char *bytes = mg_store_room_end(&b->rooms[i], e);
        for (int64_t at = 0, end; at < n; at = end) {
            end = piece_end(bytes, at, n);
            MG_TRY(mg_reserve((void **)&b->pieces, b->n_pieces, &room, sizeof *b->pieces));
            b->pieces[b->n_pieces++] = (piece){.entry = e,
                                               .bytes = bytes + at,
                                               .n = (size_t)(end - at),
                                               .position = start + e->begin + at};
        }
    }
    return MG_OK;
}

/* Adds the tensors, whose bytes have all been read, to the store. */
static mg_status take_all(batch *b) {
    const piece *p = b->pieces, *end = p + b->n_pieces;
    for (int i = 0; i < b->n_entries; i++) {
        mg_store_entry *e = &b->entries[i];
        for (; p < end && p->entry == e; p++) e->nonfinite |= p->nonfinite;
        MG_TRY(mg_store_room_widen(&b->rooms[i], e, b->f->path));
        MG_TRY(mg_store_file_take(b->f, e, &b->rooms[i]));
    }
    return MG_OK;
}

static mg_status read_batch(batch *b, int64_t start, mg_hash *hash) {
    const int64_t bytes = b->entries[b->n_entries - 1].end - b->entries[0].begin;
    b->rooms = mg_alloc_zero((size_t)b->n_entries * sizeof *b->rooms);
    mg_status status = b->rooms ? MG_OK : MG_OOM;
    for (int i = 0; i < b->n_entries && status == MG_OK; i++)
        status = mg_store_room_new(&b->rooms[i], &b->entries[i]);
    if (status == MG_OK) status = make_pieces(b, start);
    if (status == MG_OK) status = read_pieces(b, bytes, hash);
    if (status == MG_OK) status = take_all(b);
    for (int i = 0; b->rooms && i < b->n_entries; i++) mg_store_room_free(&b->rooms[i]);
    mg_free(b->rooms);
    mg_free(b->pieces);
    return status;
}

mg_status mg_safetensors_read_data(mg_store_file *f, int64_t start, uint64_t *digest) {
    mg_hash hash;
    mg_hash_begin(&hash);
    for (int i = 0; i < f->n_entries;) {
        batch b = {.f = f, .entries = &f->entries[i]};
        while (i < f->n_entries && f->entries[i].begin - b.entries->begin < BATCH)
            i++, b.n_entries++;
        MG_TRY(read_batch(&b, start, &hash));
    }
    *digest = mg_hash_end(&hash);
    return MG_OK;
}
