/* JSON through jansson. The depth is checked before parsing, so that no walk over a parsed value
 * needs a limit of its own. */
#include "io/json.h"
#include "core/alloc.h"
#include <stdbool.h>
#include <string.h>

/* The first position nested too deeply, or n. Brackets inside strings do not count. */
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

typedef struct text_buffer {
    char *text;
    size_t n, room;
} text_buffer;

static int append(const char *piece, size_t n, void *data) {
    text_buffer *b = data;
    if (b->room - b->n <= n) { /* one more for the end */
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

char *mg_json_text(const json_t *value, int sorted, size_t *n) {
    text_buffer b = {0};
    size_t flags = JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(17);
    if (sorted) flags |= JSON_SORT_KEYS;
    mg_error_clear();
    if (json_dump_callback(value, append, &b, flags) == 0) {
        *n = b.n;
        return b.text;
    }
    mg_free(b.text);
    if (mg_error_code() == MG_OK) mg_fail(MG_OOM, "out of memory while writing JSON");
    return NULL;
}
