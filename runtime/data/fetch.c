/* Opens the download plug-in: beside libmgpu, then in the folders of MGPU_PLUGINS. It stays open.
 */
#define _GNU_SOURCE /* dladdr */
#include "data/fetch.h"
#include "core/io.h"
#include <ctype.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *open_in(const char *folder, int n) {
    char path[4200];
    snprintf(path, sizeof path, "%.*s/mgpu-fetch.so", n, folder);
    return mg_io_exists(path) ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
}

static void *open_plugin(void) {
    Dl_info self;
    void *library = NULL;
    if (dladdr((void *)(uintptr_t)&mg_fetch, &self) && self.dli_fname) {
        char *path = realpath(self.dli_fname, NULL);
        const char *slash = path ? strrchr(path, '/') : NULL;
        if (slash) library = open_in(path, (int)(slash - path));
        free(path);
    }
    const char *more = getenv("MGPU_PLUGINS");
    while (more && *more && !library) {
        const int n = (int)strcspn(more, ":");
        if (n) library = open_in(more, n);
        more += n + (more[n] == ':');
    }
    return library;
}

static mg_status check_sum_text(const char *sha256) {
    size_t n = 0;
    while (sha256 && isxdigit((unsigned char)sha256[n])) n++;
    if (!sha256 || (n == 64 && !sha256[n])) return MG_OK;
    return mg_fail(MG_USAGE, "fetch: a SHA-256 is 64 hexadecimal digits, not \"%.80s\"", sha256);
}

mg_status mg_fetch(const char *url, const char *path, const char *sha256) {
    MG_TRY(check_sum_text(sha256));
    dlerror();
    void *library = open_plugin();
    mg_fetch_function *fetch = NULL;
    if (library) *(void **)&fetch = dlsym(library, MG_FETCH_SYMBOL);
    if (fetch) return fetch(url, path, sha256);
    const char *why = dlerror();
    return mg_fail(MG_UNSUPPORTED,
                   "cannot download %s: %s; install libcurl and build again, or get the file by "
                   "hand and put it at %s",
                   url, why ? why : "the plug-in mgpu-fetch.so is not installed", path);
}
