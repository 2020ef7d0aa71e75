/* Generated kernels as modules: each source is compiled once per kind of GPU and kept, in memory
 * for the device and on disk for later processes. */
#include "device/cuda/module.h"
#include "core/alloc.h"
#include "core/log.h"
#include "core/threads.h"
#include "device/cuda/nvrtc.h"
#include "device/cuda/text.h"
#include <pthread.h>
#include <string.h>

struct mg_cuda_module {
    struct mg_cuda_module *next;
    uint64_t hash;
    char *source; /* owned */
    CUmodule module;
    CUfunction function;
};

/* Over the lists of all devices, and compiling: what one has made another finds on disk. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct mg_cuda_module *find(const mg_cuda *s, uint64_t hash, const char *source) {
    struct mg_cuda_module *m = s->modules;
    while (m && (m->hash != hash || strcmp(m->source, source) != 0)) m = m->next;
    return m;
}

static void log_source(const char *name, const char *source, const char *how, double seconds) {
    if (!mg_log_on("kernels")) return;
    mg_log("kernels", "%s: %s in %.0f ms", name, how, seconds * 1e3);
    for (const char *line = source; *line;) {
        const int n = (int)strcspn(line, "\n");
        mg_log("kernels", "| %.*s", n, line);
        line += n + (line[n] != 0);
    }
}

/* The image, compiled now and kept on disk. */
static mg_status compile(const mg_cuda *s, const char *name, const char *source, const char *key,
                         void **image) {
    size_t bytes = 0;
    const double began = mg_seconds();
    MG_TRY(mg_nvrtc_compile(name, source, s->major, s->minor, image, &bytes));
    log_source(name, source, "compiled", mg_seconds() - began);
    mg_cuda_cache_write("kernel", key, *image, bytes);
    return MG_OK;
}

static mg_status load(mg_device *d, const char *name, const char *source, const char *key,
                      struct mg_cuda_module *m) {
    size_t bytes = 0;
    void *image = mg_cuda_cache_read("kernel", key, &bytes);
    CUresult r = CUDA_ERROR_INVALID_IMAGE;
    if (image) r = mg_cu.cuModuleLoadData(&m->module, image);
    if (r != CUDA_SUCCESS) { /* none, or one that this driver does not take */
        mg_free(image);
        image = NULL;
        MG_TRY(compile(d->state, name, source, key, &image));
        r = mg_cu.cuModuleLoadData(&m->module, image);
    }
    mg_free(image);
    if (r == CUDA_SUCCESS) r = mg_cu.cuModuleGetFunction(&m->function, m->module, name);
    return mg_cuda_check(d, r, name);
}

static mg_status key_of(const mg_cuda *s, const char *name, const char *source, mg_text *key) {
    char version[16];
    MG_TRY(mg_nvrtc_open(version));
    mg_text_add(key, "%s for sm_%d%d by NVRTC %s with %llx\n%s", name, s->major, s->minor, version,
                mg_nvrtc_headers_hash(), source);
    return mg_text_status(key);
}

static void drop(struct mg_cuda_module *m) {
    if (m->module) mg_cu.cuModuleUnload(m->module);
    mg_free(m->source);
    mg_free(m);
}

static mg_status add(mg_device *d, const char *name, const char *source, uint64_t hash,
                     struct mg_cuda_module **made) {
    mg_cuda *s = d->state;
    mg_text key = {0};
    struct mg_cuda_module *m = mg_alloc_zero(sizeof *m);
    if (!m) return MG_OOM;
    m->hash = hash;
    m->source = mg_strdup(source);
    mg_status status = m->source ? key_of(s, name, source, &key) : MG_OOM;
    if (status == MG_OK) status = load(d, name, source, key.s, m);
    mg_free(key.s);
    if (status != MG_OK) {
        drop(m);
        return status;
    }
    m->next = s->modules;
    *made = s->modules = m;
    return MG_OK;
}

mg_status mg_cuda_compile(mg_device *d, const char *name, const char *source,
                          CUfunction *function) {
    const uint64_t hash = mg_cuda_hash(0, source, strlen(source));
    MG_TRY(mg_cuda_enter(d));
    pthread_mutex_lock(&lock);
    struct mg_cuda_module *m = find(d->state, hash, source);
    const mg_status status = m ? MG_OK : add(d, name, source, hash, &m);
    pthread_mutex_unlock(&lock);
    if (status == MG_OK) *function = m->function;
    return status;
}

void mg_cuda_modules_drop(mg_cuda *s) {
    while (s->modules) {
        struct mg_cuda_module *m = s->modules;
        s->modules = m->next;
        drop(m);
    }
}
