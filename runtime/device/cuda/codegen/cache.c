/* The disk cache: one file per entry, {header, key, data}, which is checked before it is used. */
#include "device/cuda/codegen/codegen.h"
#include "core/fnv.h"
#include "core/alloc.h"
#include "core/io.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* FORMAT: version of the file layout. PATH: bytes of a path. TRIM_EVERY: writes between two trims.
 */
enum { FORMAT = 1, PATH = 4096, TRIM_EVERY = 256 };
/* The maximum bytes of all entries after trimming. */
#define MOST ((int64_t)512 << 20)

static const char magic[8] = "MGCACHE";

typedef struct header {
    char magic[8];
    uint64_t format, key_bytes, data_bytes, checksum; /* of everything else */
} header;

/* Guards writing: two threads of a process would use the same temporary file. */
static pthread_mutex_t writing = PTHREAD_MUTEX_INITIALIZER;
static int writes; /* since the process began, for TRIM_EVERY */

/* FNV-1a is fast enough for sources of some kilobytes, and the full key is compared anyway. */
uint64_t mg_cuda_hash(uint64_t hash, const void *data, size_t n) {
    return mg_fnv(hash ? hash : MG_FNV_START, data, n);
}

/* The cache's folder; false if neither MGPU_CACHE nor HOME is set, or the path is too long. */
static bool find_folder(char *path, size_t room) {
    const char *chosen = getenv("MGPU_CACHE"), *home = getenv("HOME");
    int n = -1;
    if (chosen && *chosen)
        n = snprintf(path, room, "%s", chosen);
    else if (home && *home)
        n = snprintf(path, room, "%s/.cache/mgpulua", home);
    return n > 0 && (size_t)n < room;
}

/* The path of the entry for a key. */
static bool find_entry(char *path, size_t room, const char *kind, const char *key) {
    char folder[PATH];
    if (!find_folder(folder, sizeof folder)) return false;
    const int n = snprintf(path, room, "%s/%s-%016llx", folder, kind,
                           (unsigned long long)mg_cuda_hash(0, key, strlen(key)));
    return n > 0 && (size_t)n < room;
}

/* Over the header (with 0 in the place of the checksum), the key and the data. */
static uint64_t checksum(header h, const void *key, const void *data) {
    h.checksum = 0;
    uint64_t sum = mg_cuda_hash(0, &h, sizeof h);
    sum = mg_cuda_hash(sum, key, (size_t)h.key_bytes);
    return mg_cuda_hash(sum, data, (size_t)h.data_bytes);
}

/* ---- reading ---- */

/* The contents of a file, a block from mg_alloc, or NULL if it cannot be read. */
static char *read_file(const char *path, size_t *bytes) {
    int64_t size = 0;
    char *all = NULL;
    mg_file *f = mg_io_exists(path) ? mg_io_open(path) : NULL;
    if (!f) return NULL;
    if (mg_io_size(f, &size) == MG_OK) all = mg_alloc((size_t)size);
    if (all && (mg_io_read(f, all, (size_t)size, bytes) != MG_OK || *bytes != (size_t)size)) {
        mg_free(all);
        all = NULL;
    }
    mg_io_close(f);
    return all;
}

/* Whether a file's contents are an undamaged entry for this very key. */
static bool is_intact(const char *all, size_t bytes, const char *key) {
    header h;
    if (bytes < sizeof h) return false;
    memcpy(&h, all, sizeof h);
    const uint64_t rest = bytes - sizeof h;
    if (memcmp(h.magic, magic, sizeof magic) != 0 || h.format != FORMAT) return false;
    if (h.key_bytes != strlen(key) || h.key_bytes > rest || h.data_bytes != rest - h.key_bytes)
        return false;
    const char *kept = all + sizeof h;
    return memcmp(kept, key, h.key_bytes) == 0 &&
           checksum(h, kept, kept + h.key_bytes) == h.checksum;
}

/* Moves the data to the front of the block that was read, and returns that block. */
void *mg_cuda_cache_read(const char *kind, const char *key, size_t *bytes) {
    char path[PATH + 64];
    size_t size = 0;
    if (!find_entry(path, sizeof path, kind, key)) return NULL;
    char *all = read_file(path, &size);
    if (all && is_intact(all, size, key)) {
        const size_t before = sizeof(header) + strlen(key);
        *bytes = size - before;
        memmove(all, all + before, *bytes);
        return all;
    }
    mg_free(all);
    mg_error_clear();
    return NULL;
}

/* ---- writing ---- */

/* The file appears under its name only when it is complete (mg_io_commit). */
static mg_status write_entry(const char *path, const char *key, const void *data, size_t bytes) {
    header h = {.format = FORMAT, .key_bytes = strlen(key), .data_bytes = bytes};
    memcpy(h.magic, magic, sizeof magic);
    h.checksum = checksum(h, key, data);
    mg_file *f = mg_io_create(path);
    if (!f) return MG_IO;
    mg_status status = mg_io_write(f, &h, sizeof h);
    if (status == MG_OK) status = mg_io_write(f, key, h.key_bytes);
    if (status == MG_OK) status = mg_io_write(f, data, bytes);
    if (status == MG_OK) return mg_io_commit(f);
    mg_io_close(f);
    return status;
}

/* Errors are ignored: without the entry the next process does the work again. */
void mg_cuda_cache_write(const char *kind, const char *key, const void *data, size_t bytes) {
    char folder[PATH], path[PATH + 64];
    if (!find_folder(folder, sizeof folder) || !find_entry(path, sizeof path, kind, key)) return;
    pthread_mutex_lock(&writing);
    mg_status status = mg_io_make_folder(folder);
    if (status == MG_OK) status = write_entry(path, key, data, bytes);
    const bool trim = status == MG_OK && writes++ % TRIM_EVERY == 0;
    pthread_mutex_unlock(&writing);
    if (trim) mg_cuda_cache_trim(MOST);
    mg_error_clear();
}

/* ---- trimming ---- */

typedef struct entry { /* a file of the folder */
    char name[128];
    int64_t bytes, changed; /* its size and the time of its last change */
} entry;

typedef struct entries { /* a growing list */
    entry *items;
    size_t n, room;
} entries;

/* Whether a file is called <kind>-<16 digits>. */
static bool is_entry_name(const char *name) {
    const char *dash = strrchr(name, '-');
    const size_t digits = dash ? strspn(dash + 1, "0123456789abcdef") : 0;
    return digits == 16 && dash[17] == 0;
}

/* Called for each file of the folder: adds entries to the list. */
static mg_status add_entry(void *context, const char *name, int64_t bytes, int64_t changed) {
    entries *all = context;
    if (strlen(name) >= sizeof all->items->name || !is_entry_name(name)) return MG_OK;
    if (all->n == all->room) {
        const size_t room = 2 * all->room + 64;
        entry *wider = mg_realloc(all->items, room * sizeof *wider);
        if (!wider) return MG_OOM;
        all->items = wider;
        all->room = room;
    }
    entry *e = &all->items[all->n++];
    snprintf(e->name, sizeof e->name, "%s", name);
    e->bytes = bytes;
    e->changed = changed;
    return MG_OK;
}

/* For qsort. */
static int newest_first(const void *a, const void *b) {
    const int64_t x = ((const entry *)a)->changed, y = ((const entry *)b)->changed;
    return (x < y) - (x > y);
}

/* Removes the file if it begins as our entries do: the folder may hold files of others. */
static void remove_entry(const char *path) {
    char start[sizeof magic] = "";
    size_t got = 0;
    mg_file *f = mg_io_open(path);
    const bool ours = f && mg_io_read(f, start, sizeof start, &got) == MG_OK &&
                      memcmp(start, magic, sizeof magic) == 0;
    mg_io_close(f);
    if (ours) mg_io_remove(path);
}

/* Keeps the newest entries as long as their bytes fit. */
void mg_cuda_cache_trim(int64_t most) {
    char folder[PATH], path[PATH + 160];
    entries all = {0};
    int64_t kept = 0;
    if (find_folder(folder, sizeof folder) && mg_io_each(folder, add_entry, &all) == MG_OK) {
        qsort(all.items, all.n, sizeof *all.items, newest_first);
        for (size_t i = 0; i < all.n; i++) {
            kept += all.items[i].bytes;
            if (kept <= most) continue;
            snprintf(path, sizeof path, "%s/%s", folder, all.items[i].name);
            remove_entry(path);
        }
    }
    mg_free(all.items);
    mg_error_clear();
}
