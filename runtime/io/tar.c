/* Reading tar archives: blocks of 512 bytes, a header before the contents of each entry. */
#include "io/tar.h"
#include "core/alloc.h"
#include "core/threads.h"
#include "io/unpack.h"
#include <stdbool.h>
#include <string.h>

enum { BLOCK = 512, SKIP = 64 << 10 };

/* Offsets and sizes of the fields of a header. */
enum {
    NAME = 0,
    NAME_SIZE = 100,
    SIZE = 124,
    SIZE_SIZE = 12,
    SUM = 148,
    SUM_SIZE = 8,
    TYPE = 156,
    MAGIC = 257,
    PREFIX = 345,
    PREFIX_SIZE = 155
};

struct mg_tar {
    mg_unpacked *bytes;
    char *path;
    int64_t at;            /* bytes read so far */
    int64_t left, padding; /* of the entry: bytes to read, and bytes after them */
    bool ended;
    mg_tar_entry entry;
    unsigned char skipped[SKIP];
};

mg_tar *mg_tar_open(const char *path) {
    mg_tar *t = mg_alloc_zero(sizeof *t);
    if (!t) return NULL;
    t->path = mg_strdup(path);
    t->bytes = t->path ? mg_unpacked_open(path, MG_PACKED_AUTO) : NULL;
    if (t->bytes) return t;
    mg_tar_close(t);
    return NULL;
}

void mg_tar_close(mg_tar *t) {
    if (!t) return;
    mg_unpacked_close(t->bytes);
    mg_free(t->path);
    mg_free(t);
}

/* Reads n bytes, or fails with MG_DATA. */
static mg_status read_exactly(mg_tar *t, void *dst, size_t n) {
    size_t got = 0;
    MG_TRY(mg_unpacked_read(t->bytes, dst, n, &got));
    t->at += (int64_t)got;
    if (got == n) return MG_OK;
    return mg_fail(MG_DATA, "%s: the archive ends at byte %lld, within %s", t->path,
                   (long long)t->at, t->entry.name[0] ? t->entry.name : "an entry without a name");
}

mg_status mg_tar_read(mg_tar *t, void *dst, size_t n, size_t *got) {
    *got = (int64_t)n < t->left ? n : (size_t)t->left;
    t->left -= (int64_t)*got;
    return read_exactly(t, dst, *got);
}

/* Called while skipping, because skipping a large entry takes long. */
static mg_status stopped(void) {
    return mg_interrupt_take() ? mg_fail(MG_INTERRUPTED, "interrupted") : MG_OK;
}

static mg_status skip(mg_tar *t, int64_t n) {
    while (n > 0) {
        const size_t some = n < SKIP ? (size_t)n : SKIP;
        MG_TRY(stopped());
        MG_TRY(read_exactly(t, t->skipped, some));
        n -= (int64_t)some;
    }
    return MG_OK;
}

/* Reads to the end of the file, which verifies the checksum of a gzipped one. */
static mg_status read_to_end(mg_tar *t) {
    size_t got = 1;
    t->ended = true;
    while (got) {
        MG_TRY(stopped());
        MG_TRY(mg_unpacked_read(t->bytes, t->skipped, SKIP, &got));
    }
    return MG_OK;
}

/* The value of an octal field, which ends with spaces or a zero byte; -1 if it is not a number or
 * too large. */
static int64_t octal(const unsigned char *field, size_t n) {
    int64_t value = 0;
    size_t i = 0;
    while (i < n && field[i] == ' ') i++;
    for (; i < n && field[i] >= '0' && field[i] <= '7'; i++) value = value * 8 + (field[i] - '0');
    return i == n || field[i] == ' ' || field[i] == 0 ? value : -1;
}

/* Whether the header's checksum is right: the sum of all bytes, with spaces in place of the
 * checksum itself. */
static bool sum_is_right(const unsigned char header[BLOCK]) {
    int64_t sum = SUM_SIZE * ' ';
    for (int i = 0; i < BLOCK; i++)
        if (i < SUM || i >= SUM + SUM_SIZE) sum += header[i];
    return octal(header + SUM, SUM_SIZE) == sum;
}

/* Appends a field, which may end with a zero byte, to the text that ends at `end`; returns the new
 * end. */
static char *append_field(char *end, const unsigned char *field, size_t n) {
    size_t length = 0;
    while (length < n && field[length]) length++;
    memcpy(end, field, length);
    return end + length;
}

static void read_name(mg_tar *t, const unsigned char header[BLOCK]) {
    char *end = t->entry.name;
    if (memcmp(header + MAGIC, "ustar", 6) == 0 && header[PREFIX]) { /* GNU's has a space there */
        end = append_field(end, header + PREFIX, PREFIX_SIZE);
        *end++ = '/';
    }
    end = append_field(end, header + NAME, NAME_SIZE);
    *end++ = 0;
    if (strncmp(t->entry.name, "./", 2) == 0)
        memmove(t->entry.name, t->entry.name + 2, (size_t)(end - t->entry.name) - 2);
}

/* Reads the next header. Sets *regular; at the end of the archive t->ended. */
static mg_status read_header(mg_tar *t, bool *regular) {
    static const unsigned char zeros[BLOCK];
    unsigned char header[BLOCK];
    size_t got = 0;
    t->entry.name[0] = 0;
    MG_TRY(mg_unpacked_read(t->bytes, header, BLOCK, &got));
    t->at += (int64_t)got;
    if (got == 0 || (got == BLOCK && memcmp(header, zeros, BLOCK) == 0)) return read_to_end(t);
    t->entry.size = octal(header + SIZE, SIZE_SIZE);
    if (got < BLOCK || !sum_is_right(header) || t->entry.size < 0)
        return mg_fail(MG_DATA, "%s: no header of a tar archive at byte %lld", t->path,
                       (long long)(t->at - (int64_t)got));
    read_name(t, header);
    t->left = t->entry.size;
    t->padding = (BLOCK - t->left % BLOCK) % BLOCK;
    *regular = header[TYPE] == '0' || header[TYPE] == 0;
    return MG_OK;
}

mg_status mg_tar_next(mg_tar *t, const mg_tar_entry **entry) {
    bool regular = false;
    *entry = NULL;
    while (!t->ended && !regular) {
        MG_TRY(skip(t, t->left + t->padding));
        t->left = t->padding = 0;
        MG_TRY(read_header(t, &regular));
    }
    if (!t->ended) *entry = &t->entry;
    return MG_OK;
}
