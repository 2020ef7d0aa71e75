/* Reading zip archives: the directory at the end of the file first, then entries in any order. */
#include "io/zip.h"
#include "core/alloc.h"
#include "io/zip_format.h"
#include <stdlib.h>
#include <string.h>

enum { MAX_INFLATION = 1040 }; /* deflate's best ratio, 1032, rounded up */
static const int64_t MAX_DIRECTORY = 16 << 20;

struct mg_zip {
    mg_file *file;
    bool owns_file;
    char *path; /* owned: for messages */
    int64_t size;
    int64_t directory;     /* its first byte: entries lie before it */
    mg_zip_entry *entries; /* owned, with the names */
    size_t n;
    /* the entry being read */
    const mg_zip_entry *entry;
    int64_t left, packed_left; /* bytes of its contents and of its data in the file */
    uint32_t crc;
    bool inflating; /* z is to be ended */
    z_stream z;
    unsigned char *in; /* owned: ZIP_CHUNK bytes that inflate reads from */
};

/* ---- little-endian numbers ---- */

static uint32_t get16(const unsigned char *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}

static uint32_t get32(const unsigned char *p) {
    return get16(p) | get16(p + 2) << 16;
}

/* Beyond INT64_MAX: -1, which every check refuses. */
static int64_t get64(const unsigned char *p) {
    const uint64_t v = (uint64_t)get32(p) | (uint64_t)get32(p + 4) << 32;
    return v > INT64_MAX ? -1 : (int64_t)v;
}

void *mg_zip_alloc(void *context, unsigned n, unsigned size) {
    (void)context;
    return mg_alloc((size_t)n * size);
}

void mg_zip_free(void *context, void *block) {
    (void)context;
    mg_free(block);
}

/* ---- the directory ---- */

/* What the records at the end of the file say about the directory. */
typedef struct zip_end {
    int64_t at; /* where the first of these records begins */
    int64_t n, size, offset;
    bool one_disk;
} zip_end;

/* Reads n bytes at a position, which the caller has compared with the file's size. */
static mg_status read_at(mg_zip *z, int64_t position, void *dst, size_t n) {
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
    MG_TRY(read_at(z, at, r, sizeof r));
    MG_TRY(read_at(z, at + ZIP_END64_SIZE, locator, sizeof locator));
    if (get32(locator) != ZIP_LOCATOR64 || get64(locator + 8) != at || get32(r) != ZIP_END64 ||
        get64(r + 4) != ZIP_END64_SIZE - 12)
        return mg_fail(MG_DATA, "%s: the zip64 record is damaged", z->path);
    *end = (zip_end){.at = at, .n = get64(r + 32), .size = get64(r + 40), .offset = get64(r + 48)};
    end->one_disk = !get32(r + 16) && !get32(r + 20) && get64(r + 24) == end->n;
    return MG_OK;
}

/* Finds the record at the end of the file, after which only a comment of a stated length comes. */
static mg_status find_end(mg_zip *z, zip_end *end) {
    const int64_t most = ZIP_END_SIZE + ZIP_MAX16, n = z->size < most ? z->size : most;
    unsigned char *tail = mg_alloc((size_t)n);
    if (!tail) return MG_OOM;
    mg_status status = read_at(z, z->size - n, tail, (size_t)n);
    int64_t i = n - ZIP_END_SIZE;
    while (i >= 0 && (get32(tail + i) != ZIP_END || get16(tail + i + 20) != n - i - ZIP_END_SIZE))
        i--;
    if (status == MG_OK && i < 0)
        status = mg_fail(MG_DATA, "%s is not a zip archive, or its end is missing", z->path);
    if (status == MG_OK) {
        const unsigned char *r = tail + i;
        *end = (zip_end){.at = z->size - n + i,
                         .n = get16(r + 10),
                         .size = get32(r + 12),
                         .offset = get32(r + 16)};
        end->one_disk = !get16(r + 4) && !get16(r + 6) && get16(r + 8) == end->n;
        if (end->n == ZIP_MAX16 || end->size == ZIP_MAX32 || end->offset == ZIP_MAX32)
            status = read_end64(z, end);
    }
    mg_free(tail);
    if (status != MG_OK || end->one_disk) return status;
    return mg_fail(MG_UNSUPPORTED, "%s is a part of a zip archive of several files", z->path);
}

/* Takes the 64-bit numbers of an entry from its extra fields, in the order in which the 32-bit
 * fields lack them. */
static mg_status read_extra64(const mg_zip *z, mg_zip_entry *e, const unsigned char *p, size_t n) {
    int64_t *const wanted[] = {&e->size, &e->packed, &e->offset};
    while (n >= 4 && get16(p) != ZIP_EXTRA64 && get16(p + 2) <= n - 4) {
        const size_t skipped = 4 + get16(p + 2);
        p += skipped, n -= skipped;
    }
    const bool found = n >= 4 && get16(p) == ZIP_EXTRA64 && get16(p + 2) <= n - 4;
    n = found ? get16(p + 2) : 0;
    p += 4;
    for (int i = 0; i < 3; i++) {
        if (*wanted[i] != (int64_t)ZIP_MAX32) continue;
        if (n < 8) return mg_fail(MG_DATA, "%s: \"%.80s\" lacks its zip64 sizes", z->path, e->name);
        *wanted[i] = get64(p);
        p += 8, n -= 8;
    }
    return MG_OK;
}

/* The sizes of an entry against one another and against the file. */
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
    if (n < ZIP_CENTRAL_SIZE || get32(p) != ZIP_CENTRAL)
        return mg_fail(MG_DATA, "%s: the zip directory is damaged", z->path);
    const size_t name = get16(p + 28), extra = get16(p + 30), comment = get16(p + 32);
    *used = ZIP_CENTRAL_SIZE + name + extra + comment;
    if (*used > n || memchr(p + ZIP_CENTRAL_SIZE, 0, name))
        return mg_fail(MG_DATA, "%s: the zip directory is damaged", z->path);
    e->name = mg_alloc(name + 1);
    if (!e->name) return MG_OOM;
    memcpy(e->name, p + ZIP_CENTRAL_SIZE, name);
    e->name[name] = 0;
    const uint32_t flags = get16(p + 8), method = get16(p + 10);
    e->deflated = method == ZIP_METHOD_DEFLATED;
    e->streamed = flags & ZIP_STREAMED;
    e->crc = get32(p + 16);
    e->packed = get32(p + 20);
    e->size = get32(p + 24);
    e->offset = get32(p + 42);
    MG_TRY(read_extra64(z, e, p + ZIP_CENTRAL_SIZE + name, extra));
    return check_entry(z, e, flags, method);
}

/* For qsort: by place in the file, and by name. */
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
            return mg_fail(MG_DATA, "%s: \"%.80s\" overlaps what follows it", z->path, e->name);
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

static mg_status read_directory(mg_zip *z) {
    zip_end end = {0};
    MG_TRY(mg_io_size(z->file, &z->size));
    MG_TRY(find_end(z, &end));
    if (end.offset < 0 || end.size < 0 || end.offset > end.at || end.at - end.offset != end.size)
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
    mg_status status = read_at(z, end.offset, bytes, (size_t)end.size);
    if (status == MG_OK) status = parse_directory(z, bytes, (size_t)end.size, (size_t)end.n);
    mg_free(bytes);
    return status;
}

/* ---- archives ---- */

mg_zip *mg_zip_from(mg_file *file, const char *path) {
    mg_zip *z = mg_alloc_zero(sizeof *z);
    if (!z) return NULL;
    z->file = file;
    z->path = mg_strdup(path);
    if (z->path && read_directory(z) == MG_OK) return z;
    mg_zip_close(z);
    return NULL;
}

mg_zip *mg_zip_open(const char *path) {
    mg_file *file = mg_io_open(path);
    mg_zip *z = file ? mg_zip_from(file, path) : NULL;
    if (z)
        z->owns_file = true;
    else
        mg_io_close(file);
    return z;
}

void mg_zip_close(mg_zip *z) {
    if (!z) return;
    if (z->inflating) inflateEnd(&z->z);
    for (size_t i = 0; i < z->n; i++) mg_free(z->entries[i].name);
    mg_free(z->entries);
    mg_free(z->in);
    mg_free(z->path);
    if (z->owns_file) mg_io_close(z->file);
    mg_free(z);
}

const mg_zip_entry *mg_zip_entries(const mg_zip *z, size_t *n) {
    *n = z->n;
    return z->entries;
}

const mg_zip_entry *mg_zip_find(const mg_zip *z, const char *name) {
    const mg_zip_entry key = {.name = (char *)(uintptr_t)name};
    return bsearch(&key, z->entries, z->n, sizeof key, compare_names);
}

/* ---- the contents of an entry ---- */

static mg_status fail_contents(const mg_zip *z, const char *why) {
    return mg_fail(MG_DATA, "%s: \"%.80s\" is damaged: %s", z->path, z->entry->name, why);
}

/* Compares the local header with the directory and sets *data, the position of the entry's first
 * byte. The sizes are missing in both fields of a streamed entry, and 32 bits wide in a zip64 one.
 */
static mg_status read_local_header(mg_zip *z, const mg_zip_entry *e, int64_t *data) {
    unsigned char h[ZIP_LOCAL_SIZE];
    const size_t name = strlen(e->name);
    MG_TRY(read_at(z, e->offset, h, sizeof h));
    const uint32_t method = e->deflated ? ZIP_METHOD_DEFLATED : ZIP_METHOD_STORED;
    bool same = get32(h) == ZIP_LOCAL && !(get16(h + 6) & ZIP_ENCRYPTED) &&
                get16(h + 8) == method && get16(h + 26) == name;
    if (!e->streamed) {
        same = same && get32(h + 14) == e->crc;
        same = same && (get32(h + 18) == e->packed || get32(h + 18) == ZIP_MAX32);
        same = same && (get32(h + 22) == e->size || get32(h + 22) == ZIP_MAX32);
    }
    *data = e->offset + ZIP_LOCAL_SIZE + (int64_t)name + get16(h + 28);
    if (!same || e->packed > z->directory - *data)
        return fail_contents(z, "its header and the zip directory differ");
    char *text = mg_alloc(name);
    if (!text) return MG_OOM;
    mg_status status = read_at(z, e->offset + ZIP_LOCAL_SIZE, text, name);
    if (status == MG_OK && memcmp(text, e->name, name) != 0)
        status = fail_contents(z, "its header and the zip directory differ");
    mg_free(text);
    return status;
}

/* A deflate stream without a header of its own. */
static mg_status start_inflate(mg_zip *z) {
    if (!z->in) z->in = mg_alloc(ZIP_CHUNK);
    if (!z->in) return MG_OOM;
    z->z = (z_stream){.zalloc = mg_zip_alloc, .zfree = mg_zip_free};
    if (inflateInit2(&z->z, -15) != Z_OK)
        return mg_fail(MG_OOM, "out of memory while reading %s", z->path);
    z->inflating = true;
    return MG_OK;
}

/* Inflates up to n bytes to dst, n > 0; *ended after the last byte of the stream. */
static mg_status inflate_some(mg_zip *z, void *dst, size_t n, size_t *got, bool *ended) {
    z_stream *s = &z->z;
    if (!s->avail_in && z->packed_left) {
        size_t there = z->packed_left < ZIP_CHUNK ? (size_t)z->packed_left : ZIP_CHUNK;
        const size_t wanted = there;
        MG_TRY(mg_io_read(z->file, z->in, wanted, &there));
        if (there < wanted) return fail_contents(z, "the file ends within it");
        z->packed_left -= (int64_t)there;
        s->next_in = z->in;
        s->avail_in = (uInt)there;
    }
    const bool dry = !s->avail_in;
    s->next_out = dst;
    s->avail_out = n < ZIP_CHUNK ? (uInt)n : ZIP_CHUNK;
    const uInt room = s->avail_out;
    const int code = inflate(s, Z_NO_FLUSH);
    *got = room - s->avail_out;
    *ended = code == Z_STREAM_END;
    if (code == Z_MEM_ERROR) return mg_fail(MG_OOM, "out of memory while reading %s", z->path);
    if (*ended || code == Z_OK || (code == Z_BUF_ERROR && !dry)) return MG_OK;
    return fail_contents(z, dry ? "its data ends too early" : s->msg ? s->msg : "not deflate data");
}

/* After the last byte of the contents: nothing may follow, and the checksum must be right. */
static mg_status finish_entry(mg_zip *z) {
    unsigned char byte;
    size_t got = 0;
    bool ended = !z->entry->deflated;
    while (!ended && !got) MG_TRY(inflate_some(z, &byte, 1, &got, &ended));
    if (z->inflating) inflateEnd(&z->z);
    z->inflating = false;
    if (got || z->packed_left || (z->entry->deflated && z->z.avail_in))
        return fail_contents(z, "it has more bytes than the zip directory says");
    if (z->crc == z->entry->crc) return MG_OK;
    return fail_contents(z, "its checksum is wrong");
}

mg_status mg_zip_start(mg_zip *z, const mg_zip_entry *e) {
    int64_t data = 0;
    if (z->inflating) inflateEnd(&z->z);
    z->inflating = false;
    z->entry = e;
    z->left = e->size;
    z->packed_left = e->packed;
    z->crc = 0;
    MG_TRY(read_local_header(z, e, &data));
    MG_TRY(mg_io_seek(z->file, data));
    if (e->deflated) MG_TRY(start_inflate(z));
    return e->size ? MG_OK : finish_entry(z);
}

/* One piece of the contents, of at most n bytes; n > 0. */
static mg_status read_some(mg_zip *z, void *dst, size_t n, size_t *got) {
    bool ended = false;
    if (z->entry->deflated) {
        MG_TRY(inflate_some(z, dst, n, got, &ended));
        return ended && (int64_t)*got < z->left ? fail_contents(z, "it is too short") : MG_OK;
    }
    MG_TRY(mg_io_read(z->file, dst, n, got));
    z->packed_left -= (int64_t)*got;
    return *got == n ? MG_OK : fail_contents(z, "the file ends within it");
}

mg_status mg_zip_read(mg_zip *z, void *dst, size_t n, size_t *got) {
    *got = 0;
    while (*got < n && z->left) {
        size_t piece = 0, room = n - *got;
        if ((int64_t)room > z->left) room = (size_t)z->left;
        MG_TRY(read_some(z, (char *)dst + *got, room, &piece));
        z->crc = (uint32_t)crc32_z(z->crc, (unsigned char *)dst + *got, piece);
        *got += piece;
        z->left -= (int64_t)piece;
        if (!z->left) MG_TRY(finish_entry(z));
    }
    return MG_OK;
}
