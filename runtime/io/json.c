/* JSON through jansson. The nesting depth is checked on the text, before parsing: so jansson's
 * parser and the code that walks parsed values, which are recursive, need no depth limit of their
 * own. */
#include "io/json.h"
#include "core/alloc.h"
#include <stdbool.h>
#include <string.h>

/* The byte at which nesting exceeds MG_JSON_MAX_DEPTH, or n. Brackets inside strings do not count;
 * a backslash escapes the next byte. */
static size_t too_deep_at(const char *text, size_t n) {
    int depth = 0;
    bool quoted = false;
    for (size_t i = 0; i < n; i++) {
        if (quoted) {
            if (text[i] == '\\') i++;
            quoted = i >= n || text[i] != '"';
        } else if (text[i] == '"') {
            quoted = true;
        } else if (text[i] == '[' || text[i] == '{') {
            if (++depth > MG_JSON_MAX_DEPTH) return i;
        } else if (text[i] == ']' || text[i] == '}') {
            depth--;
        }
    }
    return n;
}

/* Duplicate keys are refused: the last one would silently win.
 *
 * Zero bytes inside strings are allowed (\u0000); callers that need C strings check lengths. */
json_t *mg_json_parse(const char *text, size_t n, const char *who) {
    const size_t deep = too_deep_at(text, n);
    if (deep < n) {
        mg_fail(MG_DATA, "%s: the JSON nests deeper than %d at byte %zu", who, MG_JSON_MAX_DEPTH,
                deep);
        return NULL;
    }
    json_error_t error;
    const size_t flags = JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL;
    json_t *value = json_loadb(text, n, flags, &error);
    if (value) return value;
    const bool memory = json_error_code(&error) == json_error_out_of_memory;
    mg_fail(memory ? MG_OOM : MG_DATA, "%s: the JSON is damaged at line %d, column %d: %s", who,
            error.line, error.column, error.text);
    return NULL;
}

/* ---- writing ---- */

/* Text that grows as jansson writes pieces. */
typedef struct text_buffer {
    char *text;
    size_t n, room;
} text_buffer;

/* For json_dump_callback: adds a piece and keeps the text zero-terminated. The room doubles. */
static int append_text(const char *piece, size_t n, void *data) {
    text_buffer *b = data;
    if (b->room - b->n <= n) { /* one byte more for the terminating zero */
        const size_t room = 2 * (b->n + n) + 256;
        char *more = mg_realloc(b->text, room);
        if (!more) return -1;
        b->text = more;
        b->room = room;
    }
    memcpy(b->text + b->n, piece, n);
    b->n += n;
    b->text[b->n] = 0;
    return 0;
}

/* 17 digits bring every double back exactly. */
char *mg_json_text(const json_t *value, int sorted, size_t *n) {
    text_buffer b = {0};
    size_t flags = JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(17);
    if (sorted) flags |= JSON_SORT_KEYS;
    mg_error_clear(); /* to distinguish a failure of append_text from a failure of jansson */
    if (json_dump_callback(value, append_text, &b, flags) == 0) {
        *n = b.n;
        return b.text;
    }
    mg_free(b.text);
    if (mg_error_code() == MG_OK) mg_fail(MG_OOM, "out of memory while writing JSON");
    return NULL;
}
