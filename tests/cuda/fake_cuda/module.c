/* Modules and launches. A module of the fake driver is a shared object of kernels compiled as C.
 *
 * cuModuleLoadData is given either a fatbin that nvcc made, which the host cannot run: then the
 * module is kernels.so beside this library, which has all kernels of kernels/<file>.cu compiled as
 * C. Or it is given what the fake NVRTC made, which is a shared object already. */
#define _GNU_SOURCE
#include "gpu.h"
#include <dlfcn.h>
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The first words of fatbins (the wrapper and the image), and the machine number of a cubin's ELF
 * header. */
enum { FATBIN = 0x466243b1, FATBIN_IMAGE = (int)0xba55ed50, NVIDIA = 190 };

typedef struct CUfunc_st {
    const fake_cuda_kernel *kernel;
    fake_cuda_counter *starts;
    const char *name; /* the counter's: "kernel <name>" */
    int shared_most;  /* limit of a launch's dynamic shared memory, in bytes */
    bool loaded;      /* false: the first launch loads it, which makes a capture invalid */
    struct CUfunc_st *next;
} function;

struct CUmod_st {
    void *object;        /* of dlopen */
    function *functions; /* the functions that were looked up; owned */
};

/* ---- loading ---- */

/* Opens a shared object in the folder of this library. */
static void *open_beside(const char *file) {
    Dl_info self;
    char path[4096];
    if (!dladdr((const void *)(uintptr_t)&cuInit, &self)) return NULL;
    const char *slash = strrchr(self.dli_fname, '/');
    const int length = slash ? (int)(slash - self.dli_fname) + 1 : 0;
    snprintf(path, sizeof path, "%.*s%s", length, self.dli_fname, file);
    return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

/* The length of an ELF image in memory: the table of sections comes last in what gcc writes. */
static size_t length_of(const void *image) {
    const Elf64_Ehdr *head = image;
    return (size_t)head->e_shoff + (size_t)head->e_shnum * head->e_shentsize;
}

/* Writes the image to a temporary file and opens that: dlopen needs one. Each has its own name,
 * since the loader would return the object that it already has under the same name. */
static void *open_image(const void *image) {
    const char *folder = getenv("TMPDIR");
    const size_t bytes = length_of(image);
    void *object = NULL;
    char path[4096];
    snprintf(path, sizeof path, "%s/kernelsXXXXXX", folder && *folder ? folder : "/tmp");
    const int file = mkstemp(path);
    if (file < 0) return NULL;
    if (write(file, image, bytes) == (ssize_t)bytes) object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    close(file);
    unlink(path);
    return object;
}

/* Tells by the first bytes what the image is, and opens the shared object for it. */
static CUresult open_object(const void *image, void **object) {
    int magic;
    memcpy(&magic, image, sizeof magic);
    /* A fatbin, whichever it is: kernels.so has the kernels of all of them. */
    if (magic == FATBIN_IMAGE || magic == FATBIN) {
        *object = open_beside("kernels.so");
    } else if (memcmp(image, ELFMAG, SELFMAG) == 0) {
        if (((const Elf64_Ehdr *)image)->e_machine == NVIDIA)
            return fake_cuda_say(CUDA_ERROR_NO_BINARY_FOR_GPU, "this image is for a real GPU");
        *object = open_image(image);
    } else {
        return CUDA_ERROR_INVALID_IMAGE;
    }
    if (*object) return CUDA_SUCCESS;
    return fake_cuda_say(CUDA_ERROR_INVALID_IMAGE, "cannot load an image: %s", dlerror());
}

/* Loading takes memory, so a capture forbids it. */
CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    ENTER(cuModuleLoadData);
    if (!fake_cuda_current()) return CUDA_ERROR_INVALID_CONTEXT;
    if (!image) return CUDA_ERROR_INVALID_VALUE;
    const CUresult refused = fake_cuda_forbid_capture();
    if (refused) return refused;
    CUmodule made = calloc(1, sizeof *made);
    if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
    const CUresult r = open_object(image, &made->object);
    *module = r == CUDA_SUCCESS ? made : NULL;
    if (r != CUDA_SUCCESS) free(made);
    return r;
}

/* Functions of the module end with it, after their launches. */
CUresult cuModuleUnload(CUmodule module) {
    ENTER(cuModuleUnload);
    if (!module) return CUDA_ERROR_INVALID_HANDLE;
    fake_cuda_drive_all();
    for (function *f = module->functions, *next; f; f = next) {
        next = f->next;
        free(f);
    }
    dlclose(module->object);
    free(module);
    return CUDA_SUCCESS;
}

/* Loading is lazy, as in CUDA: the function counts as loaded after cuFuncLoad or its first launch.
 */
CUresult cuModuleGetFunction(CUfunction *found, CUmodule module, const char *name) {
    ENTER(cuModuleGetFunction);
    char symbol[256];
    snprintf(symbol, sizeof symbol, "fake_cuda_kernel_%s", name);
    const fake_cuda_kernel *kernel = module ? dlsym(module->object, symbol) : NULL;
    *found = NULL;
    if (!kernel) return CUDA_ERROR_NOT_FOUND;
    function *f = calloc(1, sizeof *f);
    if (!f) return CUDA_ERROR_OUT_OF_MEMORY;
    f->kernel = kernel;
    f->starts = fake_cuda_counter_of("kernel ", name, "");
    f->name = f->starts->name;
    f->shared_most = FAKE_CUDA_SHARED;
    fake_cuda_lock();
    f->next = module->functions;
    module->functions = f;
    fake_cuda_unlock();
    *found = f;
    return CUDA_SUCCESS;
}

/* Loads a kernel before its first launch, so that this may be recorded. */
CUresult cuFuncLoad(CUfunction f) {
    ENTER(cuFuncLoad);
    if (!f) return CUDA_ERROR_INVALID_HANDLE;
    f->loaded = true;
    return CUDA_SUCCESS;
}

/* ---- launching ---- */

/* A launch that is enqueued: all that a graph must keep of it. */
typedef struct launch {
    const fake_cuda_kernel *kernel;
    fake_cuda_index blocks, threads;
    unsigned shared;
    _Alignas(16) unsigned char params[];
} launch;

/* The work of a launch; args: a struct launch. */
static void run_launch(void *args) {
    const launch *l = args;
    if (fake_cuda_is_still()) return;
    fake_cuda_run(l->kernel, l->blocks, l->threads, l->shared, l->params);
}

/* Whether a real GPU would accept the launch. */
static bool is_possible(fake_cuda_index blocks, fake_cuda_index threads, unsigned shared,
                        const function *f) {
    const unsigned size = threads.x * threads.y * threads.z;
    return blocks.x && blocks.y && blocks.z && blocks.x <= 0x7fffffff && blocks.y <= 0xffff &&
           blocks.z <= 0xffff && threads.x <= 1024 && threads.y <= 1024 && threads.z <= 64 &&
           size > 0 && size <= 1024 && shared <= (unsigned)f->shared_most;
}

/* The parameters are one struct by value: params[0]. A function that was not loaded before cannot
 * be recorded, as with the real driver. */
CUresult cuLaunchKernel(CUfunction f, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                        CUstream stream, void **params, void **extra) {
    ENTER(cuLaunchKernel);
    const fake_cuda_index blocks = {grid_x, grid_y, grid_z}, threads = {block_x, block_y, block_z};
    if (!f || !params || extra) return CUDA_ERROR_INVALID_VALUE;
    if (!is_possible(blocks, threads, shared, f))
        return fake_cuda_say(CUDA_ERROR_INVALID_VALUE,
                             "%s cannot start: %u x %u x %u blocks of %u x %u x %u threads, "
                             "%u bytes of shared memory (%d allowed)",
                             f->name, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared,
                             f->shared_most);
    if (!f->loaded && fake_cuda_capturing(stream)) {
        fake_cuda_forbid_capture();
        return fake_cuda_say(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "%s is loaded while recorded",
                             f->name);
    }
    f->loaded = true;
    const size_t bytes = sizeof(launch) + f->kernel->bytes;
    launch *l = aligned_alloc(16, (bytes + 15) / 16 * 16);
    if (!l) return CUDA_ERROR_OUT_OF_MEMORY;
    *l = (launch){.kernel = f->kernel, .blocks = blocks, .threads = threads, .shared = shared};
    memcpy(l->params, params[0], f->kernel->bytes); /* copied, as CUDA does at the launch */
    const CUresult r = fake_cuda_enqueue(stream, f->name, run_launch, l, bytes);
    free(l);
    if (r == CUDA_SUCCESS) fake_cuda_add(f->starts);
    return r;
}
