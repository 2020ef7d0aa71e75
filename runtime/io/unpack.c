/* Unpacking with zlib. */
#include "io/unpack.h"
#include "core/alloc.h"
#include "core/threads.h"
#include "io/zip_format.h"
#include <stdio.h>
#include <zlib.h>

enum {
    CHUNK = 64 << 10,     /* bytes that inflate reads and writes at once */
    ASK_EVERY = 16 << 20, /* bytes between two checks of the free space */
    LEAVE = 64 << 20      /* bytes of the disk that unpacking leaves free */
};

struct mg_unpacked {
    mg_file *file;
    char *path;
    mg_io_state state;  /* of the file when it was opened */
    int64_t at;         /* bytes read so far, unpacked */
    mg_packing packing; /* not AUTO */
    bool inflating;     /* z is to be ended */
    bool ended;         /* after the last byte that is packed */
    z_stream z;
    unsigned char *in; /* owned: what inflate reads from */
};

/* ---- opening ---- */

static mg_status start_inflate(mg_unpacked *u) {
    u->in = mg_alloc(CHUNK);
    if (!u->in) return MG_OOM;
    u->z.zalloc = mg_zip_alloc;
    u->z.zfree = mg_zip_free;
    if (inflateInit2(&u->z, u->packing == MG_PACKED_GZIP ? 15 + 16 : 15) != Z_OK)
        return mg_fail(MG_OOM, "out of memory while opening %s", u->path);
    u->inflating = true;
    return MG_OK;
}

/* Call mg_unpacked_close even if this fails. */
static mg_status open_file(mg_unpacked *u, const char *path, mg_packing packing) {
    unsigned char head[2];
    size_t n;
    u->path = mg_strdup(path);
    u->file = u->path ? mg_io_open(path) : NULL;
    if (!u->file) return mg_error_code();
    MG_TRY(mg_io_look(u->file, &u->state));
    if (packing == MG_PACKED_AUTO) {
        MG_TRY(mg_io_read_at(u->file, head, 2, 0, &n));
        const bool gzip = n == 2 && head[0] == 0x1f && head[1] == 0x8b;
        packing = gzip ? MG_PACKED_GZIP : MG_PACKED_NONE;
    }
    u->packing = packing;
    return packing == MG_PACKED_NONE ? MG_OK : start_inflate(u);
}

mg_unpacked *mg_unpacked_open(const char *path, mg_packing packing) {
    mg_unpacked *u = mg_alloc_zero(sizeof *u);
    if (!u || open_file(u, path, packing) == MG_OK) return u;
    mg_unpacked_close(u);
    return NULL;
}

void mg_unpacked_close(mg_unpacked *u) {
    if (!u) return;
    if (u->inflating) inflateEnd(&u->z);
    mg_free(u->in);
    mg_io_close(u->file);
    mg_free(u->path);
    mg_free(u);
}

bool mg_unpacked_is_packed(const mg_unpacked *u) {
    return u->packing != MG_PACKED_NONE;
}

int64_t mg_unpacked_file_size(const mg_unpacked *u) {
    return u->state.bytes;
}

mg_io_state mg_unpacked_state(const mg_unpacked *u) {
    return u->state;
}

mg_status mg_unpacked_check_unchanged(const mg_unpacked *u, const mg_io_state *before) {
    return mg_io_check_unchanged(u->file, before);
}

/* ---- reading ---- */

/* Reads the next chunk for inflate if it has used up the last one; nothing at the end of the
 * file. */
static mg_status refill_input(mg_unpacked *u) {
    size_t n;
    if (u->z.avail_in) return MG_OK;
    MG_TRY(mg_io_read(u->file, u->in, CHUNK, &n));
    u->z.next_in = u->in;
    u->z.avail_in = (uInt)n;
    return MG_OK;
}

/* After the end of a gzip member or of zlib data, whose checksum zlib has verified. */
static mg_status start_next_member(mg_unpacked *u) {
    MG_TRY(refill_input(u));
    u->ended = u->z.avail_in == 0;
    if (u->ended) return MG_OK;
    if (u->packing == MG_PACKED_ZLIB)
        return mg_fail(MG_DATA, "%s: there are bytes after the end of the zlib data", u->path);
    inflateReset(&u->z);
    return MG_OK;
}

/* One call of inflate. */
static mg_status inflate_some(mg_unpacked *u) {
    MG_TRY(refill_input(u));
    const bool dry = u->z.avail_in == 0; /* the file has no more bytes */
    const char *name = u->packing == MG_PACKED_GZIP ? "gzip" : "zlib";
    const int code = inflate(&u->z, Z_NO_FLUSH);
    if (code == Z_STREAM_END) return start_next_member(u);
    if (code == Z_MEM_ERROR) return mg_fail(MG_OOM, "out of memory while reading %s", u->path);
    if (code == Z_OK || (code == Z_BUF_ERROR && !dry)) return MG_OK;
    if (dry)
        return mg_fail(MG_DATA, "%s: the %s data ends too early: the file is truncated", u->path,
                       name);
    return mg_fail(MG_DATA, "%s: the %s data is damaged near byte %lld: %s", u->path, name,
                   (long long)u->at, code == Z_NEED_DICT ? "it wants a dictionary" : u->z.msg);
}

static mg_status read_packed(mg_unpacked *u, void *dst, size_t n, size_t *got) {
    while (*got < n && !u->ended) {
        const size_t room = n - *got < CHUNK ? n - *got : CHUNK;
        u->z.next_out = (unsigned char *)dst + *got;
        u->z.avail_out = (uInt)room;
        MG_TRY(inflate_some(u));
        *got += room - u->z.avail_out;
        u->at += (int64_t)(room - u->z.avail_out);
    }
    if (u->at / MG_UNPACK_RATIO <= u->state.bytes + MG_UNPACK_FREE / MG_UNPACK_RATIO) return MG_OK;
    return mg_fail(
        MG_DATA,
        "%s: its %lld bytes unpack to more than %d MiB and %d times the size of the file: "
        "refused; if that is right, unpack the file yourself",
        u->path, (long long)u->state.bytes, MG_UNPACK_FREE >> 20, MG_UNPACK_RATIO);
}

mg_status mg_unpacked_read(mg_unpacked *u, void *dst, size_t n, size_t *got) {
    *got = 0;
    return u->inflating ? read_packed(u, dst, n, got) : mg_io_read(u->file, dst, n, got);
}

/* ---- unpacking ---- */

static mg_status check_space(mg_file *out, int64_t size) {
    int64_t space;
    if (size % ASK_EVERY) return MG_OK;
    MG_TRY(mg_io_free_space(out, &space));
    if (space >= LEAVE + ASK_EVERY) return MG_OK;
    return mg_fail(MG_IO, "the disk has only %s left", MG_SIZE_TEXT(space));
}

/* Adds to the stored message that a temporary file was being written. */
static void note_writing(const mg_unpacked *u, int64_t size) {
    char note[512];
    snprintf(note, sizeof note,
             "%.300s: unpacking it to a temporary file (%s so far; TMPDIR names the folder)",
             u->path, MG_SIZE_TEXT(size));
    mg_error_prefix(note);
}

static mg_status copy_all(mg_unpacked *u, mg_file *out, int64_t *size) {
    unsigned char *block = mg_alloc(CHUNK);
    mg_status status = block ? MG_OK : MG_OOM;
    size_t got = CHUNK;
    for (*size = 0; status == MG_OK && got == CHUNK; *size += (int64_t)got) {
        status = mg_unpacked_read(u, block, CHUNK, &got);
        if (status != MG_OK) break;
        status = check_space(out, *size);
        if (status == MG_OK) status = mg_io_write(out, block, got);
        if (status != MG_OK) note_writing(u, *size);
        if (status == MG_OK && mg_interrupt_take()) status = mg_fail(MG_INTERRUPTED, "interrupted");
    }
    mg_free(block);
    return status;
}

mg_status mg_unpack_into(const char *path, mg_packing packing, mg_file *out, int64_t *size) {
    mg_unpacked *u = mg_unpacked_open(path, packing);
    const mg_status status = u ? copy_all(u, out, size) : mg_error_code();
    mg_unpacked_close(u);
    return status;
}

/* The plain file is handed over; a packed one is copied. */
mg_file *mg_unpack(const char *path, mg_packing packing, int64_t *size) {
    mg_unpacked *u = mg_unpacked_open(path, packing);
    mg_file *f = NULL;
    if (u && !u->inflating) {
        f = u->file, *size = u->state.bytes;
        u->file = NULL;
    } else if (u) {
        f = mg_io_unnamed();
        if (f && copy_all(u, f, size) != MG_OK) {
            mg_io_close(f);
            f = NULL;
        }
    }
    mg_unpacked_close(u);
    return f;
}
