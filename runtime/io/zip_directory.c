/* The directory at the end of a zip archive: finding it, parsing it, and comparing it with the
 * file. */
#include "core/alloc.h"
#include "io/zip_format.h"
#include <stdlib.h>
#include <string.h>

enum { MAX_INFLATION = 1040 }; /* deflate's best ratio, 1032, rounded up */
static const int64_t MAX_DIRECTORY = 16 << 20;

/* A number beyond INT64_MAX becomes -1, which every check refuses. */
static int64_t get64(const unsigned char *p) {
    const uint64_t v = (uint64_t)mg_zip_get32(p) | (uint64_t)mg_zip_get32(p + 4) << 32;
    return v > INT64_MAX ? -1 : (int64_t)v;
}

/* ---- where the directory is ---- */

/* The information about the directory in the records at the end of the file. */
typedef struct zip_end {
    int64_t at; /* where the first of these records begins */
    int64_t n, size, offset;
    bool one_disk;
} zip_end;

mg_status mg_zip_read_at(mg_zip *z, int64_t position, void *dst, size_t n) {
    size_t got;
    MG_TRY(mg_io_seek(z->file, position));
    MG_TRY(mg_io_read(z->file, dst, n, &got));
    if (got == n) return MG_OK;
    return mg_fail(MG_DATA, "%s became shorter while it was read", z->path);
}

/* Replaces the numbers in `end` by those of the zip64 record, which lies right before the locator
 * in front of the ordinary record. */
static mg_status read_end64(mg_zip *z, zip_end *end) {
    unsigned char locator[ZIP_LOCATOR64_SIZE], r[ZIP_END64_SIZE];
    const int64_t at = end->at - ZIP_LOCATOR64_SIZE - ZIP_END64_SIZE;
    if (at < 0) return mg_fail(MG_DATA, "%s: the zip64 record is missing", z->path);
    MG_TRY(mg_zip_read_at(z, at, r, sizeof r));
    MG_TRY(mg_zip_read_at(z, at + ZIP_END64_SIZE, locator, sizeof locator));
    if (mg_zip_get32(locator) != ZIP_LOCATOR64 || get64(locator + 8) != at ||
        mg_zip_get32(r) != ZIP_END64 || get64(r + 4) != ZIP_END64_SIZE - 12)
        return mg_fail(MG_DATA, "%s: the zip64 record is damaged", z->path);
    *end = (zip_end){.at = at, .n = get64(r + 32), .size = get64(r + 40), .offset = get64(r + 48)};
    end->one_disk = !mg_zip_get32(r + 16) && !mg_zip_get32(r + 20) && get64(r + 24) == end->n;
    return MG_OK;
}

/* Finds the record at the end of the file, which is followed only by a comment whose length it
 * contains. */
static mg_status find_end(mg_zip *z, zip_end *end) {
    const int64_t most = ZIP_END_SIZE + ZIP_MAX16, n = z->size < most ? z->size : most;
    unsigned char *tail = mg_alloc((size_t)n);
    if (!tail) return MG_OOM;
    mg_status status = mg_zip_read_at(z, z->size - n, tail, (size_t)n);
    int64_t i = n - ZIP_END_SIZE;
    while (i >= 0 && (mg_zip_get32(tail + i) != ZIP_END ||
                      mg_zip_get16(tail + i + 20) != n - i - ZIP_END_SIZE))
        i--;
    if (status == MG_OK && i < 0)
        status = mg_fail(MG_DATA, "%s is not a zip archive, or its end is missing", z->path);
    if (status == MG_OK) {
        const unsigned char *r = tail + i;
        *end = (zip_end){.at = z->size - n + i,
                         .n = mg_zip_get16(r + 10),
                         .size = mg_zip_get32(r + 12),
                         .offset = mg_zip_get32(r + 16)};
        end->one_disk =
            !mg_zip_get16(r + 4) && !mg_zip_get16(r + 6) && mg_zip_get16(r + 8) == end->n;
        if (end->n == ZIP_MAX16 || end->size == ZIP_MAX32 || end->offset == ZIP_MAX32)
            status = read_end64(z, end);
    }
    mg_free(tail);
    if (status != MG_OK || end->one_disk) return status;
    return mg_fail(MG_UNSUPPORTED, "%s is a part of a zip archive of several files", z->path);
}

/* Takes the 64-bit numbers of an entry from its extra fields: one for each 32-bit field that holds
 * ZIP_MAX32, in order. */
static mg_status read_extra64(const mg_zip *z, mg_zip_entry *e, const unsigned char *p, size_t n) {
    int64_t *const wanted[] = {&e->size, &e->packed, &e->offset};
    while (n >= 4 && mg_zip_get16(p) != ZIP_EXTRA64 && mg_zip_get16(p + 2) <= n - 4) {
        const size_t skipped = 4 + mg_zip_get16(p + 2);
        p += skipped, n -= skipped;
    }
    const bool found = n >= 4 && mg_zip_get16(p) == ZIP_EXTRA64 && mg_zip_get16(p + 2) <= n - 4;
    n = found ? mg_zip_get16(p + 2) : 0;
    p += 4;
    for (int i = 0; i < 3; i++) {
        if (*wanted[i] != (int64_t)ZIP_MAX32) continue;
        if (n < 8) return mg_fail(MG_DATA, "%s: \"%.80s\" lacks its zip64 sizes", z->path, e->name);
        *wanted[i] = get64(p);
        p += 8, n -= 8;
    }
    return MG_OK;
}

/* Checks the sizes of an entry against each other and against the size of the file. */
static mg_status check_entry(const mg_zip *z, const mg_zip_entry *e, uint32_t flags,
                             uint32_t method) {
    if (!*e->name) return mg_fail(MG_DATA, "%s: an entry has no name", z->path);
    if (flags & ZIP_ENCRYPTED)
        return mg_fail(MG_UNSUPPORTED, "%s: \"%.80s\" is encrypted", z->path, e->name);
    if (method != ZIP_METHOD_STORED && method != ZIP_METHOD_DEFLATED)
        return mg_fail(MG_UNSUPPORTED,
                       "%s: \"%.80s\" has compression method %u; stored and deflated are known",
                       z->path, e->name, method);
    if (e->offset < 0 || e->packed < 0 || e->size < 0 || e->offset > z->directory ||
        e->packed > z->directory - e->offset)
        return mg_fail(MG_DATA, "%s: \"%.80s\" lies outside of the file", z->path, e->name);
    if (e->deflated ? e->size / MAX_INFLATION > e->packed : e->size != e->packed)
        return mg_fail(MG_DATA, "%s: \"%.80s\" cannot have %lld bytes: %lld are in the file",
                       z->path, e->name, (long long)e->size, (long long)e->packed);
    return MG_OK;
}

/* Parses the directory's record at p, of at most n bytes; *used is its length. */
static mg_status parse_entry(const mg_zip *z, mg_zip_entry *e, const unsigned char *p, size_t n,
                             size_t *used) {
    if (n < ZIP_CENTRAL_SIZE || mg_zip_get32(p) != ZIP_CENTRAL)
        return mg_fail(MG_DATA, "%s: the zip directory is damaged", z->path);
    const size_t name = mg_zip_get16(p + 28), extra = mg_zip_get16(p + 30),
                 comment = mg_zip_get16(p + 32);
    *used = ZIP_CENTRAL_SIZE + name + extra + comment;
    if (*used > n || memchr(p + ZIP_CENTRAL_SIZE, 0, name))
        return mg_fail(MG_DATA, "%s: the zip directory is damaged", z->path);
    e->name = mg_alloc(name + 1);
    if (!e->name) return MG_OOM;
    memcpy(e->name, p + ZIP_CENTRAL_SIZE, name);
    e->name[name] = 0;
    const uint32_t flags = mg_zip_get16(p + 8), method = mg_zip_get16(p + 10);
    e->deflated = method == ZIP_METHOD_DEFLATED;
    e->streamed = flags & ZIP_STREAMED;
    e->crc = mg_zip_get32(p + 16);
    e->packed = mg_zip_get32(p + 20);
    e->size = mg_zip_get32(p + 24);
    e->offset = mg_zip_get32(p + 42);
    MG_TRY(read_extra64(z, e, p + ZIP_CENTRAL_SIZE + name, extra));
    return check_entry(z, e, flags, method);
}

/* For qsort: by position in the file, and by name. */
static int compare_offsets(const void *a, const void *b) {
    const mg_zip_entry *x = a, *y = b;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

static int compare_names(const void *a, const void *b) {
    return strcmp(((const mg_zip_entry *)a)->name, ((const mg_zip_entry *)b)->name);
}

/* Refuses overlapping entries, names given twice and bombs; leaves the entries sorted by name. */
static mg_status check_entries(mg_zip *z) {
    int64_t room = MG_ZIP_FREE_BYTES + MG_ZIP_MAX_RATIO * z->size;
    qsort(z->entries, z->n, sizeof *z->entries, compare_offsets);
    for (size_t i = 0; i < z->n; i++) {
        const mg_zip_entry *e = &z->entries[i];
        const int64_t next = i + 1 < z->n ? e[1].offset : z->directory;
        if (e->packed > next - e->offset - ZIP_LOCAL_SIZE - (int64_t)strlen(e->name))
            return mg_fail(MG_DATA, "%s: \"%.80s\" overlaps the next entry", z->path, e->name);
        if (e->size > room)
            return mg_fail(MG_DATA,
                           "%s: the contents would take more than %d MiB and %d times the file's "
                           "size: refused; if that is right, write the archive uncompressed",
                           z->path, MG_ZIP_FREE_BYTES >> 20, MG_ZIP_MAX_RATIO);
        room -= e->size;
    }
    qsort(z->entries, z->n, sizeof *z->entries, compare_names);
    for (size_t i = 1; i < z->n; i++)
        if (strcmp(z->entries[i - 1].name, z->entries[i].name) == 0)
            return mg_fail(MG_DATA, "%s: the name \"%.80s\" is given twice", z->path,
                           z->entries[i].name);
    return MG_OK;
}

/* Fills z->entries from the n bytes of the directory, which hold `count` records. */
static mg_status parse_directory(mg_zip *z, const unsigned char *p, size_t n, size_t count) {
    z->entries = mg_alloc_zero((count + 1) * sizeof *z->entries);
    if (!z->entries) return MG_OOM;
    while (z->n < count) {
        size_t used = 0;
        mg_zip_entry *e = &z->entries[z->n++];
        MG_TRY(parse_entry(z, e, p, n, &used));
        p += used, n -= used;
    }
    if (n) return mg_fail(MG_DATA, "%s: the zip directory is longer than its entries", z->path);
    return check_entries(z);
}

mg_status mg_zip_read_directory(mg_zip *z) {
    zip_end end = {0};
    MG_TRY(mg_io_size(z->file, &z->size));
    MG_TRY(find_end(z, &end));
    if (end.offset < 0 || end.offset > end.at || end.at - end.offset != end.size)
        return mg_fail(MG_DATA, "%s: the zip directory is not where the file's end says", z->path);
    if (end.size > MAX_DIRECTORY)
        return mg_fail(MG_UNSUPPORTED, "%s: a zip directory of %lld bytes is too long", z->path,
                       (long long)end.size);
    if (end.n < 0 || end.n > end.size / ZIP_CENTRAL_SIZE)
        return mg_fail(MG_DATA, "%s: %lld bytes of zip directory cannot hold %lld entries", z->path,
                       (long long)end.size, (long long)end.n);
    z->directory = end.offset;
    unsigned char *bytes = mg_alloc((size_t)end.size);
    if (!bytes) return MG_OOM;
    mg_status status = mg_zip_read_at(z, end.offset, bytes, (size_t)end.size);
    if (status == MG_OK) status = parse_directory(z, bytes, (size_t)end.size, (size_t)end.n);
    mg_free(bytes);
    return status;
}
