/* The fake NVRTC: compiles a kernel's text as C with gcc, to a shared object that module.c loads.
 *
 * Objects are cached under a hash of all that goes into them, in the folder MGPU_FAKE_CUDA_CACHE or
 * in the folder cache beside this library. A file is written under a name that only this thread
 * uses and is then renamed, so that processes can share the folder.
 *
 * gcc accepts more than CUDA's compiler. With the path of the real library in MGPU_FAKE_CUDA_NVRTC
 * each text must first compile there, for two architectures; that needs no GPU. */
#define _GNU_SOURCE
#include "fake_cuda.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <nvrtc.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { PATH = 4096 }; /* bytes of a path */

struct _nvrtcProgram {
    char *source, *name;     /* the text, and its name in messages */
    char *log;               /* the compiler's messages; NULL: none */
    char **headers, **names; /* n_headers texts, and the names they are included by */
    int n_headers;
    void *image; /* the object, after it was compiled */
    size_t bytes;
};

/* ---- files ---- */

/* A file's bytes, with a NUL behind them, owned by the caller; NULL if it cannot be read. */
static void *read_file(const char *path, size_t *bytes) {
    struct stat s;
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    char *text = NULL;
    if (file >= 0 && fstat(file, &s) == 0 && (text = calloc(1, (size_t)s.st_size + 1)) != NULL &&
        read(file, text, (size_t)s.st_size) != (ssize_t)s.st_size) {
        free(text);
        text = NULL;
    }
    if (text && bytes) *bytes = (size_t)s.st_size;
    if (file >= 0) close(file);
    return text;
}

/* Makes all folders that lead to a path. */
static void make_folders(const char *path) {
    char part[PATH];
    /* A folder that exists already is no error. */
    for (const char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        snprintf(part, sizeof part, "%.*s", (int)(slash - path), path);
        mkdir(part, 0777);
    }
}

/* Writes `before` and `text` under a temporary name and renames the file. */
static bool write_file(const char *path, const char *before, const char *text) {
    char mine[2 * PATH + 16];
    snprintf(mine, sizeof mine, "%s.%d", path, (int)gettid());
    make_folders(mine);
    FILE *f = fopen(mine, "w");
    if (!f) return false;
    fprintf(f, "%s%s", before, text);
    return fclose(f) == 0 && rename(mine, path) == 0;
}

/* The cache's folder; `path` is room for it. */
static const char *cache_folder(char *path) {
    Dl_info self;
    const char *chosen = getenv("MGPU_FAKE_CUDA_CACHE");
    if (chosen && *chosen) return chosen;
    dladdr((const void *)(uintptr_t)&nvrtcVersion, &self);
    const char *slash = strrchr(self.dli_fname, '/');
    snprintf(path, PATH, "%.*s/cache", slash ? (int)(slash - self.dli_fname) : 1,
             slash ? self.dli_fname : ".");
    return path;
}

/* ---- hashes: FNV-1a ---- */

/* The NUL is hashed too, so that two texts in a row differ from one text split elsewhere. */
static uint64_t hash_text(uint64_t hash, const char *text) {
    do hash = (hash ^ (unsigned char)*text) * 1099511628211u;
    while (*text++);
    return hash;
}

/* A header of the fake CUDA itself: when it changes, all objects are compiled again. */
static uint64_t hash_file(uint64_t hash, const char *name) {
    char path[PATH];
    snprintf(path, sizeof path, "%s/%s", FAKE_CUDA_INCLUDE, name);
    char *text = read_file(path, NULL);
    hash = hash_text(hash, text ? text : "");
    free(text);
    return hash;
}

/* The hash of the headers that every kernel includes and of the program's headers. */
static uint64_t hash_headers(const struct _nvrtcProgram *p) {
    uint64_t hash = hash_file(hash_file(14695981039346656037u, "cuda_as_c.h"), "threads.h");
    for (int i = 0; i < p->n_headers; i++)
        hash = hash_text(hash_text(hash, p->names[i]), p->headers[i]);
    return hash;
}

/* The hash of everything that the object depends on. The options do not change what gcc makes, but
 * a real compiler's result depends on them, so they are part of the key here too. */
static uint64_t hash_request(uint64_t headers, const struct _nvrtcProgram *p, int n,
                             const char *const *options) {
    uint64_t hash = hash_text(headers, p->source);
    for (int i = 0; i < n; i++) hash = hash_text(hash, options[i]);
    return hash;
}

/* ---- the real NVRTC ---- */

/* The functions of the real library that are needed to try a text. */
typedef struct real {
    __typeof__(nvrtcCreateProgram) *create;
    __typeof__(nvrtcCompileProgram) *compile;
    __typeof__(nvrtcGetProgramLogSize) *log_size;
    __typeof__(nvrtcGetProgramLog) *log;
    __typeof__(nvrtcDestroyProgram) *destroy;
} real;

/* Opens the real library and finds the functions; false if any is missing. */
static bool open_real(const char *path, real *r) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) return false;
    r->create = dlsym(library, "nvrtcCreateProgram");
    r->compile = dlsym(library, "nvrtcCompileProgram");
    r->log_size = dlsym(library, "nvrtcGetProgramLogSize");
    r->log = dlsym(library, "nvrtcGetProgramLog");
    r->destroy = dlsym(library, "nvrtcDestroyProgram");
    return r->create && r->compile && r->log_size && r->log && r->destroy;
}

/* The option that is replaced to compile for other architectures than the requested one. */
static bool is_architecture(const char *option) {
    return strstr(option, "-arch") || strstr(option, "gpu-architecture");
}

/* Compiles the program with the real library for one architecture; its messages go to p->log. */
static nvrtcResult compile_for_real(struct _nvrtcProgram *p, const real *r,
                                    const char *architecture, int n, const char *const *options) {
    nvrtcProgram program;
    const char *list[32] = {architecture};
    size_t bytes = 0;
    int n_list = 1;
    for (int i = 0; i < n && n_list < 32; i++)
        /* The caller's options, with another architecture in front. */
        if (!is_architecture(options[i])) list[n_list++] = options[i];
    nvrtcResult result = r->create(&program, p->source, p->name, p->n_headers,
                                   (const char *const *)p->headers, (const char *const *)p->names);
    if (result != NVRTC_SUCCESS) return result;
    result = r->compile(program, n_list, list);
    if (result != NVRTC_SUCCESS && r->log_size(program, &bytes) == NVRTC_SUCCESS) {
        free(p->log);
        p->log = calloc(1, bytes + 1);
        if (p->log) r->log(program, p->log);
    }
    r->destroy(&program);
    return result;
}

/* The same for two architectures, unless a file <key>.proven says that this text has passed before.
 */
static nvrtcResult compile_for_real_once(struct _nvrtcProgram *p, const char *path, uint64_t key,
                                         int n, const char *const *options) {
    char proof[PATH], kept[PATH];
    real r;
    snprintf(proof, sizeof proof, "%.4000s/%016llx.proven", cache_folder(kept),
             (unsigned long long)key);
    if (access(proof, R_OK) == 0) return NVRTC_SUCCESS;
    if (!open_real(path, &r)) {
        free(p->log);
        p->log = strdup("MGPU_FAKE_CUDA_NVRTC names no NVRTC");
        return NVRTC_ERROR_INTERNAL_ERROR;
    }
    nvrtcResult result = compile_for_real(p, &r, "--gpu-architecture=sm_80", n, options);
    if (result == NVRTC_SUCCESS)
        result = compile_for_real(p, &r, "--gpu-architecture=sm_90", n, options);
    if (result == NVRTC_SUCCESS) write_file(proof, "", "");
    return result;
}

/* ---- gcc ---- */

/* Runs gcc with its messages in the file `log`; true if it succeeded. */
static bool run_gcc(char *const *args, const char *log) {
    posix_spawn_file_actions_t actions;
    pid_t child;
    int status = -1;
    /* stdout and stderr both go to the log. */
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, log, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    if (posix_spawnp(&child, args[0], &actions, NULL, args, environ) == 0)
        while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
    posix_spawn_file_actions_destroy(&actions);
    return status == 0;
}

/* Writes the program's headers to the folder `to`, where gcc finds them. */
static bool write_headers(const struct _nvrtcProgram *p, const char *to) {
    char path[2 * PATH];
    for (int i = 0; i < p->n_headers; i++) {
        snprintf(path, sizeof path, "%.4000s/%.4000s", to, p->names[i]);
        if (access(path, R_OK) != 0 && !write_file(path, "", p->headers[i])) return false;
    }
    return true;
}

/* Compiles the program to the file `object`. It is linked with libcuda.so.1, which has fake_cuda_at
 * and the functions behind barriers and shuffles. */
static bool compile_as_c(struct _nvrtcProgram *p, const char *object, uint64_t headers) {
    char source[PATH], made[PATH], log[PATH], include[PATH], kept[PATH], before[256], driver[PATH];
    snprintf(include, sizeof include, "%.4000s/include-%016llx", cache_folder(kept),
             (unsigned long long)headers);
    snprintf(source, sizeof source, "%.3900s.%d.c", object, (int)gettid());
    snprintf(made, sizeof made, "%.3900s.%d", object, (int)gettid());
    snprintf(log, sizeof log, "%.3900s.%d.log", object, (int)gettid());
    /* Messages name the program, not the file in the cache. */
    snprintf(before, sizeof before, "#line 1 \"%.200s\"\n", p->name);
    Dl_info self;
    dladdr((const void *)(uintptr_t)&fake_cuda_enter, &self);
    snprintf(driver, sizeof driver, "%s", self.dli_fname);
    /* -O1: compiling takes longer than running the small tests. -w: the real compiler decides on
     * style. */
    char *args[] = {(char *)"gcc",
                    (char *)"-x",
                    (char *)"c",
                    (char *)"-std=gnu11",
                    (char *)"-O1",
                    (char *)"-fPIC",
                    (char *)"-shared",
                    (char *)"-w",
                    (char *)"-Werror=implicit-function-declaration",
                    (char *)"-include",
                    (char *)FAKE_CUDA_INCLUDE "/cuda_as_c.h",
                    (char *)"-I",
                    include,
                    (char *)"-o",
                    made,
                    source,
                    (char *)"-x",
                    (char *)"none",
                    (char *)"-Wl,-z,defs",
                    driver,
                    (char *)"-lm",
                    NULL};
    if (!write_headers(p, include) || !write_file(source, before, p->source)) {
        p->log = strdup("the cache of the fake NVRTC cannot be written");
        return false;
    }
    const bool good = run_gcc(args, log) && rename(made, object) == 0;
    free(p->log);
    p->log = read_file(log, NULL);
    unlink(source);
    unlink(log);
    return good;
}

/* The real NVRTC opens libnvrtc-builtins by its bare name, which fails unless the loader knows the
 * folder or the library has been opened before. The host code opens it first; this checks that it
 * did. */
static bool has_builtins(void) {
    void *library = dlopen("libnvrtc-builtins.so.13.0", RTLD_NOLOAD | RTLD_NOW);
    if (library) dlclose(library);
    return library != NULL;
}

/* Takes the object from the cache, or compiles it. */
nvrtcResult nvrtcCompileProgram(nvrtcProgram p, int n, const char *const *options) {
    const int failure = fake_cuda_enter("nvrtcCompileProgram");
    if (failure) return (nvrtcResult)failure;
    if (!has_builtins()) return NVRTC_ERROR_BUILTIN_OPERATION_FAILURE;
    const char *path = getenv("MGPU_FAKE_CUDA_NVRTC");
    const uint64_t headers = hash_headers(p), key = hash_request(headers, p, n, options);
    char object[PATH], kept[PATH];
    snprintf(object, sizeof object, "%.4000s/%016llx.so", cache_folder(kept),
             (unsigned long long)key);
    make_folders(object);
    /* The proof comes first, also for a cached object: it may have been compiled without. */
    if (path && *path) {
        const nvrtcResult result = compile_for_real_once(p, path, key, n, options);
        if (result != NVRTC_SUCCESS) return result;
    }
    free(p->image);
    p->image = read_file(object, &p->bytes);
    if (p->image) return NVRTC_SUCCESS;
    if (!compile_as_c(p, object, headers)) return NVRTC_ERROR_COMPILATION;
    p->image = read_file(object, &p->bytes);
    return p->image ? NVRTC_SUCCESS : NVRTC_ERROR_INTERNAL_ERROR;
}

/* ---- programs ---- */

nvrtcResult nvrtcDestroyProgram(nvrtcProgram *program) {
    struct _nvrtcProgram *p = *program;
    if (!p) return NVRTC_ERROR_INVALID_PROGRAM;
    for (int i = 0; i < p->n_headers; i++) {
        free(p->headers[i]);
        free(p->names[i]);
    }
    free(p->headers);
    free(p->names);
    free(p->source);
    free(p->name);
    free(p->log);
    free(p->image);
    free(p);
    *program = NULL;
    return NVRTC_SUCCESS;
}

/* Copies all texts, as the real one does. */
nvrtcResult nvrtcCreateProgram(nvrtcProgram *program, const char *source, const char *name, int n,
                               const char *const *headers, const char *const *names) {
    const int failure = fake_cuda_enter("nvrtcCreateProgram");
    if (failure) return (nvrtcResult)failure;
    if (!source || n < 0 || (n && (!headers || !names))) return NVRTC_ERROR_INVALID_INPUT;
    struct _nvrtcProgram *p = calloc(1, sizeof *p);
    if (!p) return NVRTC_ERROR_OUT_OF_MEMORY;
    p->source = strdup(source);
    p->name = strdup(name && *name ? name : "default_program");
    p->headers = calloc((size_t)n + 1, sizeof *p->headers);
    p->names = calloc((size_t)n + 1, sizeof *p->names);
    for (; p->headers && p->names && p->n_headers < n; p->n_headers++) {
        p->headers[p->n_headers] = strdup(headers[p->n_headers]);
        p->names[p->n_headers] = strdup(names[p->n_headers]);
    }
    *program = p;
    return NVRTC_SUCCESS;
}

/* The object, once it was compiled; its size. */
static nvrtcResult give_image(const struct _nvrtcProgram *p, char *to) {
    if (!p || !p->image) return NVRTC_ERROR_INVALID_PROGRAM;
    memcpy(to, p->image, p->bytes);
    return NVRTC_SUCCESS;
}

static nvrtcResult give_size(const struct _nvrtcProgram *p, size_t *bytes) {
    if (!p || !p->image) return NVRTC_ERROR_INVALID_PROGRAM;
    *bytes = p->bytes;
    return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetCUBINSize(nvrtcProgram p, size_t *bytes) {
    return give_size(p, bytes);
}

nvrtcResult nvrtcGetCUBIN(nvrtcProgram p, char *cubin) {
    return give_image(p, cubin);
}

/* PTX would be compiled by the driver; here it is the same object. */
nvrtcResult nvrtcGetPTXSize(nvrtcProgram p, size_t *bytes) {
    return give_size(p, bytes);
}

nvrtcResult nvrtcGetPTX(nvrtcProgram p, char *ptx) {
    return give_image(p, ptx);
}

nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram p, size_t *bytes) {
    if (!p) return NVRTC_ERROR_INVALID_PROGRAM;
    *bytes = p->log ? strlen(p->log) + 1 : 1;
    return NVRTC_SUCCESS;
}

/* With the NUL; an empty text if the compiler printed nothing. */
nvrtcResult nvrtcGetProgramLog(nvrtcProgram p, char *log) {
    if (!p) return NVRTC_ERROR_INVALID_PROGRAM;
    memcpy(log, p->log ? p->log : "", p->log ? strlen(p->log) + 1 : 1);
    return NVRTC_SUCCESS;
}

/* ---- version and architectures ---- */

/* Architectures that the host code may name; all give the same object. */
static const int architectures[] = {80, 86, 89, 90, 100, 120};
enum { ARCHITECTURES = sizeof architectures / sizeof *architectures };

nvrtcResult nvrtcVersion(int *major, int *minor) {
    *major = CUDA_VERSION / 1000;
    *minor = CUDA_VERSION % 1000 / 10;
    return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetNumSupportedArchs(int *n) {
    *n = ARCHITECTURES;
    return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetSupportedArchs(int *list) {
    memcpy(list, architectures, sizeof architectures);
    return NVRTC_SUCCESS;
}

const char *nvrtcGetErrorString(nvrtcResult result) {
    switch ((int)result) {
    case NVRTC_SUCCESS: return "NVRTC_SUCCESS";
    case NVRTC_ERROR_OUT_OF_MEMORY: return "NVRTC_ERROR_OUT_OF_MEMORY";
    case NVRTC_ERROR_INVALID_INPUT: return "NVRTC_ERROR_INVALID_INPUT";
    case NVRTC_ERROR_INVALID_PROGRAM: return "NVRTC_ERROR_INVALID_PROGRAM";
    case NVRTC_ERROR_COMPILATION: return "NVRTC_ERROR_COMPILATION";
    default: return "NVRTC_ERROR_INTERNAL_ERROR";
    }
}
