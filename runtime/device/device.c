/* The devices of the process: finding them by name, memory limits, the shared arena.
 *
 * Devices are made on first use and live until mg_devices_close(). kinds.c knows the kinds. */
#include "device/device.h"
#include "core/alloc.h"
#include "core/context.h"
#include "core/threads.h"
#include "core/visit.h"
#include "device/kinds.h"
#include "device/worker.h"
#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static mg_device *first;
static mg_device *chosen; /* the default device */

/* ---- limits ---- */

/* "200M" -> bytes; false if the text is not a size above 0. */
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

static bool is_named(const mg_device *d, const mg_device_name *name) {
    return d->ordinal == name->ordinal && d->logical == name->logical &&
           strcmp(d->api->kind, name->kind) == 0;
}

/* Reads an entry such as "cpu:0=200M" and takes the limit if it names this device. The name of a
 * kind that this build or machine lacks is right, too, as in "gpu:0=4G" for all machines of a
 * cluster. */
static bool read_limit(char *entry, mg_device *d) {
    mg_device_name name;
    int64_t bytes;
    char *size = strchr(entry, '=');
    if (!size) return false;
    *size++ = 0;
    const mg_status named = mg_device_name_parse(entry, &name);
    const bool read = parse_size(size, &bytes) && (named == MG_OK || named == MG_UNSUPPORTED);
    size[-1] = '=';
    if (read && named == MG_OK && is_named(d, &name)) d->limit = bytes;
    if (read && named != MG_OK) mg_error_clear();
    return read;
}

/* MGPU_MEMORY="cpu:0=200M,cuda:0=4G". Every device reads the whole list, so that a misspelled entry
 * is an error and not a limit that silently has no effect. */
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

static void init_turn(mg_device *d) {
    pthread_mutexattr_t recursive;
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&d->turn, &recursive);
    pthread_mutexattr_destroy(&recursive);
}

/* The first device starts watching for forks: devices have threads, which a forked process
 * lacks. */
static mg_device *make_device(const mg_device_api *api, const mg_device_name *name) {
    mg_threads_watch_forks();
    mg_device *d = mg_alloc_zero(sizeof *d);
    if (!d) return NULL;
    d->api = api;
    d->ordinal = name->ordinal;
    d->logical = name->logical;
    mg_device_name_write(name, d->name);
    if (limit_memory(d) != MG_OK || (api->open && api->open(d) != MG_OK)) {
        mg_free(d);
        return NULL;
    }
    init_turn(d);
    d->next = first;
    return first = d;
}

/* Whether the ordinal exists. Also true if the kind has no device: then opening or describing it
 * gives the reason. */
static bool exists(const mg_device_api *api, int ordinal) {
    const int n = api->count();
    if (n == 0 || ordinal < n) return true;
    mg_fail(MG_USAGE, "device \"%s:%d\" does not exist: there %s %d of its kind", api->kind,
            ordinal, n == 1 ? "is" : "are", n);
    return false;
}

static mg_device *find_locked(const mg_device_name *name) {
    for (mg_device *d = first; d; d = d->next)
        if (is_named(d, name)) return d;
    const mg_device_api *api = mg_device_kind(name->kind);
    if (!api) return NULL;
    return exists(api, name->ordinal) ? make_device(api, name) : NULL;
}

mg_device *mg_device_find(const char *name) {
    mg_device_name parsed;
    if (mg_device_name_parse(name, &parsed) != MG_OK) return NULL;
    pthread_mutex_lock(&lock);
    mg_device *d = find_locked(&parsed);
    if (d && !atomic_load(&mg_visit_noted.device)) atomic_store(&mg_visit_noted.device, d->name);
    pthread_mutex_unlock(&lock);
    return d && mg_device_check(d) == MG_OK ? d : NULL;
}

mg_status mg_device_check(const mg_device *d) {
    if (mg_threads_forked())
        return mg_fail(MG_UNSUPPORTED,
                       "%s: this process was forked after its parent had opened a device: the "
                       "threads of the parent do not exist here; fork before the first tensor, or "
                       "start a new process",
                       d->name);
    if (!mg_device_is_lost(d)) return MG_OK;
    return mg_fail(MG_DEVICE,
                   "%s is lost: it did not come back from an earlier step; choose other devices",
                   d->name);
}

mg_status mg_device_describe(const char *name, mg_device_info *info) {
    mg_device_name parsed;
    MG_TRY(mg_device_name_parse(name, &parsed));
    const mg_device_api *api = mg_device_kind(parsed.kind);
    if (!api || !exists(api, parsed.ordinal)) return mg_error_code();
    MG_TRY(api->describe(parsed.ordinal, info));
    mg_device_name_write(&parsed, info->name);
    snprintf(info->kind, sizeof info->kind, "%s", parsed.kind);
    return MG_OK;
}

mg_device *mg_device_default(void) {
    mg_device_kind_entry kinds[MG_MAX_KINDS];
    const int n = chosen ? 0 : mg_device_kinds(kinds);
    for (int i = 0; i < n && !chosen; i++) {
        if (!kinds[i].api || kinds[i].api->rank == 0 || kinds[i].api->count() == 0) continue;
        mg_error_clear();
        chosen = mg_device_find(kinds[i].name);
        /* A wrong setting, such as MGPU_ISA=avx3, must be an error and not silently select another
         * device. */
        if (!chosen && mg_error_code() == MG_USAGE) return NULL;
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
    if (mg_threads_forked()) return; /* there is no worker to join, and locks may be held */
    mg_workers_close();
    for (const mg_device *d = first; d; d = d->next)
        if (d->worker) return; /* its job may still use them all */
    pthread_mutex_lock(&lock);
    /* Flags of guards have copies on other devices. */
    for (mg_device *d = first; d; d = d->next) {
        if (d->guards) d->free_guards(d->guards);
        d->guards = NULL;
    }
    while (first) {
        mg_device *d = first;
        first = d->next;
        if (d->arena) mg_device_free(d, d->arena, d->arena_bytes);
        if (d->api->close) d->api->close(d);
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

/* ---- the hooks that core and ops call (core/context.h) ---- */

static const char *name_of(const mg_device *d) {
    return d->name;
}

__attribute__((constructor)) static void install_hooks(void) {
    static const mg_device_hooks hooks = {
        .find_default = mg_device_default, .name = name_of, .free = mg_device_free};
    mg_device_hooks_install(&hooks);
}
