/* Finding and opening plug-ins. */
#define _GNU_SOURCE /* dladdr */
#include "core/plugin.h"
#include "core/io.h"
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *open_in(const char *folder, int n, const char *name) {
    char path[4200];
    snprintf(path, sizeof path, "%.*s/mgpu-%s.so", n, folder, name);
    return mg_io_exists(path) ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
}

static void *open_beside_library(const char *name) {
    Dl_info self;
    void *library = NULL;
    if (!dladdr((void *)(uintptr_t)&mg_plugin_symbol, &self) || !self.dli_fname) return NULL;
    char *path = realpath(self.dli_fname, NULL);
    const char *slash = path ? strrchr(path, '/') : NULL;
    if (slash) library = open_in(path, (int)(slash - path), name);
    free(path);
    return library;
}

static void *open_plugin(const char *name) {
    void *library = open_beside_library(name);
    const char *more = getenv("MGPU_PLUGINS");
    while (more && *more && !library) {
        const int n = (int)strcspn(more, ":");
        if (n) library = open_in(more, n, name);
        more += n + (more[n] == ':');
    }
    return library;
}

void *mg_plugin_symbol(const char *name, const char *symbol, const char **problem) {
    dlerror();
    void *library = open_plugin(name), *found = library ? dlsym(library, symbol) : NULL;
    if (found) return found;
    *problem = dlerror();
    if (!*problem) *problem = "it is not beside the library, nor in a folder of MGPU_PLUGINS";
    return NULL;
}
