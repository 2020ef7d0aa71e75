/* Checkpoints on disk: see checkpoint.h for the files and the order in which they are written. */
#define _GNU_SOURCE
#include "io/checkpoint.h"
#include "core/alloc.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

static const char STATE[] = "state.safetensors", MANIFEST[] = "manifest", LATEST[] = "latest",
                  PREFIX[] = "checkpoint-", PART[] = ".part", TITLE[] = "mgpulua checkpoint 1\n";
enum {
    PATH_ROOM = 4096,
    TEXT_ROOM = 512,         /* manifests and pointers are shorter */
    HASHED_AT_ONCE = 1 << 20 /* bytes */
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
    bool part; /* looks for what was left half-written, else for checkpoints */
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

/* ---- hashes ---- */

/* The size and XXH3 hash of a file, read piece by piece. */
static mg_status hash_file(const char *path, int64_t *size, uint64_t *hash) {
    XXH3_state_t state;
    XXH3_64bits_reset(&state);
    mg_file *f = mg_io_open(path);
    char *piece = f ? mg_alloc(HASHED_AT_ONCE) : NULL;
    mg_status status = piece ? MG_OK : mg_error_code();
    *size = 0;
    for (size_t got = 1; status == MG_OK && got > 0;) {
        status = mg_io_read(f, piece, HASHED_AT_ONCE, &got);
        if (status != MG_OK) break;
        XXH3_64bits_update(&state, piece, got);
        *size += (int64_t)got;
    }
    *hash = XXH3_64bits_digest(&state);
    mg_free(piece);
    mg_io_close(f);
    return status;
}

/* Writes a short text to a new file, atomically. */
static mg_status write_text(const char *path, const char *text) {
    mg_file *f = mg_io_create(path);
    if (!f) return mg_error_code();
    const mg_status status = mg_io_write(f, text, strlen(text));
    if (status == MG_OK) return mg_io_commit(f);
    mg_io_close(f);
    return status;
}

/* Reads a text of less than TEXT_ROOM bytes. A longer file is cut off, and so differs. */
static mg_status read_text(const char *path, char text[TEXT_ROOM]) {
    mg_file *f = mg_io_open(path);
    size_t got = 0;
    if (!f) return mg_error_code();
    const mg_status status = mg_io_read(f, text, TEXT_ROOM - 1, &got);
    mg_io_close(f);
    text[got] = 0;
    /* A zero byte inside would end the text early. */
    if (status == MG_OK && strlen(text) != got) text[0] = 0;
    return status;
}

/* The whole text of a manifest, or of `latest`: its last line is the hash of all before it. */
static void seal(char text[TEXT_ROOM]) {
    const size_t n = strlen(text);
    snprintf(text + n, TEXT_ROOM - n, "xxh3 %016" PRIx64 "\n", (uint64_t)XXH3_64bits(text, n));
}

static void make_manifest(char text[TEXT_ROOM], int64_t size, uint64_t hash) {
    snprintf(text, TEXT_ROOM, "%s%s %" PRId64 " %016" PRIx64 "\n", TITLE, STATE, size, hash);
    seal(text);
}

static void make_latest(char text[TEXT_ROOM], int64_t number) {
    snprintf(text, TEXT_ROOM, "%s%06" PRId64 "\n", PREFIX, number);
    seal(text);
}

/* ---- reading ---- */

/* The file's own size and hash give the only manifest that fits it. */
mg_status mg_checkpoint_verify(const char *folder, int64_t number) {
    char path[PATH_ROOM], text[TEXT_ROOM], expected[TEXT_ROOM];
    int64_t size;
    uint64_t hash;
    MG_TRY(name_of(path, folder, number, "", MANIFEST));
    MG_TRY(read_text(path, text));
    char *line = strstr(text, "xxh3 ");
    if (!line) return mg_fail(MG_DATA, "%s is damaged: it does not end with its hash", path);
    snprintf(expected, sizeof expected, "%.*s", (int)(line - text), text);
    seal(expected);
    if (strcmp(text, expected) != 0)
        return mg_fail(MG_DATA, "%s is damaged: it does not have the hash that it states", path);
    MG_TRY(name_of(path, folder, number, "", STATE));
    MG_TRY(hash_file(path, &size, &hash));
    make_manifest(expected, size, hash);
    if (strcmp(text, expected) == 0) return MG_OK;
    return mg_fail(MG_DATA, "%s is damaged: its %" PRId64 " bytes are not those of the manifest",
                   path, size);
}

mg_store *mg_checkpoint_load(const char *folder, int64_t number) {
    char path[PATH_ROOM];
    if (mg_checkpoint_verify(folder, number) != MG_OK ||
        name_of(path, folder, number, "", STATE) != MG_OK)
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
        return mg_fail(MG_DATA, "%s is damaged: it does not have the hash that it states", path);
    *number = named;
    return MG_OK;
}

/* ---- removing ---- */

static mg_status remove_file(void *context, const char *name, int64_t bytes, int64_t changed) {
    (void)bytes, (void)changed;
    const char *folder = context;
    char path[PATH_ROOM];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= PATH_ROOM) return fail_too_long();
    return mg_io_remove(path);
}

static mg_status remove_part(const char *folder, int64_t number) {
    char path[PATH_ROOM];
    MG_TRY(name_of(path, folder, number, PART, NULL));
    MG_TRY(mg_io_each(path, remove_file, path));
    return mg_io_remove_folder(path);
}

/* It loses its name first, so that a part of a checkpoint never has the name of one. */
mg_status mg_checkpoint_remove(const char *folder, int64_t number) {
    char from[PATH_ROOM], to[PATH_ROOM];
    MG_TRY(name_of(from, folder, number, "", NULL));
    MG_TRY(name_of(to, folder, number, PART, NULL));
    MG_TRY(mg_io_rename(from, to));
    return remove_part(folder, number);
}

/* Removes all checkpoints but the newest `keep`, the oldest first; with `part` what was left
 * half-written. */
static mg_status remove_all_but(const char *folder, int keep, bool part) {
    found all = {.part = part};
    mg_status status = find_all(folder, &all);
    for (int i = all.n - 1; status == MG_OK && i >= keep; i--)
        status = part ? remove_part(folder, all.numbers[i])
                      : mg_checkpoint_remove(folder, all.numbers[i]);
    mg_free(all.numbers);
    return status;
}

mg_status mg_checkpoint_clean(const char *folder) {
    return remove_all_but(folder, 0, true);
}

mg_status mg_checkpoint_remove_all(const char *folder) {
    char path[PATH_ROOM];
    MG_TRY(name_of_latest(path, folder));
    MG_TRY(remove_all_but(folder, 0, true));
    MG_TRY(remove_all_but(folder, 0, false));
    if (mg_io_exists(path)) MG_TRY(mg_io_remove(path));
    if (mg_io_remove_folder(folder) != MG_OK) mg_error_clear(); /* something else is in it */
    return MG_OK;
}

/* ---- writing ---- */

/* Everything up to the new name. */
static mg_status write_whole(const char *folder, int64_t number, const mg_store *state) {
    char part[PATH_ROOM], path[PATH_ROOM], text[TEXT_ROOM];
    int64_t size;
    uint64_t hash;
    MG_TRY(name_of(part, folder, number, PART, NULL));
    MG_TRY(mg_io_make_folder(part));
    MG_TRY(name_of(path, folder, number, PART, STATE));
    MG_TRY(mg_store_save(state, path));
    MG_TRY(hash_file(path, &size, &hash));
    make_manifest(text, size, hash);
    MG_TRY(name_of(path, folder, number, PART, MANIFEST));
    MG_TRY(write_text(path, text));
    MG_TRY(mg_io_sync_folder(part));
    MG_TRY(name_of(path, folder, number, "", NULL));
    MG_TRY(mg_io_rename(part, path));
    return mg_io_sync_folder(folder);
}

/* Removes what a failed save has left; the failure stays the thread's error. */
static void give_up(const char *folder, int64_t number) {
    char message[512];
    const mg_status status = mg_error_code();
    snprintf(message, sizeof message, "%s", mg_error_message());
    remove_part(folder, number);
    mg_fail(status, "%s", message);
}

mg_status mg_checkpoint_write(const char *folder, int64_t number, const mg_store *state, int keep,
                              bool *saved) {
    char path[PATH_ROOM], text[TEXT_ROOM];
    const mg_status status = write_whole(folder, number, state);
    *saved = status == MG_OK;
    if (status != MG_OK) {
        give_up(folder, number);
        return status;
    }
    make_latest(text, number);
    MG_TRY(name_of_latest(path, folder));
    MG_TRY(write_text(path, text));
    return remove_all_but(folder, keep, false);
}
