/* Finding and opening libraries when they are first needed: see library.h for where they are
 * sought. */
#define _GNU_SOURCE
#include "core/library.h"
#include <dlfcn.h>
#include <glob.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Held while a library is opened, so that two threads do not fill one table. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- where they may be ---- */

/* Opens the first library whose path matches a pattern with wildcards; NULL if none does. */
static void *open_matching(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void *open_matching(const char *format, ...) {
    char pattern[4096];
    glob_t found;
    void *library = NULL;
    va_list args;
    va_start(args, format);
    vsnprintf(pattern, sizeof pattern, format, args);
    va_end(args);
    if (glob(pattern, 0, NULL, &found) != 0) return NULL;
    for (size_t i = 0; i < found.gl_pathc && !library; i++)
        library = dlopen(found.gl_pathv[i], RTLD_NOW | RTLD_LOCAL);
    globfree(&found);
    return library;
}

/* Libraries of nvidia's Python wheels, in <root>/lib/python3.N. */
static void *open_in_python(const char *root, const char *file) {
    static const char *const kinds[] = {"site-packages", "dist-packages"};
    void *library = NULL;
    for (int i = 0; i < 2 && root && !library; i++)
        library = open_matching("%s/lib/python3*/%s/nvidia/*/lib/%s", root, kinds[i], file);
    return library;
}

/* Replaces the path of a symbolic link by that of its target; false if `path` is no link or the
 * target does not fit. */
static bool follow_link(char *path, size_t size) {
    char target[4096];
    const ssize_t n = readlink(path, target, sizeof target);
    if (n <= 0) return false;
    /* a relative target begins in the folder of the link */
    const size_t folder = target[0] == '/' ? 0 : (size_t)(strrchr(path, '/') + 1 - path);
    if (folder + (size_t)n >= size) return false;
    memcpy(path + folder, target, (size_t)n);
    path[folder + (size_t)n] = 0;
    return true;
}

/* Searches the wheels of a python3 and of each python3 in its chain of symbolic links. The python3
 * of a virtual environment links to one outside, which does not have the environment's wheels, so
 * every step of the chain is tried. */
static void *open_in_python_of(const char *program, const char *file) {
    enum { MOST_LINKS = 16 };
    char path[4096], root[4096];
    void *library = NULL;
    snprintf(path, sizeof path, "%s", program);
    for (int i = 0; i < MOST_LINKS && !library; i++) {
        snprintf(root, sizeof root, "%.*s/..", (int)(strrchr(path, '/') - path), path);
        library = open_in_python(root, file);
        if (!library && !follow_link(path, sizeof path)) break; /* the last one of the chain */
    }
    return library;
}

/* Searches the wheels of the python3 of each folder in PATH. */
static void *open_beside_python(const char *file) {
    char paths[8192], program[4096], *rest = paths;
    const char *path = getenv("PATH");
    void *library = NULL;
    snprintf(paths, sizeof paths, "%s", path ? path : "");
    for (char *folder = strtok_r(rest, ":", &rest); folder && !library;
         folder = strtok_r(NULL, ":", &rest)) {
        snprintf(program, sizeof program, "%s/python3", folder);
        library = open_in_python_of(program, file);
    }
    return library;
}

/* The folder that MGPU_CUDA_LIBRARIES names for CUDA's libraries, or NULL. */
static const char *only_folder(const mg_library *l) {
    const char *only = getenv("MGPU_CUDA_LIBRARIES");
    return only && *only && !l->foreign ? only : NULL;
}

/* The whole search, in the order of library.h; NULL if the library is nowhere. */
static void *open_somewhere(const mg_library *l) {
    const char *only = only_folder(l), *cuda = getenv("CUDA_HOME"), *file = l->file;
    const char *home = getenv("HOME");
    char local[4096];
    if (only) return open_matching("%s/%s", only, file); /* and nowhere else */
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (library || l->system || l->foreign) return library;
    if (cuda) library = open_matching("%s/lib64/%s", cuda, file);
    if (!library) library = open_matching("/usr/local/cuda/lib64/%s", file);
    if (!library) library = open_in_python(getenv("VIRTUAL_ENV"), file);
    if (!library) library = open_in_python(getenv("CONDA_PREFIX"), file);
    if (!library) library = open_beside_python(file);
    snprintf(local, sizeof local, "%s/.local", home ? home : "");
    return library ? library : open_in_python(local, file);
}

/* ---- opening ---- */

/* Stores the sentence for the user. symbol: the function that the library lacks; NULL: there is no
 * library. */
static void explain_failure(mg_library *l, const char *symbol) {
    const char *only = only_folder(l);
    l->state = -1;
    if (symbol)
        snprintf(l->problem, sizeof l->problem, "%s is too old: %s has no %s; %s", l->what, l->file,
                 symbol, l->install);
    else
        snprintf(l->problem, sizeof l->problem, "%s is missing: there is no %s in %s; %s", l->what,
                 l->file,
                 only                      ? only
                 : l->system || l->foreign ? "the library path"
                                           : "the library path, $CUDA_HOME or Python's wheels",
                 l->install);
}

/* Opens l->beside in the folder of the library itself. A library that is already open is found by
 * its bare name, so the main library can open these later. */
static void open_beside(const mg_library *l) {
    Dl_info info;
    if (!l->beside || !dladdr(l->table[0], &info)) return;
    const char *slash = strrchr(info.dli_fname, '/');
    if (slash) open_matching("%.*s/%s", (int)(slash - info.dli_fname), info.dli_fname, l->beside);
}

/* Opens the library and fills its table; all or nothing. */
static void try_open(mg_library *l) {
    void *library = open_somewhere(l);
    if (!library) {
        explain_failure(l, NULL);
        return;
    }
    for (int i = 0; l->symbols[i]; i++) {
        l->table[i] = dlsym(library, l->symbols[i]);
        if (l->table[i]) continue;
        explain_failure(l, l->symbols[i]);
        dlclose(library);
        return;
    }
    open_beside(l);
    l->state = 1; /* never closed, so the table stays valid */
}

/* `state` is 0 until the first call. A failure is remembered too: every later call gives the same
 * message without searching again. */
mg_status mg_library_open(mg_library *l) {
    pthread_mutex_lock(&lock);
    if (l->state == 0) try_open(l);
    const int state = l->state;
    pthread_mutex_unlock(&lock);
    return state > 0 ? MG_OK : mg_fail(MG_UNSUPPORTED, "%s", l->problem);
}
