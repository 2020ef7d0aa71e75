/* Reading zip archives: entries in any order, each from its beginning. zip_directory.c reads the
 * directory. */
#include "core/alloc.h"
#include "io/zip_format.h"
#include <stdlib.h>
#include <string.h>

void *mg_zip_alloc(void *context, unsigned n, unsigned size) {
    (void)context;
    return mg_alloc((size_t)n * size);
}

void mg_zip_free(void *context, void *block) {
    (void)context;
    mg_free(block);
}

/* ---- archives ---- */

mg_zip *mg_zip_from(mg_file *file, const char *path) {
    mg_zip *z = mg_alloc_zero(sizeof *z);
    if (!z) return NULL;
    z->file = file;
    z->path = mg_strdup(path);
    if (z->path && mg_zip_read_directory(z) == MG_OK) return z;
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

/* For bsearch in the entries, which are sorted by name. */
static int compare_names(const void *a, const void *b) {
    return strcmp(((const mg_zip_entry *)a)->name, ((const mg_zip_entry *)b)->name);
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
 * byte. A streamed entry has no sizes in its local header, and a zip64 entry has its sizes in a
 * zip64 field. */
static mg_status read_local_header(mg_zip *z, const mg_zip_entry *e, int64_t *data) {
    unsigned char h[ZIP_LOCAL_SIZE];
    const size_t name = strlen(e->name);
    MG_TRY(mg_zip_read_at(z, e->offset, h, sizeof h));
    const uint32_t method = e->deflated ? ZIP_METHOD_DEFLATED : ZIP_METHOD_STORED;
    bool same = mg_zip_get32(h) == ZIP_LOCAL && !(mg_zip_get16(h + 6) & ZIP_ENCRYPTED) &&
                mg_zip_get16(h + 8) == method && mg_zip_get16(h + 26) == name;
    if (!e->streamed) {
        same = same && mg_zip_get32(h + 14) == e->crc;
        same = same && (mg_zip_get32(h + 18) == e->packed || mg_zip_get32(h + 18) == ZIP_MAX32);
        same = same && (mg_zip_get32(h + 22) == e->size || mg_zip_get32(h + 22) == ZIP_MAX32);
    }
    *data = e->offset + ZIP_LOCAL_SIZE + (int64_t)name + mg_zip_get16(h + 28);
    if (!same || e->packed > z->directory - *data)
        return fail_contents(z, "its header and the zip directory differ");
    char *text = mg_alloc(name);
    if (!text) return MG_OOM;
    mg_status status = mg_zip_read_at(z, e->offset + ZIP_LOCAL_SIZE, text, name);
    if (status == MG_OK && memcmp(text, e->name, name) != 0)
        status = fail_contents(z, "its header and the zip directory differ");
    mg_free(text);
    return status;
}

/* Starts inflating a deflate stream without a zlib header. */
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
    return fail_contents(z, dry ? "its data ends too early" : s->msg);
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
    if (z->inflating) inflateEnd(&z->z);
    z->inflating = false;
    z->entry = e;
    z->left = e->size;
    z->packed_left = e->packed;
    z->crc = 0;
    MG_TRY(read_local_header(z, e, &z->data));
    MG_TRY(mg_io_seek(z->file, z->data));
    if (e->deflated) MG_TRY(start_inflate(z));
    return e->size ? MG_OK : finish_entry(z);
}

/* Reads one piece of the contents, of at most n bytes; n > 0. */
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

int64_t mg_zip_position(const mg_zip *z) {
    return z->entry->deflated ? -1 : z->data + z->entry->size - z->left;
}
