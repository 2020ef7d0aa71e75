/* A device's list of generated kernels. Requests are added at its head, so the requests of the
 * program that is being compiled always come first. */
#include "device/cuda/codegen/module.h"
#include "core/alloc.h"
#include "core/threads.h"
#include "device/cuda/codegen/codegen.h"

/* Unloads and frees the head of the list. */
static void drop_first(mg_cuda *s) {
    mg_cuda_module *m = s->modules;
    s->modules = m->next;
    if (m->module) mg_cu.cuModuleUnload(m->module);
    mg_cuda_image_drop(m->image);
    mg_free(m);
}

/* Modules with the same image are the same kernel. */
mg_status mg_cuda_module_want(mg_device *d, const char *name, const char *source,
                              const mg_cuda_module **module) {
    mg_cuda *s = d->state;
    mg_cuda_image *image = NULL;
    MG_TRY(mg_cuda_image_want(name, source, s->major, s->minor, &image));
    mg_cuda_module *m = s->modules;
    while (m && m->image != image) m = m->next;
    if (m) {
        mg_cuda_image_drop(image);
    } else if (!(m = mg_alloc_zero(sizeof *m))) {
        mg_cuda_image_drop(image);
        return MG_OOM;
    } else {
        m->image = image;
        m->next = s->modules;
        s->modules = m;
    }
    *module = m;
    return MG_OK;
}

/* Loads the compiled image, and looks up its kernel. */
static mg_status load_module(mg_device *d, mg_cuda_module *m) {
    CUresult r = mg_cu.cuModuleLoadData(&m->module, mg_cuda_image_data(m->image));
    if (r != CUDA_SUCCESS) { /* possibly compiled for another driver: compile it again */
        MG_TRY(mg_cuda_image_again(&m->image));
        r = mg_cu.cuModuleLoadData(&m->module, mg_cuda_image_data(m->image));
    }
    const char *name = mg_cuda_image_name(m->image);
    if (r == CUDA_SUCCESS) r = mg_cu.cuModuleGetFunction(&m->function, m->module, name);
    if (r == CUDA_SUCCESS)
        r = mg_cu.cuFuncLoad(m->function); /* now: loading is not allowed in a capture */
    return mg_cuda_check(d, r, name);
}

/* The number of requests that are not loaded yet. */
static int count_wanted(const mg_cuda *s) {
    int n = 0;
    for (const mg_cuda_module *m = s->modules; m && !m->function; m = m->next) n++;
    return n;
}

/* In the order of the requests: the list has the latest first. */
static mg_status compile_wanted(const mg_cuda *s, int n) {
    mg_cuda_image **images = mg_alloc((size_t)n * sizeof(mg_cuda_image *));
    if (!images) return MG_OOM;
    const mg_cuda_module *m = s->modules;
    for (int i = n - 1; i >= 0; i--, m = m->next) images[i] = m->image;
    const mg_status status = mg_cuda_images_make(images, n, mg_core_count());
    mg_free(images);
    return status;
}

/* The newly loaded modules are the first n of the list. */
mg_status mg_cuda_modules_finish(mg_device *d) {
    mg_cuda *s = d->state;
    const int n = count_wanted(s);
    if (n == 0) return MG_OK;
    mg_status status = compile_wanted(s, n);
    mg_cuda_module *m = s->modules;
    for (int i = 0; i < n && status == MG_OK; i++, m = m->next) status = load_module(d, m);
    if (status != MG_OK)
        for (int i = 0; i < n; i++) drop_first(s);
    return status;
}

/* When a program could not be compiled: nothing of it was loaded. */
void mg_cuda_modules_forget(mg_cuda *s) {
    for (int n = count_wanted(s); n > 0; n--) drop_first(s);
}

/* When the device is closed. */
void mg_cuda_modules_drop(mg_cuda *s) {
    while (s->modules) drop_first(s);
}
