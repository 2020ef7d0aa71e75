/* Reading CIFAR's binary files.
 *
 * Memory is allocated as records arrive: at most twice their size. An archive may hold its files in
 * any order, so files that come too early are kept separately until their turn. */
#include "data/cifar.h"
#include "core/alloc.h"
#include "core/threads.h"
#include "io/tar.h"
#include "io/unpack.h"
#include <stdio.h>
#include <string.h>

enum {
    IMAGE = 3 * MG_CIFAR_PIXELS,      /* bytes */
    RECORD = MG_CIFAR_LABELS + IMAGE, /* at most */
    SOME = 64,                        /* records that are read at once */
    FIRST_ROOM = 256
};

/* Bytes that are read in order: a file, or the current entry of an archive. */
typedef struct cifar_source {
    mg_unpacked *file; /* or NULL: */
    mg_tar *archive;
    const char *name; /* of the file or the entry, for messages */
} cifar_source;

static mg_status read_bytes(const cifar_source *s, void *dst, size_t n, size_t *got) {
    if (mg_interrupt_pending() && mg_interrupt_take())
        return mg_fail(MG_INTERRUPTED, "interrupted");
    return s->file ? mg_unpacked_read(s->file, dst, n, got) : mg_tar_read(s->archive, dst, n, got);
}

void mg_cifar_free(mg_cifar *c) {
    mg_free(c->images);
    mg_free(c->labels);
    *c = (mg_cifar){0};
}

/* Makes room for n more records. */
static mg_status make_room(mg_cifar *c, const mg_cifar_format *format, int64_t n) {
    int64_t room = c->room ? c->room : FIRST_ROOM;
    while (room < c->rows + n) room *= 2;
    if (room == c->room) return MG_OK;
    uint8_t *images = mg_realloc(c->images, (size_t)room * IMAGE);
    if (!images) return MG_OOM;
    c->images = images;
    uint8_t *labels = mg_realloc(c->labels, (size_t)room * (size_t)format->labels);
    if (!labels) return MG_OOM;
    c->labels = labels;
    c->room = room;
    return MG_OK;
}

/* Appends a record, for which there is room. */
static mg_status add_record(mg_cifar *c, const mg_cifar_format *format, const uint8_t *record,
                            const char *name, int64_t number) {
    for (int k = 0; k < format->labels; k++) {
        if (record[k] >= format->classes[k])
            return mg_fail(MG_DATA, "%s: record %lld has the label %d, but there are %d classes",
                           name, (long long)number, record[k], format->classes[k]);
        c->labels[c->rows * format->labels + k] = record[k];
    }
    const uint8_t *planes = record + format->labels;
    uint8_t *image = c->images + c->rows * IMAGE;
    for (int i = 0; i < MG_CIFAR_PIXELS; i++)
        for (int channel = 0; channel < 3; channel++)
            *image++ = planes[channel * MG_CIFAR_PIXELS + i];
    c->rows++;
    return MG_OK;
}

/* Appends all records of the source. buffer: SOME * RECORD bytes. */
static mg_status read_records(mg_cifar *c, const mg_cifar_format *format, const cifar_source *s,
                              uint8_t *buffer) {
    const size_t record = (size_t)format->labels + IMAGE;
    const int64_t before = c->rows;
    size_t got = SOME * record;
    while (got == SOME * record) {
        MG_TRY(read_bytes(s, buffer, SOME * record, &got));
        MG_TRY(make_room(c, format, (int64_t)(got / record)));
        for (size_t i = 0; i < got / record; i++)
            MG_TRY(add_record(c, format, buffer + i * record, s->name, c->rows - before + 1));
    }
    if (got % record)
        return mg_fail(MG_DATA, "%s: the file ends within record %lld, of %zu bytes each", s->name,
                       (long long)(c->rows - before + 1), record);
    if (c->rows == before) return mg_fail(MG_DATA, "%s: the file is empty", s->name);
    return MG_OK;
}

mg_status mg_cifar_read(mg_cifar *c, const mg_cifar_format *format, const char *path) {
    uint8_t *buffer = mg_alloc((size_t)SOME * RECORD);
    const cifar_source s = {.file = buffer ? mg_unpacked_open(path, MG_PACKED_AUTO) : NULL,
                            .name = path};
    mg_status status = s.file ? read_records(c, format, &s, buffer) : mg_error_code();
    mg_unpacked_close(s.file);
    mg_free(buffer);
    return status;
}

/* ---- archives ---- */

/* The position of the entry among the wanted names, which may leave out its folder; n: none. */
static size_t find_name(const char *entry, const char *const *names, size_t n) {
    const char *slash = strrchr(entry, '/');
    size_t i = 0;
    while (i < n && strcmp(slash ? slash + 1 : entry, names[i]) != 0) i++;
    return i;
}

/* Reads the wanted entries, each into its part. */
static mg_status read_parts(mg_cifar *parts, const mg_cifar_format *format, mg_tar *archive,
                            const char *path, const char *const *names, size_t n, uint8_t *buffer) {
    char text[512];
    const mg_tar_entry *entry;
    for (;;) {
        MG_TRY(mg_tar_next(archive, &entry));
        if (!entry) return MG_OK;
        const size_t i = find_name(entry->name, names, n);
        if (i == n) continue;
        snprintf(text, sizeof text, "%s, %s", path, entry->name);
        if (parts[i].rows)
            return mg_fail(MG_DATA, "%s: the archive has a second file of that name", text);
        const cifar_source s = {.archive = archive, .name = text};
        MG_TRY(read_records(&parts[i], format, &s, buffer));
    }
}

/* Appends the part to *c and frees it. */
static mg_status append_part(mg_cifar *c, const mg_cifar_format *format, mg_cifar *part) {
    const size_t labels = (size_t)format->labels;
    if (!c->rows) {
        mg_cifar_free(c);
        *c = *part;
        *part = (mg_cifar){0};
        return MG_OK;
    }
    MG_TRY(make_room(c, format, part->rows));
    memcpy(c->images + c->rows * IMAGE, part->images, (size_t)part->rows * IMAGE);
    memcpy(c->labels + (size_t)c->rows * labels, part->labels, (size_t)part->rows * labels);
    c->rows += part->rows;
    mg_cifar_free(part);
    return MG_OK;
}

mg_status mg_cifar_read_archive(mg_cifar *c, const mg_cifar_format *format, const char *path,
                                const char *const *names, size_t n) {
    uint8_t *buffer = mg_alloc((size_t)SOME * RECORD);
    mg_cifar *parts = buffer ? mg_alloc_zero(n * sizeof *parts) : NULL;
    mg_tar *archive = parts ? mg_tar_open(path) : NULL;
    mg_status status =
        archive ? read_parts(parts, format, archive, path, names, n, buffer) : mg_error_code();
    mg_tar_close(archive);
    for (size_t i = 0; status == MG_OK && i < n; i++) {
        if (!parts[i].rows)
            status = mg_fail(MG_DATA, "%s: the archive has no %s", path, names[i]);
        else
            status = append_part(c, format, &parts[i]);
    }
    for (size_t i = 0; parts && i < n; i++) mg_cifar_free(&parts[i]);
    mg_free(parts);
    mg_free(buffer);
    return status;
}
