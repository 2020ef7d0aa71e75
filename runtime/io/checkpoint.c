/* Checkpoints on disk: see checkpoint.h for the files and the order in which they are written. */
#define _GNU_SOURCE
#include "io/checkpoint.h"
#include "core/alloc.h"
#include "io/hash.h"
#include "io/safetensors.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char STATE[] = "state.safetensors", MANIFEST[] = "manifest", LATEST[] = "latest",
                  PREFIX[] = "checkpoint-", PART[] = ".part", TITLE[] = "mgpulua checkpoint ";
enum {
    PATH_ROOM = 4096,
    TEXT_ROOM = 512,           /* manifests and pointers are shorter */
    HASHED_AT_ONCE = 256 << 10 /* bytes */
};

/* ---- names ---- */

static mg_status fail_too_long(void) {
    return mg_fail(MG_USAGE, "the path of the checkpoints is longer than %d bytes", PATH_ROOM);
}

/* Writes DIR/checkpoint-NNNNNN, the suffix and "/file" (if it is given) to `path`. */
static mg_status name_of(char path[PATH_ROOM], const char *folder, int64_t number,
                         const char *suffix, const char *file) {
    const int n = snprintf(path, PATH_ROOM, "%s/%s%06" PRId64 "%s%s%s", folder, PREFIX, number,
                           suffix, file ? "/" : "", file ? file : "");
    return n < PATH_ROOM ? MG_OK : fail_too_long();
}

static mg_status name_of_latest(char path[PATH_ROOM], const char *folder) {
    return snprintf(path, PATH_ROOM, "%s/%s", folder, LATEST) < PATH_ROOM ? MG_OK : fail_too_long();
}

/* The number in the name checkpoint-NNNNNN; -1 for other names. *part: the name ends with ".part".
 */
static int64_t number_of(const char *name, bool *part) {
    if (strncmp(name, PREFIX, sizeof PREFIX - 1) != 0) return -1;
    const char *digits = name + sizeof PREFIX - 1;
    const size_t n = strspn(digits, "0123456789");
    if (n < 6 || n > 15) return -1;
    *part = strcmp(digits + n, PART) == 0;
    return digits[n] == 0 || *part ? strtoll(digits, NULL, 10) : -1;
}

/* What a walk over the folder finds. */
typedef struct found {
    int64_t *numbers; /* owned */
    int n, room;
    bool part; /* looks for .part folders, else for checkpoints */
} found;

static mg_status note_folder(void *context, const char *name, int64_t bytes, int64_t changed) {
    (void)bytes, (void)changed;
    found *all = context;
    bool part;
    const int64_t number = number_of(name, &part);
    if (number < 0 || part != all->part) return MG_OK;
    MG_TRY(mg_reserve((void **)&all->numbers, all->n, &all->room, sizeof *all->numbers));
    all->numbers[all->n++] = number;
    return MG_OK;
}

/* For qsort: the newest first. */
static int compare_numbers(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

/* The caller frees all->numbers, also after a failure. */
static mg_status find_all(const char *folder, found *all) {
    MG_TRY(mg_io_each_folder(folder, note_folder, all));
    if (all->n) qsort(all->numbers, (size_t)all->n, sizeof *all->numbers, compare_numbers);
    return MG_OK;
}

int64_t *mg_checkpoint_list(const char *folder, size_t *n) {
    found all = {.numbers = mg_alloc(sizeof *all.numbers), .room = 1};
    *n = 0;
    if (!all.numbers) return NULL;
    if (mg_io_folder_exists(folder) && find_all(folder, &all) != MG_OK) {
        mg_free(all.numbers);
        return NULL;
    }
    *n = (size_t)all.n;
    return all.numbers;
}

/* ---- texts with a hash ---- */

/* Writes a short text to a new file, atomically. */
static mg_status write_text(const char *path, const char *text) {
    mg_file *f = mg_io_create(path);
    if (!f) return mg_error_code();
    const mg_status status = mg_io_write(f, text, strlen(text));
    if (status == MG_OK) return mg_io_commit(f);
    mg_io_close(f);
    return status;
}

/* Reads a text of less than TEXT_ROOM bytes. A longer file is truncated, so its hash does not
 * match. */
static mg_status read_text(const char *path, char text[TEXT_ROOM]) {
    mg_file *f = mg_io_open(path);
    size_t got = 0;
    if (!f) return mg_error_code();
    const mg_status status = mg_io_read(f, text, TEXT_ROOM - 1, &got);
    mg_io_close(f);
    text[got] = 0;
    /* A zero byte inside would end the text early: treated as damaged. */
    if (status == MG_OK && strlen(text) != got) text[0] = 0;
    return status;
}

/* The whole text of a manifest, or of `latest`: its last line is the hash of all before it. */
static void seal(char text[TEXT_ROOM]) {
    const size_t n = strlen(text);
    snprintf(text + n, TEXT_ROOM - n, "xxh3 %016" PRIx64 "\n", (uint64_t)XXH3_64bits(text, n));
}

static void make_latest(char text[TEXT_ROOM], int64_t number) {
    snprintf(text, TEXT_ROOM, "%s%06" PRId64 "\n", PREFIX, number);
    seal(text);
}

/* ---- manifests ---- */

/* The contents of a manifest: size and XXH3 hash of each piece of the state's file, in order.
 * Version 1 has one piece; version 2 has two, the header and the data, so that both hashes are
 * known when the last byte is written, although the header contains a hash of the data. */
enum { MAX_PIECES = 2 };
typedef struct manifest {
    int n; /* pieces; also the version */
    int64_t bytes[MAX_PIECES];
    uint64_t hash[MAX_PIECES];
} manifest;

static void make_manifest(char text[TEXT_ROOM], const manifest *m) {
    size_t n = (size_t)snprintf(text, TEXT_ROOM, "%s%d\n", TITLE, m->n);
    for (int i = 0; i < m->n; i++)
        n += (size_t)snprintf(text + n, TEXT_ROOM - n, "%s %" PRId64 " %016" PRIx64 "\n", STATE,
                              m->bytes[i], m->hash[i]);
    seal(text);
}

/* Reads the manifest of a checkpoint, whose text must be exactly the one that was written. */
static mg_status read_manifest(const char *folder, int64_t number, manifest *m) {
    char path[PATH_ROOM], text[TEXT_ROOM], expected[TEXT_ROOM];
    MG_TRY(name_of(path, folder, number, "", MANIFEST));
    MG_TRY(read_text(path, text));
    *m = (manifest){0};
    const char *line = strchr(text, '\n');
    for (const size_t n = strlen(STATE); line && m->n < MAX_PIECES; line = strchr(line + 1, '\n')) {
        if (strncmp(line + 1, STATE, n) != 0) break;
        if (sscanf(line + 1 + n, "%" SCNd64 " %" SCNx64, &m->bytes[m->n], &m->hash[m->n]) != 2)
            break;
        m->n++;
    }
    make_manifest(expected, m);
    if (m->n > 0 && strcmp(text, expected) == 0) return MG_OK;
    return mg_fail(MG_DATA, "%s is damaged: its contents do not match its hash", path);
}

/* ---- reading ---- */

/* Adds `bytes` bytes at the file's position to a hash; fewer if it ends before. */
static mg_status hash_bytes(mg_file *f, int64_t bytes, char *block, mg_hash *hash) {
    size_t got = 1;
    for (int64_t done = 0; done < bytes && got > 0; done += (int64_t)got) {
        const int64_t left = bytes - done;
        MG_TRY(mg_io_read(f, block, left < HASHED_AT_ONCE ? (size_t)left : HASHED_AT_ONCE, &got));
        mg_hash_add(hash, block, got);
    }
    return MG_OK;
}

/* Compares the file's size, and the hashes of the first n pieces. */
static mg_status compare_state(mg_file *f, const char *path, const manifest *m, int n) {
    mg_hash hash;
    int64_t size = 0;
    uint64_t expected = 0;
    char *block = mg_alloc(HASHED_AT_ONCE);
    mg_status status = block ? mg_io_size(f, &size) : MG_OOM;
    for (int i = 0; i < m->n; i++) expected += (uint64_t)m->bytes[i];
    bool same = status == MG_OK && (uint64_t)size == expected;
    for (int i = 0; i < n && same; i++) {
        mg_hash_begin(&hash);
        status = hash_bytes(f, m->bytes[i], block, &hash);
        same = status == MG_OK && mg_hash_end(&hash) == m->hash[i];
    }
    mg_free(block);
    if (same || status != MG_OK) return status;
    return mg_fail(MG_DATA, "%s is damaged: its %" PRId64 " bytes do not match the manifest", path,
                   size);
}

/* With `whole`, all of the state is compared. Otherwise the data of version 2 is skipped, because
 * reading it compares it with the hash in the header. */
static mg_status verify(const char *folder, int64_t number, bool whole) {
    manifest m;
    char path[PATH_ROOM];
    MG_TRY(read_manifest(folder, number, &m));
    MG_TRY(name_of(path, folder, number, "", STATE));
    mg_file *f = mg_io_open(path);
    const mg_status status = f ? compare_state(f, path, &m, whole ? m.n : 1) : mg_error_code();
    mg_io_close(f);
    return status;
}

mg_status mg_checkpoint_verify(const char *folder, int64_t number) {
    return verify(folder, number, true);
}

mg_store *mg_checkpoint_load(const char *folder, int64_t number) {
    char path[PATH_ROOM];
    if (verify(folder, number, false) != MG_OK || name_of(path, folder, number, "", STATE) != MG_OK)
        return NULL;
    return mg_store_load(path);
}

/* The text must be exactly the one that was written. */
mg_status mg_checkpoint_latest(const char *folder, int64_t *number) {
    char path[PATH_ROOM], text[TEXT_ROOM], expected[TEXT_ROOM];
    bool part = false;
    *number = -1;
    MG_TRY(name_of_latest(path, folder));
    if (!mg_io_exists(path)) return MG_OK;
    MG_TRY(read_text(path, text));
    char name[TEXT_ROOM];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(text, "\n"), text);
    const int64_t named = number_of(name, &part);
    make_latest(expected, named < 0 ? 0 : named);
    if (named < 0 || part || strcmp(text, expected) != 0)
        return mg_fail(MG_DATA, "%s is damaged: its contents do not match its hash", path);
    *number = named;
    return MG_OK;
}

/* ---- removing ---- */

/* The folder whose files are removed, and the name of the one that stays, or NULL. */
typedef struct emptied {
    const char *path, *kept;
} emptied;

static mg_status remove_file(void *context, const char *name, int64_t bytes, int64_t changed) {
    (void)bytes, (void)changed;
    const emptied *e = context;
    char path[PATH_ROOM];
    if (e->kept && strcmp(name, e->kept) == 0) return MG_OK;
    if (snprintf(path, sizeof path, "%s/%s", e->path, name) >= PATH_ROOM) return fail_too_long();
    return mg_io_remove(path);
}

/* A part that was removed or renamed is no error: another process was faster. */
static mg_status unless_gone(mg_status status, const char *path) {
    if (status != MG_IO || mg_io_folder_exists(path)) return status;
    mg_error_clear();
    return MG_OK;
}

static mg_status remove_part(const char *folder, int64_t number) {
    char path[PATH_ROOM];
    MG_TRY(name_of(path, folder, number, PART, NULL));
    mg_status status = mg_io_each(path, remove_file, &(emptied){path, NULL});
    if (status == MG_OK) status = mg_io_remove_folder(path);
    return unless_gone(status, path);
}

/* Makes the part the spare one and keeps the file of its state. The rename to .part must survive a
 * crash of the machine before the file may be written over. */
static mg_status make_spare(const char *folder, mg_checkpoint_part *part) {
    char path[PATH_ROOM];
    MG_TRY(name_of(path, folder, part->number, PART, NULL));
    MG_TRY(mg_io_each(path, remove_file, &(emptied){path, STATE}));
    return mg_io_sync_folder(folder);
}

/* Removes a checkpoint, or makes it the spare one if `spare` is not NULL and still empty. It is
 * renamed first, so that an incomplete checkpoint never has the name of a checkpoint. */
static mg_status retire(const char *folder, int64_t number, mg_checkpoint_part *spare) {
    char from[PATH_ROOM], to[PATH_ROOM];
    mg_checkpoint_part part = {.number = number};
    MG_TRY(name_of(from, folder, number, "", NULL));
    MG_TRY(name_of(to, folder, number, PART, NULL));
    MG_TRY(mg_io_lock_folder(from, &part.lock));
    if (!part.lock) return MG_OK; /* another process is about to remove it */
    mg_status status = mg_io_rename(from, to);
    if (status == MG_OK && spare && !spare->lock) {
        status = make_spare(folder, &part);
        if (status == MG_OK) {
            *spare = part;
            return MG_OK;
        }
    } else if (status == MG_OK) {
        status = remove_part(folder, number);
    }
    mg_io_close(part.lock);
    return status;
}

mg_status mg_checkpoint_remove(const char *folder, int64_t number) {
    return retire(folder, number, NULL);
}

/* Retires all checkpoints but the newest `keep`, the oldest first. */
static mg_status retire_all_but(const char *folder, int keep, mg_checkpoint_part *spare) {
    found all = {0};
    mg_status status = find_all(folder, &all);
    for (int i = all.n - 1; status == MG_OK && i >= keep; i--)
        status = retire(folder, all.numbers[i], spare);
    mg_free(all.numbers);
    return status;
}

/* Removes a part unless a living process has locked it. */
static mg_status clean_part(const char *folder, int64_t number) {
    char path[PATH_ROOM];
    mg_file *lock;
    MG_TRY(name_of(path, folder, number, PART, NULL));
    mg_status status = mg_io_lock_folder(path, &lock);
    if (status == MG_OK && lock) status = remove_part(folder, number);
    mg_io_close(lock);
    return unless_gone(status, path);
}

mg_status mg_checkpoint_clean(const char *folder) {
    found all = {.part = true};
    mg_status status = find_all(folder, &all);
    for (int i = 0; status == MG_OK && i < all.n; i++) status = clean_part(folder, all.numbers[i]);
    mg_free(all.numbers);
    return status;
}

mg_status mg_checkpoint_drop(const char *folder, mg_checkpoint_part *part) {
    const mg_status status = part->lock ? remove_part(folder, part->number) : MG_OK;
    mg_io_close(part->lock);
    *part = (mg_checkpoint_part){0};
    return status;
}

mg_status mg_checkpoint_remove_all(const char *folder) {
    char path[PATH_ROOM];
    MG_TRY(name_of_latest(path, folder));
    MG_TRY(mg_checkpoint_clean(folder));
    MG_TRY(retire_all_but(folder, 0, NULL));
    if (mg_io_exists(path)) MG_TRY(mg_io_remove(path));
    if (mg_io_remove_folder(folder) != MG_OK) mg_error_clear(); /* something else is in it */
    return MG_OK;
}

/* ---- writing ---- */

/* Makes the folder in which checkpoint `number` is written: the spare one, whose state file becomes
 * *over, or a new one if there is no spare or another process still reads it. */
static mg_status open_part(const char *folder, int64_t number, mg_checkpoint_part *spare,
                           mg_checkpoint_part *part, mg_file **over) {
    char path[PATH_ROOM];
    MG_TRY(name_of(path, folder, spare->number, PART, STATE));
    *over = spare->lock ? mg_io_reuse(path) : NULL;
    if (*over) {
        *part = *spare;
        *spare = (mg_checkpoint_part){0};
        return MG_OK;
    }
    mg_error_clear();
    MG_TRY(name_of(path, folder, number, PART, NULL));
    MG_TRY(mg_io_make_folder(path));
    part->number = number;
    MG_TRY(mg_io_lock_folder(path, &part->lock));
    return part->lock ? MG_OK
                      : mg_fail(MG_IO, "cannot write %s: another process is writing it", path);
}

/* Writes the files of the part, before it is renamed. Committing the manifest also syncs the names
 * in its folder. */
static mg_status write_part(const char *folder, int64_t number, const mg_store *state,
                            const mg_checkpoint_part *part, mg_file *over) {
    char from[PATH_ROOM], path[PATH_ROOM], text[TEXT_ROOM];
    mg_safetensors_sums sums;
    MG_TRY(name_of(path, folder, part->number, PART, STATE));
    MG_TRY(mg_safetensors_write(state, path, over, &sums));
    make_manifest(text, &(manifest){.n = 2,
                                    .bytes = {sums.header_bytes, sums.data_bytes},
                                    .hash = {sums.header_hash, sums.data_hash}});
    MG_TRY(name_of(path, folder, part->number, PART, MANIFEST));
    MG_TRY(write_text(path, text));
    MG_TRY(name_of(from, folder, part->number, PART, NULL));
    MG_TRY(name_of(path, folder, number, "", NULL));
    MG_TRY(mg_io_rename(from, path));
    return mg_io_sync_folder(folder);
}

/* After a failed save: removes its part and the spare checkpoint, so that there is more room for
 * the next save. The failure stays the thread's error. */
static void give_up(const char *folder, mg_checkpoint_part *part, mg_checkpoint_part *spare) {
    char message[512];
    const mg_status status = mg_error_code();
    snprintf(message, sizeof message, "%s", mg_error_message());
    mg_checkpoint_drop(folder, part);
    mg_checkpoint_drop(folder, spare);
    mg_fail(status, "%s", message);
}

mg_status mg_checkpoint_write(const char *folder, int64_t number, const mg_store *state, int keep,
                              mg_checkpoint_part *spare, bool *saved) {
    char path[PATH_ROOM], text[TEXT_ROOM];
    mg_checkpoint_part part = {0};
    mg_file *over;
    mg_status status = open_part(folder, number, spare, &part, &over);
    if (status == MG_OK) status = write_part(folder, number, state, &part, over);
    *saved = status == MG_OK;
    if (status != MG_OK) {
        give_up(folder, &part, spare);
        return status;
    }
    mg_io_close(part.lock);
    make_latest(text, number);
    MG_TRY(name_of_latest(path, folder));
    MG_TRY(write_text(path, text));
    MG_TRY(mg_checkpoint_drop(folder, spare)); /* a spare that was in use still exists */
    return retire_all_but(folder, keep, spare);
}
