/* The archive of a packed program: see archive.h. */
#include "pack/archive.h"
#include "core/alloc.h"
#include "core/io_packed.h"
#include "io/zip.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char MANIFEST[] = MG_PACK_ROOT "/manifest";

typedef struct content {
    const mg_zip_entry *entry;
    const void *bytes; /* NULL: not used yet */
    void *unpacked;    /* owned: the bytes, if the entry is compressed */
} content;

/* Set by mg_archive_open and never freed: the program uses them to its end. */
static struct {
    const char *bytes;
    mg_zip *zip;
    mg_packed_set set;
    mg_packed_file *files; /* sorted by name, each with its content at the same index */
    content *contents;
    mg_manifest_line *lines;
    size_t n_lines;
} archive;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of zip and contents */

/* ---- contents ---- */

/* Reads the whole entry to dst, so that its checksum is compared. dst == NULL: only compares. */
static mg_status read_entry(const mg_zip_entry *e, char *dst) {
    enum { CHUNK = 64 << 10 };
    static char chunk[CHUNK]; /* with the lock */
    size_t got = 1;
    MG_TRY(mg_zip_start(archive.zip, e));
    for (int64_t done = 0; done < e->size && got; done += (int64_t)got) {
        const int64_t left = e->size - done;
        const size_t n = dst ? (size_t)left : left < CHUNK ? (size_t)left : CHUNK;
        MG_TRY(mg_zip_read(archive.zip, dst ? dst + done : chunk, n, &got));
    }
    return MG_OK;
}

/* A stored entry is used where it lies. */
static mg_status fill_content(content *c) {
    const mg_zip_entry *e = c->entry;
    if (c->bytes) return MG_OK;
    if (!e->deflated) {
        MG_TRY(mg_zip_start(archive.zip, e));
        const int64_t at = mg_zip_position(archive.zip);
        MG_TRY(read_entry(e, NULL));
        c->bytes = archive.bytes + at;
        return MG_OK;
    }
    c->unpacked = mg_alloc((size_t)e->size + 1);
    if (!c->unpacked) return MG_OOM;
    const mg_status status = read_entry(e, c->unpacked);
    if (status == MG_OK) {
        c->bytes = c->unpacked;
        return MG_OK;
    }
    mg_free(c->unpacked);
    c->unpacked = NULL;
    return status;
}

static mg_status contents_of(size_t file, const void **bytes) {
    pthread_mutex_lock(&lock);
    const mg_status status = fill_content(&archive.contents[file]);
    *bytes = archive.contents[file].bytes;
    pthread_mutex_unlock(&lock);
    return status;
}

const void *mg_archive_file(const char *path, size_t *size) {
    const void *bytes = NULL;
    const int64_t file = mg_packed_find(path);
    mg_error_clear();
    if (file < 0 || contents_of((size_t)file, &bytes) != MG_OK) return NULL;
    *size = (size_t)archive.files[file].size;
    return bytes;
}

void mg_archive_forget(const char *path) {
    const int64_t file = mg_packed_find(path);
    if (file < 0) return;
    pthread_mutex_lock(&lock);
    content *c = &archive.contents[file];
    if (c->unpacked) {
        mg_free(c->unpacked);
        c->unpacked = NULL;
        c->bytes = NULL;
    }
    pthread_mutex_unlock(&lock);
}

/* ---- opening ---- */

/* The name of the file that an entry holds; NULL: none. Owned (mg_free). */
static char *name_of(const mg_zip_entry *e) {
    static const char FILES[] = "files/", OWN[] = "mgpulua/";
    char *name = NULL;
    if (strncmp(e->name, FILES, sizeof FILES - 1) == 0) {
        name = mg_strdup(e->name + sizeof FILES - 1);
    } else if (strncmp(e->name, OWN, sizeof OWN - 1) == 0) {
        const size_t room = strlen(e->name) + 2;
        name = mg_alloc(room);
        if (name) snprintf(name, room, MG_PACK_ROOT "/%s", e->name + sizeof OWN - 1);
    }
    return name;
}

typedef struct sorted {
    char *name;
    const mg_zip_entry *entry;
} sorted;

static int compare_names(const void *a, const void *b) {
    return strcmp(((const sorted *)a)->name, ((const sorted *)b)->name);
}

/* Makes the lists of files and contents from the n entries. */
static mg_status list_files(const mg_zip_entry *entries, size_t n) {
    sorted *list = mg_alloc_zero((n + 1) * sizeof *list);
    archive.files = mg_alloc_zero((n + 1) * sizeof *archive.files);
    archive.contents = mg_alloc_zero((n + 1) * sizeof *archive.contents);
    if (!list || !archive.files || !archive.contents) return MG_OOM;
    size_t found = 0;
    for (size_t i = 0; i < n; i++) {
        list[found] = (sorted){name_of(&entries[i]), &entries[i]};
        found += list[found].name != NULL;
    }
    qsort(list, found, sizeof *list, compare_names);
    for (size_t i = 0; i < found; i++) {
        archive.files[i] = (mg_packed_file){list[i].name, list[i].entry->size};
        archive.contents[i].entry = list[i].entry;
    }
    mg_free(list);
    archive.set.files = archive.files;
    archive.set.n = found;
    return MG_OK;
}

/* The field at *p, which ends with `end`; *p goes past it. "" if there is none. */
static const char *cut_field(char **p, char *line_end) {
    if (*p >= line_end) return "";
    char *field = *p, *tab = memchr(field, '\t', (size_t)(line_end - field));
    *p = tab ? tab + 1 : line_end;
    if (tab) *tab = 0;
    return field;
}

static mg_status read_manifest(const char *who) {
    size_t size = 0;
    const char *text = mg_archive_file(MANIFEST, &size);
    if (!text) return mg_fail(MG_DATA, "%s has no list of its contents", who);
    char *copy = mg_alloc(size + 1), *stop;
    archive.lines = mg_alloc_zero((size + 1) * sizeof *archive.lines);
    if (!copy || !archive.lines) return MG_OOM;
    memcpy(copy, text, size);
    const char *end = copy + size;
    for (char *p = copy; p < end && (stop = memchr(p, '\n', (size_t)(end - p))); p = stop + 1) {
        mg_manifest_line *line = &archive.lines[archive.n_lines++];
        *stop = 0;
        line->kind = cut_field(&p, stop);
        line->name = cut_field(&p, stop);
        line->file = cut_field(&p, stop);
    }
    return MG_OK;
}

mg_status mg_archive_open(const void *bytes, size_t size, const char *who, const char *folder) {
    size_t n;
    mg_file *file = mg_io_memory(bytes, (int64_t)size, who);
    archive.zip = file ? mg_zip_from(file, who) : NULL;
    if (!archive.zip) return mg_error_code();
    archive.bytes = bytes;
    const mg_zip_entry *entries = mg_zip_entries(archive.zip, &n);
    MG_TRY(list_files(entries, n));
    archive.set.folder = folder;
    archive.set.contents = contents_of;
    mg_packed_use(&archive.set);
    return read_manifest(who);
}

bool mg_archive_manifest(size_t i, mg_manifest_line *line) {
    if (i >= archive.n_lines) return false;
    *line = archive.lines[i];
    return true;
}
