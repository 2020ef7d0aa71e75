/* The devices of the process: names, plug-ins, limits, the shared arena.
 *
 * Devices are made on first use and live until mg_devices_close(). A kind that is not built in is a
 * plug-in `mgpu-<kind>.so`. */
#include "device/device.h"
#include "core/alloc.h"
#include "core/plugin.h"
#include "device/worker.h"
#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const mg_device_api mg_device_ref, mg_device_null;

enum { MAX_KINDS = 8, MAX_ORDINAL = MG_MAX_DEVICES - 1 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static mg_device *first;
static mg_device *chosen; /* the default device */
static struct {
    char kind[16];
    const mg_device_api *api;
} kinds[MAX_KINDS];
static int n_kinds;

/* ---- plug-ins ---- */

static const mg_device_api *remember(const char *kind, const mg_device_api *api) {
    if (n_kinds < MAX_KINDS) {
        snprintf(kinds[n_kinds].kind, sizeof kinds[n_kinds].kind, "%s", kind);
        kinds[n_kinds++].api = api;
    }
    return api;
}

static const mg_device_api *load_plugin(const char *kind) {
    /* libgomp reads it once, when it is loaded: spinning long behind a busy foreign thread costs a
     * factor of fifty; this costs five per cent on a quiet machine. */
    if (strcmp(kind, "cpu") == 0) setenv("GOMP_SPINCOUNT", "1000", 0);
    const char *why = NULL;
    const mg_device_api *(*plugin)(void) = NULL;
    *(void **)&plugin = mg_plugin_symbol(kind, "mg_device_plugin", &why);
    if (plugin) return remember(kind, plugin());
    mg_fail(MG_UNSUPPORTED, "device kind \"%s\" is not available: mgpu-%s.so: %s", kind, kind, why);
    return NULL;
}

static const mg_device_api *kind_locked(const char *kind) {
    if (strcmp(kind, "ref") == 0) return &mg_device_ref;
    if (strcmp(kind, "null") == 0) return &mg_device_null;
    for (int i = 0; i < n_kinds; i++)
        if (strcmp(kinds[i].kind, kind) == 0) return kinds[i].api;
    return load_plugin(kind);
}

const mg_device_api *mg_device_kind(const char *kind) {
    pthread_mutex_lock(&lock);
    const mg_device_api *api = kind_locked(kind);
    pthread_mutex_unlock(&lock);
    return api;
}

/* ---- names ---- */

/* Reads the number at *p, up to MAX_ORDINAL, and goes past it. */
static mg_status parse_number(const char *name, const char **p, int *number) {
    char *end;
    const long value = strtol(*p, &end, 10);
    if (!isdigit((unsigned char)**p) || value > MAX_ORDINAL)
        return mg_fail(MG_USAGE, "device \"%s\": the number after the %s must be 0 to %d", name,
                       (*p)[-1] == ':' ? "colon" : "slash", MAX_ORDINAL);
    *number = (int)value;
    *p = end;
    return MG_OK;
}

/* "cpu:1", "/device:GPU:0", "gpu:0", "cuda", "cuda:0/1" -> kind, ordinal, and the logical device.
 */
static mg_status parse_name(const char *name, char kind[16], int *ordinal, int *logical) {
    static const char *const known[] = {"cpu", "cuda", "ref", "null", "gpu"};
    const char *p = name;
    if (strncmp(p, "/device:", 8) == 0)
        p += 8;
    else if (*p == '/')
        p++;
    size_t n = 0;
    while (isalpha((unsigned char)p[n]) && n < 15)
        kind[n] = (char)tolower((unsigned char)p[n]), n++;
    kind[n] = 0;
    p += n;
    *ordinal = *logical = 0;
    if (*p == ':') {
        p++;
        MG_TRY(parse_number(name, &p, ordinal));
    }
    if (*p == '/' && (strcmp(kind, "cuda") == 0 || strcmp(kind, "gpu") == 0)) {
        p++;
        MG_TRY(parse_number(name, &p, logical));
    }
    if (*p) kind[0] = 0;
    if (strcmp(kind, "gpu") == 0) strcpy(kind, "cuda");
    for (int i = 0; i < 4; i++)
        if (strcmp(kind, known[i]) == 0) return MG_OK;
    const char *near = mg_nearest_name(kind, known, 5);
    return mg_fail(
        MG_USAGE,
        "unknown device \"%s\"%s%s%s: a device is cpu:N, cuda:N, cuda:N/M, ref:N or null:N", name,
        near ? " (did you mean \"" : "", near ? near : "", near ? "\"?)" : "");
}

/* "200M" -> bytes; false for what is no size above 0. */
static bool parse_size(const char *text, int64_t *bytes) {
    char *end;
    if (!isdigit((unsigned char)*text)) return false;
    double size = strtod(text, &end);
    static const char units[] = "KMGT";
    const char *unit = *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
    if (*end && (!unit || end[1])) return false;
    for (const char *u = units; unit && u <= unit; u++) size *= 1024;
    *bytes = size < 9e18 ? (int64_t)size : INT64_MAX;
    return *bytes > 0;
}

/* "cpu:0=200M" -> the limit, if it is this device's. */
static bool read_limit(char *entry, mg_device *d) {
    char kind[16];
    int ordinal, logical;
    int64_t bytes;
    char *size = strchr(entry, '=');
    if (!size) return false;
    *size++ = 0;
    const bool read =
        parse_name(entry, kind, &ordinal, &logical) == MG_OK && parse_size(size, &bytes);
    size[-1] = '=';
    if (read && strcmp(kind, d->api->kind) == 0 && ordinal == d->ordinal && logical == d->logical)
        d->limit = bytes;
    return read;
}

/* MGPU_MEMORY="cpu:0=200M,cuda:0=4G". All of it is read for every device: what is misspelled is
 * nobody's limit, but was meant to be somebody's. */
static mg_status limit_memory(mg_device *d) {
    const char *p = getenv("MGPU_MEMORY");
    d->limit = INT64_MAX;
    while (p && *p) {
        char entry[64];
        const size_t n = strcspn(p, ",");
        snprintf(entry, sizeof entry, "%.*s", (int)(n < sizeof entry ? n : sizeof entry - 1), p);
        if (n >= sizeof entry || !read_limit(entry, d))
            return mg_fail(MG_USAGE,
                           "MGPU_MEMORY: cannot read \"%s\": write devices and their limits, as in "
                           "MGPU_MEMORY=cpu:0=200M,cuda:0=4G",
                           entry);
        p += n + (p[n] == ',');
    }
    return MG_OK;
}

static void write_name(char name[16], const char *kind, int ordinal, int logical) {
    const unsigned gpu = (unsigned)ordinal % MG_MAX_DEVICES,
                   part = (unsigned)logical % MG_MAX_DEVICES;
    if (logical)
        snprintf(name, 16, "%.8s:%u/%u", kind, gpu, part);
    else
        snprintf(name, 16, "%.8s:%u", kind, gpu);
}

static mg_device *make_device(const mg_device_api *api, int ordinal, int logical) {
    mg_device *d = mg_alloc_zero(sizeof *d);
    if (!d) return NULL;
    d->api = api;
    d->ordinal = ordinal;
    d->logical = logical;
    write_name(d->name, api->kind, ordinal, logical);
    if (limit_memory(d) != MG_OK || (api->open && api->open(d) != MG_OK)) {
        mg_free(d);
        return NULL;
    }
    d->next = first;
    return first = d;
}

/* True with none of its kind: opening it, or asking about it, says why. */
static bool exists(const mg_device_api *api, int ordinal) {
    const int n = api->count();
    if (n == 0 || ordinal < n) return true;
    mg_fail(MG_USAGE, "device \"%s:%d\" does not exist: there %s %d of its kind", api->kind,
            ordinal, n == 1 ? "is" : "are", n);
    return false;
}

static mg_device *find_locked(const char *kind, int ordinal, int logical) {
    for (mg_device *d = first; d; d = d->next)
        if (d->ordinal == ordinal && d->logical == logical && strcmp(d->api->kind, kind) == 0)
            return d;
    const mg_device_api *api = kind_locked(kind);
    if (!api) return NULL;
    return exists(api, ordinal) ? make_device(api, ordinal, logical) : NULL;
}

mg_device *mg_device_find(const char *name) {
    char kind[16];
    int ordinal, logical;
    if (parse_name(name, kind, &ordinal, &logical) != MG_OK) return NULL;
    pthread_mutex_lock(&lock);
    mg_device *d = find_locked(kind, ordinal, logical);
    pthread_mutex_unlock(&lock);
    return d && mg_device_check(d) == MG_OK ? d : NULL;
}

mg_status mg_device_check(const mg_device *d) {
    if (!mg_device_is_lost(d)) return MG_OK;
    return mg_fail(MG_DEVICE,
                   "%s is lost: it did not come back from an earlier step; choose other devices",
                   d->name);
}

mg_status mg_device_describe(const char *name, mg_device_info *info) {
    char kind[16];
    int ordinal, logical;
    MG_TRY(parse_name(name, kind, &ordinal, &logical));
    const mg_device_api *api = mg_device_kind(kind);
    if (!api || !exists(api, ordinal)) return mg_error_code();
    MG_TRY(api->describe(ordinal, info));
    write_name(info->name, kind, ordinal, logical);
    snprintf(info->kind, sizeof info->kind, "%s", kind);
    return MG_OK;
}

mg_device *mg_device_default(void) {
    static const char *const names[] = {"cpu:0", "ref:0"};
    const mg_device_api *gpus = chosen ? NULL : mg_device_kind("cuda");
    if (gpus && gpus->count() > 0) chosen = mg_device_find("cuda:0");
    for (int i = 0; i < 2 && !chosen; i++) {
        mg_error_clear();
        chosen = mg_device_find(names[i]);
    }
    return chosen;
}

void mg_device_set_default(mg_device *d) {
    chosen = d;
}

mg_device *mg_device_first(void) {
    return first;
}

void mg_devices_close(void) {
    mg_workers_close();
    for (const mg_device *d = first; d; d = d->next)
        if (mg_device_is_lost(d)) return; /* its job may still use them all */
    pthread_mutex_lock(&lock);
    while (first) {
        mg_device *d = first;
        first = d->next;
        if (d->arena) mg_device_free(d, d->arena, d->arena_bytes);
        if (d->sound) mg_variable_release(d->sound);
        if (d->api->close) d->api->close(d);
        mg_free(d->kept);
        mg_free(d);
    }
    chosen = NULL;
    pthread_mutex_unlock(&lock);
}

mg_status mg_device_arena(mg_device *d, size_t bytes, void **arena) {
    if (bytes > d->arena_bytes) {
        if (d->arena) mg_device_free(d, d->arena, d->arena_bytes);
        d->arena = NULL;
        d->arena_bytes = 0;
        MG_TRY(mg_device_alloc(d, bytes, &d->arena));
        d->arena_bytes = bytes;
    }
    *arena = d->arena;
    return MG_OK;
}
