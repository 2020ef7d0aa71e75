/* Passing on output in whole lines: see lines.h.
 *
 * Each piece is written by one call, so that lines of several processes that write to the same file
 * or terminal do not mix. */
#define _GNU_SOURCE /* memrchr */
#include "program/launcher/lines.h"
#include "core/alloc.h"
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Bytes: what a pipe holds; of a line, a longer one is cut. */
enum { PIECE = 1 << 16, LONGEST = 1 << 24 };

static void write_all(int to, const char *text, size_t n) {
    while (n > 0) {
        const ssize_t wrote = write(to, text, n);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote <= 0) return; /* nobody reads it any more */
        text += wrote, n -= (size_t)wrote;
    }
}

/* Writes the first n bytes of the text, which end with a newline, each line behind the prefix. */
static void write_lines(const mg_lines *l, size_t n) {
    const size_t prefix = strlen(l->prefix);
    size_t lines = 0, used = 0;
    if (prefix == 0) {
        write_all(l->to, l->text, n);
        return;
    }
    for (size_t i = 0; i < n; i++) lines += l->text[i] == '\n';
    char *out = mg_alloc(n + lines * prefix);
    if (!out) return;
    for (size_t start = 0; start < n;) {
        const char *end = memchr(l->text + start, '\n', n - start);
        const size_t length = (size_t)(end - l->text) + 1 - start;
        memcpy(out + used, l->prefix, prefix);
        memcpy(out + used + prefix, l->text + start, length);
        used += prefix + length, start += length;
    }
    write_all(l->to, out, used);
    mg_free(out);
}

/* Takes the wanted line out of the first `whole` bytes, which are complete lines; returns how many
 * are left of these. */
static size_t take_wanted(mg_lines *l, size_t whole) {
    const size_t begin = strlen(l->wanted);
    for (size_t start = 0; start < whole;) {
        const char *end = memchr(l->text + start, '\n', whole - start);
        const size_t next = (size_t)(end - l->text) + 1, length = next - 1 - start;
        if (length >= begin && memcmp(l->text + start, l->wanted, begin) == 0) {
            snprintf(l->found, l->found_room, "%.*s", (int)(length - begin),
                     l->text + start + begin);
            memmove(l->text + start, l->text + next, l->n - next);
            l->n -= next - start;
            l->wanted = NULL;
            return whole - (next - start);
        }
        start = next;
    }
    return whole;
}

/* Makes room for a piece and a newline. False: out of memory. */
static bool make_room(mg_lines *l) {
    if (l->room - l->n > PIECE) return true;
    const size_t room = 2 * l->n + PIECE + 1;
    char *wider = mg_realloc(l->text, room);
    if (!wider) return false;
    l->text = wider, l->room = room;
    return true;
}

static void end(mg_lines *l) {
    if (l->n > 0) {
        l->text[l->n] = '\n';
        write_lines(l, l->n + 1);
    }
    mg_free(l->text);
    close(l->from);
    *l = (mg_lines){.from = -1};
}

void mg_lines_pass(mg_lines *l) {
    if (!make_room(l)) {
        end(l);
        return;
    }
    const ssize_t got = read(l->from, l->text + l->n, PIECE);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (got <= 0) {
        end(l);
        return;
    }
    l->n += (size_t)got;
    const char *last = memrchr(l->text, '\n', l->n);
    size_t whole = last ? (size_t)(last - l->text) + 1 : 0;
    if (whole == 0 && l->n > LONGEST) l->text[l->n++] = '\n', whole = l->n;
    if (l->wanted && whole > 0) whole = take_wanted(l, whole);
    if (whole == 0) return;
    write_lines(l, whole);
    l->n -= whole;
    memmove(l->text, l->text + whole, l->n);
}

void mg_lines_drain(mg_lines *l) {
    struct pollfd from = {.fd = l->from, .events = POLLIN};
    if (l->from >= 0 && poll(&from, 1, 0) > 0) mg_lines_pass(l);
}
