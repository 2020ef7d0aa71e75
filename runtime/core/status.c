/* The thread's error message, and the nearest of a list of names.
 *
 * A message lives in thread-local storage, so failing needs no memory and threads do not mix
 * theirs. */
#include "core/status.h"
#include "core/printable.h"
#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { NAME_BYTES = 64, FAR = 1 << 20 };

/* The last error of this thread: its text, never a format, and its code. */
static _Thread_local char message[MG_ERROR_BYTES];
static _Thread_local mg_status last_code;

/* Puts "..." at the end of a text that fills its buffer, and not within a character of UTF-8. */
static void mark_cut(char *text, size_t size) {
    char *end = text + size - sizeof "...";
    while (end > text && ((unsigned char)*end & 0xC0) == 0x80) end--;
    memcpy(end, "...", sizeof "...");
}

/* Formats into a second buffer first: the arguments may point into the old message, and may hold
 * anything that a file holds. */
mg_status mg_fail_v(mg_status code, const char *format, va_list args) {
    char text[MG_ERROR_BYTES];
    const int n = vsnprintf(text, sizeof text, format, args);
    if (n >= (int)sizeof text) mark_cut(text, sizeof text);
    const size_t length = mg_printable(text, strlen(text), false, message, sizeof message);
    if (length >= sizeof message) mark_cut(message, strlen(message) + 1);
    return last_code = code;
}

mg_status mg_fail(mg_status code, const char *format, ...) {
    va_list args;
    va_start(args, format);
    mg_fail_v(code, format, args);
    va_end(args);
    return code;
}

/* The same address every time; the next mg_fail overwrites the text. */
const char *mg_error_message(void) {
    return message;
}

/* MG_OK if nothing has failed since mg_error_clear. */
mg_status mg_error_code(void) {
    return last_code;
}

/* The prefix may take half of the room, so that something of the message is always left. */
void mg_error_prefix(const char *text) {
    mg_fail(last_code, "%.*s: %s", MG_ERROR_BYTES / 2, text, message);
}

/* For callers that try something else after a failure. */
void mg_error_clear(void) {
    message[0] = 0;
    last_code = MG_OK;
}

/* In the order of the enum. */
const char *mg_status_name(mg_status code) {
    static const char *const names[MG_N_STATUS] = {"ok",          "usage",       "data",    "io",
                                                   "oom",         "nonfinite",   "device",  "comm",
                                                   "interrupted", "unsupported", "internal"};
    return (int)code >= 0 && (int)code < MG_N_STATUS ? names[code] : "unknown";
}

static int smaller(int a, int b) {
    return a < b ? a : b;
}

/* The edit distance (optimal string alignment): insertions, deletions, replacements and swaps of
 * two neighbours; letter case does not count. FAR if a name is too long for the table. */
static int distance(const char *a, const char *b) {
    const int n = (int)strlen(a), m = (int)strlen(b);
    int d[NAME_BYTES + 1][NAME_BYTES + 1];
    if (n > NAME_BYTES || m > NAME_BYTES) return FAR;
    for (int i = 0; i <= n; i++) d[i][0] = i;
    for (int j = 0; j <= m; j++) d[0][j] = j;
    for (int i = 1; i <= n; i++)
        for (int j = 1; j <= m; j++) {
            const int x = tolower((unsigned char)a[i - 1]), y = tolower((unsigned char)b[j - 1]);
            int best = smaller(d[i - 1][j], d[i][j - 1]) + 1;
            best = smaller(best, d[i - 1][j - 1] + (x != y));
            /* a swap of two neighbours counts as one change */
            if (i > 1 && j > 1 && x == tolower((unsigned char)b[j - 2]) &&
                tolower((unsigned char)a[i - 2]) == y)
                best = smaller(best, d[i - 2][j - 2] + 1);
            d[i][j] = best;
        }
    return d[n][m];
}

/* The name nearest to `given`, or NULL if none is near: at most one change for every three letters
 * of the shorter name, or one letter too few or too many at the end. Of names that are equally
 * near, the first that begins with the same letter. */
static const char *nearest_name(const char *given, const char *const *names, int n) {
    const int length = (int)strlen(given);
    int best = FAR;
    const char *found = NULL;
    for (int i = 0; i < n; i++) {
        const int d = 2 * distance(given, names[i]) + (given[0] != names[i][0]);
        const int shorter = smaller(length, (int)strlen(names[i]));
        const bool begins =
            shorter >= 2 && d == 2 && strncmp(given, names[i], (size_t)shorter) == 0;
        if ((begins || d / 2 <= shorter / 3) && d < best) best = d, found = names[i];
    }
    return found;
}

const char *mg_did_you_mean(const char *given, const char *const *names, int n) {
    static _Thread_local char text[NAME_BYTES + sizeof " (did you mean \"\"?)"];
    const char *near = nearest_name(given, names, n);
    if (!near) return "";
    snprintf(text, sizeof text, " (did you mean \"%s\"?)", near);
    return text;
}

const char *mg_name_hint(const char *given, const char *const *names, int n, const char *noun) {
    static _Thread_local char text[1024];
    const size_t room = sizeof text;
    size_t used = (size_t)snprintf(text, room, "%s; ", mg_did_you_mean(given, names, n));
    if (n == 0) snprintf(text + used, room - used, "there are no %ss", noun);
    if (n == 1) snprintf(text + used, room - used, "the only %s is %s", noun, names[0]);
    if (n < 2) return text;
    used += (size_t)snprintf(text + used, room - used, "the %ss are %s", noun, names[0]);
    for (int i = 1; i < n && used < room; i++)
        used += (size_t)snprintf(text + used, room - used, ", %s", names[i]);
    return text;
}
