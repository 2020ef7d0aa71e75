/* Plug-ins inside of the program: the cpu device is linked into it; others are files of the
 * archive, which the system loads from a file in memory. */
#define _GNU_SOURCE /* memfd_create */
#include "core/plugin.h"
#include "core/threads.h"
#include "pack/archive.h"
#include "pack/pack.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MAX_PLUGINS = 32 };

extern const void *mg_device_plugin(void); /* of the cpu device */

/* Those that were loaded, which stay so. */
static struct loaded {
    char name[64];
    void *handle;
} loaded[MAX_PLUGINS];
static int n_loaded;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Writes all bytes and returns the descriptor, or closes it and returns -1. */
static int fill(int fd, const char *bytes, size_t size) {
    for (size_t done = 0; fd >= 0 && done < size;) {
        const ssize_t n = write(fd, bytes + done, size - done);
        if (n > 0) {
            done += (size_t)n;
            continue;
        }
        close(fd);
        return -1;
    }
    return fd;
}

/* dlopen wants a path: that of a file in memory, or without /proc that of a file which is removed
 * at once. */
static void *open_bytes(const void *bytes, size_t size) {
    char path[64];
    void *library = NULL;
    int fd = fill(memfd_create("mgpu-plugin", MFD_CLOEXEC), bytes, size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (fd >= 0 && access(path, R_OK) == 0) {
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    } else {
        if (fd >= 0) close(fd);
        strcpy(path, "/tmp/mgpu-plugin-XXXXXX");
        fd = fill(mkostemp(path, 0), bytes, size);
        if (fd >= 0) library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        unlink(path);
    }
    if (fd >= 0) close(fd);
    return library;
}

/* NULL: there is no such plug-in inside (*problem stays NULL), or it does not load. */
static void *open_plugin(const char *name, const char **problem) {
    char path[128];
    size_t size;
    snprintf(path, sizeof path, MG_PACK_ROOT "/plugins/mgpu-%s.so", name);
    const void *bytes = mg_archive_file(path, &size);
    if (!bytes) {
        if (mg_error_code() != MG_OK) *problem = mg_error_message();
        return NULL;
    }
    dlerror();
    mg_signals_kept signals; /* see core/plugin.c */
    mg_signals_keep(&signals);
    void *library = open_bytes(bytes, size);
    mg_signals_restore(&signals);
    mg_archive_forget(path);
    if (!library) *problem = dlerror();
    if (!library && !*problem) *problem = "the system has no memory for it";
    return library;
}

static void *library_of(const char *name, const char **problem) {
    for (int i = 0; i < n_loaded; i++)
        if (strcmp(loaded[i].name, name) == 0) return loaded[i].handle;
    if (n_loaded == MAX_PLUGINS || strlen(name) >= sizeof loaded->name) return NULL;
    void *library = open_plugin(name, problem);
    if (!library) return NULL;
    strcpy(loaded[n_loaded].name, name);
    loaded[n_loaded++].handle = library;
    return library;
}

static void *symbol_inside(const char *name, const char *symbol, const char **problem) {
    if (strcmp(name, "cpu") == 0) {
        if (strcmp(symbol, "mg_device_plugin") == 0) return (void *)(uintptr_t)&mg_device_plugin;
        *problem = "it holds a device only";
        return NULL;
    }
    pthread_mutex_lock(&lock);
    void *library = library_of(name, problem);
    void *found = library ? dlsym(library, symbol) : NULL;
    if (library && !found) *problem = dlerror();
    pthread_mutex_unlock(&lock);
    return found;
}

static const char *name_inside(int number) {
    mg_manifest_line line;
    if (number == 0) return "cpu";
    for (size_t i = 0; mg_archive_manifest(i, &line); i++)
        if (strcmp(line.kind, "plugin") == 0 && --number == 0) return line.name;
    return NULL;
}

void mg_pack_use_plugins(void) {
    static const mg_plugins_inside inside = {symbol_inside, name_inside};
    mg_plugin_use_inside(&inside);
}
