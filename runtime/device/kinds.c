/* Device kinds: finding and loading them, and parsing device names. See kinds.h.
 *
 * The table below grows only, so that pointers to interfaces stay valid. A kind gets a row when it
 * is built in, when the Makefile found its folder (so that a kind that was not built is still
 * reported as missing), or when its plug-in is found. */
#include "device/kinds.h"
#include "core/plugin.h"
#include "core/threads.h"
#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef MG_DEVICE_FOLDERS
#define MG_DEVICE_FOLDERS "" /* the folders of runtime/device/ that hold a kind: "cpu cuda" */
#endif

extern const mg_device_api mg_device_ref, mg_device_null;

enum { MAX_ORDINAL = MG_MAX_DEVICES - 1 };

static const char ALIAS[] = "gpu"; /* of the best kind whose api says `gpu` */

/* Not device.c's lock: that one may be held when a kind is looked up here, never the other way. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static mg_device_kind_entry kinds[MG_MAX_KINDS]; /* with the lock; sorted by name */
static int n_kinds;

/* ---- the table of kinds, with the lock held ---- */

/* NULL if there is no such row. */
static mg_device_kind_entry *find_kind(const char *name) {
    for (int i = 0; i < n_kinds; i++)
        if (strcmp(kinds[i].name, name) == 0) return &kinds[i];
    return NULL;
}

/* Gives the kind a row. Skips names that mg_device_name_parse could not read: a kind's name is
 * lower-case letters. */
static void add_kind(const char *name, const mg_device_api *api) {
    const size_t n = strlen(name);
    if (n == 0 || n >= MG_KIND_NAME || strspn(name, "abcdefghijklmnopqrstuvwxyz") != n) return;
    if (find_kind(name) || n_kinds == MG_MAX_KINDS) return;
    int at = n_kinds++;
    for (; at > 0 && strcmp(kinds[at - 1].name, name) > 0; at--) kinds[at] = kinds[at - 1];
    kinds[at] = (mg_device_kind_entry){.api = api};
    memcpy(kinds[at].name, name, n + 1);
}

/* For mg_plugin_each. */
static void add_plugin(void *context, const char *name) {
    (void)context;
    add_kind(name, NULL);
}

/* The kinds that are known without looking into any folder. */
static void add_fixed_kinds(void) {
    if (n_kinds > 0) return;
    add_kind("ref", &mg_device_ref);
    add_kind("null", &mg_device_null);
    const char *folders = MG_DEVICE_FOLDERS;
    while (*folders) {
        char name[MG_KIND_NAME];
        const int n = (int)strcspn(folders, " ");
        snprintf(name, sizeof name, "%.*s", n, folders);
        add_kind(name, NULL);
        folders += n + (folders[n] == ' ');
    }
}

/* Looks into the folders every time: MGPU_PLUGINS may have been changed by the program itself. */
static void add_all_kinds(void) {
    add_fixed_kinds();
    mg_plugin_each("mg_device_plugin", add_plugin, NULL);
}

/* Loads the plug-in of a kind and returns its entry function. Any plug-in may load OpenMP, and
 * libgomp reads these variables once, when it is loaded. They are removed afterwards, so that child
 * processes do not inherit them.
 *
 * By default, idle threads spin for a long time, which makes steps fifty times slower while other
 * threads keep the cores busy; with a limit of 1000 turns they are five per cent slower on a quiet
 * machine. While there are more threads than cores, libgomp spins for 100 turns only, unless the
 * policy is active. Without that policy, one run on the device's worker, which has its own OpenMP
 * threads, made all later steps of a small network take twice as long. */
static void *plugin_symbol(const char *kind, const char **why) {
    static const char *const spin[][2] = {{"GOMP_SPINCOUNT", "1000"},
                                          {"OMP_WAIT_POLICY", "active"}};
    bool is_set[2];
    mg_core_count_keep();
    for (int i = 0; i < 2; i++) {
        is_set[i] = getenv(spin[i][0]) != NULL;
        setenv(spin[i][0], spin[i][1], 0);
    }
    void *symbol = mg_plugin_symbol(kind, "mg_device_plugin", why);
    for (int i = 0; i < 2; i++)
        if (!is_set[i]) unsetenv(spin[i][0]);
    return symbol;
}

/* NULL, with a message: the file is missing, does not load, or is not what its name says. */
static const mg_device_api *load_plugin(const char *kind) {
    const char *why = NULL;
    const mg_device_api *(*plugin)(void) = NULL;
    *(void **)&plugin = plugin_symbol(kind, &why);
    const mg_device_api *api = plugin ? plugin() : NULL;
    if (api && api->size == sizeof *api && strcmp(api->kind, kind) == 0) return api;
    if (api)
        why = api->size != sizeof *api ? "it was built against another version of the library"
                                       : "it holds a device of another kind";
    mg_fail(MG_UNSUPPORTED, "device kind \"%s\" is not available: mgpu-%s.so: %s", kind, kind, why);
    return NULL;
}

/* The interface of a row, loading its plug-in. A failure is not remembered: a missing library may
 * be installed before the next try. */
static const mg_device_api *load_kind(mg_device_kind_entry *k) {
    if (!k->api) k->api = load_plugin(k->name);
    return k->api;
}

/* ---- looking kinds up ----
 *
 * Folders are searched only for names that have no row yet: known kinds cost no file access. */

const mg_device_api *mg_device_kind(const char *kind) {
    pthread_mutex_lock(&lock);
    add_fixed_kinds();
    if (!find_kind(kind)) add_all_kinds();
    mg_device_kind_entry *k = find_kind(kind);
    const mg_device_api *api = k ? load_kind(k) : load_plugin(kind);
    pthread_mutex_unlock(&lock);
    return api;
}

bool mg_device_is_kind(const char *name) {
    if (strcmp(name, ALIAS) == 0) return true;
    pthread_mutex_lock(&lock);
    add_fixed_kinds();
    if (!find_kind(name)) add_all_kinds();
    const bool known = find_kind(name) != NULL;
    pthread_mutex_unlock(&lock);
    return known;
}

/* Unavailable kinds first, so that lists begin with what is missing; then by falling rank, and by
 * name where ranks are equal. */
static int by_rank(const void *a, const void *b) {
    const mg_device_kind_entry *x = a, *y = b;
    if (!x->api != !y->api) return x->api ? 1 : -1;
    if (x->api && x->api->rank != y->api->rank) return x->api->rank < y->api->rank ? 1 : -1;
    return strcmp(x->name, y->name);
}

int mg_device_kinds(mg_device_kind_entry list[MG_MAX_KINDS]) {
    pthread_mutex_lock(&lock);
    add_all_kinds();
    for (int i = 0; i < n_kinds; i++) load_kind(&kinds[i]);
    const int n = n_kinds;
    memcpy(list, kinds, (size_t)n * sizeof *list);
    pthread_mutex_unlock(&lock);
    mg_error_clear();
    qsort(list, (size_t)n, sizeof *list, by_rank);
    return n;
}

/* The kind that "gpu" stands for: the GPU kind of the highest rank that has a device, or the one of
 * the highest rank if none has, whose message then says why. */
static mg_status resolve_alias(char kind[MG_KIND_NAME]) {
    static char found[MG_KIND_NAME]; /* guarded by lock; empty until a kind had a device */
    pthread_mutex_lock(&lock);
    memcpy(kind, found, MG_KIND_NAME);
    pthread_mutex_unlock(&lock);
    if (*kind) return MG_OK;
    mg_device_kind_entry list[MG_MAX_KINDS];
    const int n = mg_device_kinds(list);
    const mg_device_kind_entry *best = NULL;
    for (int i = 0; i < n && !(best && best->api->count() > 0); i++)
        if (list[i].api && list[i].api->gpu && (!best || list[i].api->count() > 0)) best = &list[i];
    if (best) {
        memcpy(kind, best->name, MG_KIND_NAME);
        pthread_mutex_lock(&lock);
        if (best->api->count() > 0) memcpy(found, best->name, MG_KIND_NAME);
        pthread_mutex_unlock(&lock);
        return MG_OK;
    }
    /* A kind that is not available may be the GPU's: its message says what is missing. */
    if (n > 0 && !list[0].api && !mg_device_kind(list[0].name)) {
        mg_error_prefix("no device kind here is a GPU");
        return mg_error_code();
    }
    return mg_fail(MG_UNSUPPORTED, "no device kind here is a GPU");
}

/* MG_USAGE; the message has the given name, the nearest kind, and all kinds. */
static mg_status unknown_kind(const char *what, const char *given, const char *kind) {
    const char *names[MG_MAX_KINDS + 1];
    char list[MG_MAX_KINDS * (MG_KIND_NAME + 2)] = "";
    size_t used = 0;
    pthread_mutex_lock(&lock);
    add_all_kinds();
    const int n = n_kinds;
    for (int i = 0; i < n; i++) {
        names[i] = kinds[i].name;
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", names[i]);
    }
    names[n] = ALIAS;
    const mg_status status =
        mg_fail(MG_USAGE, "%s \"%s\"%s; the kinds of devices are %s, and the alias %s", what, given,
                mg_did_you_mean(kind, names, n + 1), list, ALIAS);
    pthread_mutex_unlock(&lock);
    return status;
}

/* mg_device_kind_resolve, with a message that quotes `given`: the whole text that the user wrote.
 */
static mg_status resolve_kind(const char *name, const char *what, const char *given,
                              char kind[MG_KIND_NAME]) {
    if (strcmp(name, ALIAS) == 0) return resolve_alias(kind);
    if (!mg_device_is_kind(name)) return unknown_kind(what, given, name);
    snprintf(kind, MG_KIND_NAME, "%s", name);
    return MG_OK;
}

mg_status mg_device_kind_resolve(const char *name, const char *what, char kind[MG_KIND_NAME]) {
    return resolve_kind(name, what, name, kind);
}

/* ---- names ---- */

/* Reads the number at *p, up to MAX_ORDINAL, and goes past it. */
static mg_status parse_number(const char *text, const char **p, int *number) {
    char *end;
    const long value = strtol(*p, &end, 10);
    if (!isdigit((unsigned char)**p) || value > MAX_ORDINAL)
        return mg_fail(MG_USAGE, "device \"%s\": the number after the %s must be 0 to %d", text,
                       (*p)[-1] == ':' ? "colon" : "slash", MAX_ORDINAL);
    *number = (int)value;
    *p = end;
    return MG_OK;
}

/* The part "/1" of "cuda:0/1": a logical device, for kinds that have them. */
static mg_status parse_logical(const char *text, const char **p, mg_device_name *name) {
    const mg_device_api *api = mg_device_kind(name->kind);
    if (!api) return mg_error_code();
    if (!api->shares_ordinals)
        return mg_fail(MG_USAGE,
                       "device \"%s\": %s:%d cannot be shared by several logical devices: leave "
                       "out the slash and what follows it",
                       text, name->kind, name->ordinal);
    ++*p;
    return parse_number(text, p, &name->logical);
}

mg_status mg_device_name_parse(const char *text, mg_device_name *name) {
    char spelled[MG_KIND_NAME];
    const char *p = text;
    size_t n = 0;
    if (strncmp(p, "/device:", 8) == 0)
        p += 8;
    else if (*p == '/')
        p++;
    for (; isalpha((unsigned char)p[n]) && n < sizeof spelled - 1; n++)
        spelled[n] = (char)tolower((unsigned char)p[n]);
    spelled[n] = 0;
    p += n;
    /* "cpu1" and names that are too long: the letters are followed by neither a colon, a slash nor
     * the end */
    if (*p && *p != ':' && *p != '/') return unknown_kind("unknown device", text, spelled);
    *name = (mg_device_name){.ordinal = 0};
    MG_TRY(resolve_kind(spelled, "unknown device", text, name->kind));
    if (*p == ':') {
        p++;
        MG_TRY(parse_number(text, &p, &name->ordinal));
    }
    if (*p == '/') MG_TRY(parse_logical(text, &p, name));
    if (!*p) return MG_OK;
    return mg_fail(MG_USAGE, "unknown device \"%s\": \"%s\" is left over after %s:%d", text, p,
                   name->kind, name->ordinal);
}

void mg_device_name_write(const mg_device_name *name, char text[MG_DEVICE_NAME]) {
    const unsigned ordinal = (unsigned)name->ordinal % MG_MAX_DEVICES;
    const unsigned logical = (unsigned)name->logical % MG_MAX_DEVICES;
    if (logical)
        snprintf(text, MG_DEVICE_NAME, "%s:%u/%u", name->kind, ordinal, logical);
    else
        snprintf(text, MG_DEVICE_NAME, "%s:%u", name->kind, ordinal);
}
