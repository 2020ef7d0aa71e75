/* Reading lists of hosts: see host_list.h.
 *
 * Texts come from environment variables and files of other programs, so every number is bounded
 * before it is used: "n[1-999999999]" is refused, not expanded. */
#include "world/host_list.h"
#include "core/alloc.h"
#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* ---- the list ---- */

static mg_status append(mg_host_list *list, const char *name, size_t n, int slots,
                        const char *who) {
    if (n == 0 || n >= MG_HOST_NAME)
        return mg_fail(MG_USAGE, "%s: a host's name has %zu characters: it needs 1 to %d", who, n,
                       MG_HOST_NAME - 1);
    if (*name == '-') /* ssh would take it for an option */
        return mg_fail(MG_USAGE, "%s: a host's name cannot begin with -", who);
    if (list->n >= MG_MOST_HOSTS)
        return mg_fail(MG_USAGE, "%s: more than %d hosts", who, MG_MOST_HOSTS);
    MG_TRY(mg_reserve((void **)&list->hosts, list->n, &list->capacity, sizeof *list->hosts));
    mg_host *host = &list->hosts[list->n++];
    snprintf(host->name, sizeof host->name, "%.*s", (int)n, name);
    host->slots = slots;
    return MG_OK;
}

void mg_host_list_free(mg_host_list *list) {
    mg_free(list->hosts);
    *list = (mg_host_list){0};
}

/* Reads a whole number of 1 to 9 digits, and moves *p behind it. -1: there is none. */
static int read_number(const char **p) {
    int number = 0, digits = 0;
    for (; isdigit((unsigned char)**p); (*p)++) {
        if (++digits > 9) return -1;
        number = 10 * number + (**p - '0');
    }
    return digits ? number : -1;
}

/* ---- SLURM ---- */

typedef struct expansion { /* of one name with ranges in brackets */
    mg_host_list *list;
    const char *who, *text;
    char name[MG_HOST_NAME];
} expansion;

static mg_status fail_nodes(const expansion *x, const char *at) {
    return mg_fail(MG_USAGE,
                   "%s=%s: not a list of nodes as \"n[1-3,7],gpu[01-10]\": unexpected \"%s\"",
                   x->who, x->text, *at ? at : "end");
}

static mg_status expand(expansion *x, size_t n, const char *p, const char *end);

/* Expands the ranges "1-3,7]", each number with as many digits as the first of its range. */
static mg_status expand_ranges(expansion *x, size_t n, const char *p, const char *end) {
    const char *close = memchr(p, ']', (size_t)(end - p));
    if (!close) return fail_nodes(x, end);
    for (;; p++) {
        const char *start = p;
        const int first = read_number(&p), digits = (int)(p - start);
        int last = first;
        if (*p == '-') p++, last = read_number(&p);
        if (first < 0 || last < first || (*p != ',' && p != close)) return fail_nodes(x, start);
        for (int number = first; number <= last; number++) {
            const int wrote = snprintf(x->name + n, sizeof x->name - n, "%0*d", digits, number);
            if (n + (size_t)wrote >= sizeof x->name) return fail_nodes(x, start);
            MG_TRY(expand(x, n + (size_t)wrote, close + 1, end));
        }
        if (p == close) return MG_OK;
    }
}

/* Appends all names that begin with the n characters of x->name and continue with [p, end). Each
 * call appends a host or fails, so the limit on hosts also bounds the time. */
static mg_status expand(expansion *x, size_t n, const char *p, const char *end) {
    for (; p < end && *p != '['; p++) {
        if (*p == ']' || isspace((unsigned char)*p) || n + 1 >= sizeof x->name)
            return fail_nodes(x, p);
        x->name[n++] = *p;
    }
    if (p == end) return append(x->list, x->name, n, 0, x->who);
    return expand_ranges(x, n, p + 1, end);
}

/* The end of the first name: a comma outside of brackets. */
static const char *end_of_name(const char *p) {
    bool inside = false;
    for (; *p && (inside || *p != ','); p++) inside = *p == '[' || (inside && *p != ']');
    return p;
}

mg_status mg_host_list_slurm(mg_host_list *list, const char *text, const char *who) {
    expansion x = {.list = list, .who = who, .text = text};
    for (const char *p = text;; p++) {
        const char *end = end_of_name(p);
        if (end == p) return fail_nodes(&x, p);
        MG_TRY(expand(&x, 0, p, end));
        p = end;
        if (!*p) return MG_OK;
    }
}

/* Reads one entry of "2(x2),1", a count and how often it is repeated, and moves *p behind it. */
static bool read_count(const char **p, int *count, int *times) {
    *times = 1;
    *count = read_number(p);
    if (strncmp(*p, "(x", 2) == 0) {
        *p += 2;
        *times = read_number(p);
        if (**p != ')') return false;
        (*p)++;
    }
    return *count >= 0 && *count <= MG_MOST_SLOTS && *times > 0 && (**p == ',' || !**p);
}

mg_status mg_slurm_count(const char *text, int node, const char *who, int *count) {
    const char *p = text;
    for (int times, n = 0;; n += times, p++) {
        if (!read_count(&p, count, &times))
            return mg_fail(MG_USAGE, "%s=%s: not a list of counts as \"2(x2),1\"", who, text);
        if (node - n < times) return MG_OK;
        if (!*p)
            return mg_fail(MG_USAGE, "%s=%s has %d nodes, but node %d is asked for", who, text,
                           n + times, node);
    }
}

mg_status mg_host_list_slurm_counts(mg_host_list *list, const char *text, const char *who) {
    for (int i = 0; i < list->n; i++) MG_TRY(mg_slurm_count(text, i, who, &list->hosts[i].slots));
    return MG_OK;
}

/* ---- names with slots ---- */

/* The colon of an entry [p, end) of the form NAME:SLOTS, or NULL. In an IPv6 address only the colon
 * behind the bracket counts. */
static const char *find_colon(const char *p, const char *end) {
    const char *close = *p == '[' ? memchr(p, ']', (size_t)(end - p)) : NULL;
    return memchr(close ? close : p, ':', (size_t)(end - (close ? close : p)));
}

/* Appends a host, or adds its slots to those of the same host. */
static mg_status add(mg_host_list *list, const char *name, size_t n, int slots, const char *who) {
    for (int i = list->n - 1; i >= 0; i--) { /* from the last one: files of PBS repeat it */
        mg_host *known = &list->hosts[i];
        if (strlen(known->name) != n || memcmp(known->name, name, n) != 0) continue;
        known->slots += slots;
        if (known->slots <= MG_MOST_SLOTS) return MG_OK;
        return mg_fail(MG_USAGE, "%s: host %s has more than %d slots", who, known->name,
                       MG_MOST_SLOTS);
    }
    return append(list, name, n, slots, who);
}

/* Adds "NAME" or "NAME:SLOTS". */
static mg_status add_entry(mg_host_list *list, const char *p, const char *end, int slots,
                           const char *who) {
    const char *colon = find_colon(p, end), *name_end = colon ? colon : end;
    if (colon) {
        const char *after = colon + 1;
        slots = read_number(&after);
        if (slots < 1 || slots > MG_MOST_SLOTS || after != end)
            return mg_fail(MG_USAGE, "%s: \"%.*s\": the number of slots must be 1 to %d", who,
                           (int)(end - p), p, MG_MOST_SLOTS);
    }
    if (*p == '[' && name_end[-1] == ']') p++, name_end--;
    return add(list, p, (size_t)(name_end - p), slots, who);
}

mg_status mg_host_list_given(mg_host_list *list, const char *text, const char *who) {
    for (const char *p = text;; p++) {
        const char *end = p + strcspn(p, ",");
        if (end == p)
            return mg_fail(MG_USAGE, "%s %s: a host's name is missing: give \"a:4,b:4\"", who,
                           text);
        MG_TRY(add_entry(list, p, end, 1, who));
        p = end;
        if (!*p) return MG_OK;
    }
}

/* ---- files with a host on each line ---- */

/* The next word of [*p, end), of *n characters; NULL at the end. */
static const char *next_word(const char **p, const char *end, size_t *n) {
    while (*p < end && isspace((unsigned char)**p)) (*p)++;
    const char *word = *p;
    while (*p < end && !isspace((unsigned char)**p)) (*p)++;
    *n = (size_t)(*p - word);
    return *n ? word : NULL;
}

/* The slots that the words behind a host's name tell; 0: none do; -1: they cannot be read. */
static int slots_of_words(const char *p, const char *end) {
    size_t n;
    int slots = 0;
    const char *word = next_word(&p, end, &n);
    if (word && isdigit((unsigned char)*word)) { /* UGE: the number of slots, then the queue */
        const char *after = word;
        slots = read_number(&after);
        return after == word + n && slots > 0 ? slots : -1;
    }
    for (; word; word = next_word(&p, end, &n)) {
        if (n < 5 || strncmp(word, "slots", 5) != 0) continue; /* "max_slots=8" and the like */
        const char *after = word + 6;
        slots = n > 6 && word[5] == '=' ? read_number(&after) : -1;
        if (after != word + n || slots < 1) return -1;
    }
    return slots;
}

static mg_status read_line(mg_host_list *list, const char *p, const char *end, const char *who) {
    size_t n;
    const char *comment = memchr(p, '#', (size_t)(end - p));
    if (comment) end = comment;
    const char *name = next_word(&p, end, &n);
    if (!name) return MG_OK;
    const int slots = slots_of_words(p, end);
    if (slots < 0 || slots > MG_MOST_SLOTS)
        return mg_fail(MG_USAGE, "%s: \"%.*s\": the number of slots must be 1 to %d", who,
                       (int)(end - name), name, MG_MOST_SLOTS);
    return add_entry(list, name, name + n, slots ? slots : 1, who);
}

mg_status mg_host_list_lines(mg_host_list *list, const char *text, const char *who) {
    const int from = list->n;
    for (const char *p = text; *p;) {
        const char *end = p + strcspn(p, "\n");
        MG_TRY(read_line(list, p, end, who));
        p = end + (*end == '\n');
    }
    if (list->n == from) return mg_fail(MG_USAGE, "%s names no host", who);
    return MG_OK;
}
