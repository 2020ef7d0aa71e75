/* The process's list of images, and the threads that compile them.
 *
 * An image goes from WANTED to BUSY, when a thread takes it, to MADE or FAILED, and never back. The
 * lock guards its state, its reference count and the list. The other fields belong to the thread
 * that compiles it, and are read-only afterwards. */
#include "device/cuda/codegen/codegen.h"
#include "core/alloc.h"
#include "core/log.h"
#include "core/threads.h"
#include <pthread.h>
#include <string.h>

enum { MOST_THREADS = 8 }; /* that compile one program's kernels */

struct mg_cuda_image {
    mg_cuda_image *next;
    int holders; /* references; the last one to go frees the image */
    enum { WANTED, BUSY, MADE, FAILED } state;
    bool from_disk;            /* read from the disk cache */
    bool refused;              /* refused by the driver: it is not shared any more */
    char *name, *source, *key; /* owned */
    int major, minor;
    void *data;     /* owned: the machine code */
    double seconds; /* how long compiling took; 0 once that was logged */
    mg_status status;
    char *problem; /* owned: the error message, if it failed */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER; /* an image stopped being BUSY */
static mg_cuda_image *images_held;                        /* all images of the process */

/* ---- making and freeing images ---- */

/* Also accepts a partly constructed image. */
static void free_image(mg_cuda_image *m) {
    mg_free(m->name);
    mg_free(m->source);
    mg_free(m->key);
    mg_free(m->data);
    mg_free(m->problem);
    mg_free(m);
}

/* Takes the image off the list and frees it when the last reference goes. */
void mg_cuda_image_drop(mg_cuda_image *image) {
    if (!image) return;
    pthread_mutex_lock(&lock);
    const bool last = --image->holders == 0;
    mg_cuda_image **place = &images_held;
    while (last && *place != image) place = &(*place)->next;
    if (last) *place = image->next;
    pthread_mutex_unlock(&lock);
    if (last) free_image(image);
}

/* An image with copies of these texts and one reference, not on the list yet; NULL without
 * memory. */
static mg_cuda_image *new_image(const char *name, const char *source, const char *key, int major,
                                int minor) {
    mg_cuda_image *m = mg_alloc_zero(sizeof *m);
    if (!m) return NULL;
    *m = (mg_cuda_image){.holders = 1,
                         .name = mg_strdup(name),
                         .source = mg_strdup(source),
                         .key = mg_strdup(key),
                         .major = major,
                         .minor = minor};
    if (m->name && m->source && m->key) return m;
    free_image(m);
    return NULL;
}

/* A usable image with this key, or NULL. The caller holds the lock. */
static mg_cuda_image *find_image(const char *key) {
    mg_cuda_image *m = images_held;
    while (m && (m->state == FAILED || m->refused || strcmp(m->key, key) != 0)) m = m->next;
    return m;
}

/* Finds an image with the same key, or adds one, with its data if that is in the disk cache. */
mg_status mg_cuda_image_want(const char *name, const char *source, int major, int minor,
                             mg_cuda_image **image) {
    mg_string_buffer key = {0};
    size_t bytes = 0;
    MG_TRY(mg_nvrtc_key(&key, name, source, major, minor));
    pthread_mutex_lock(&lock);
    mg_cuda_image *m = find_image(key.s);
    if (m) {
        m->holders++;
    } else if ((m = new_image(name, source, key.s, major, minor)) != NULL) {
        m->data = mg_cuda_cache_read("kernel", m->key, &bytes);
        m->from_disk = m->data != NULL;
        m->state = m->data ? MADE : WANTED;
        m->next = images_held;
        images_held = m;
    }
    pthread_mutex_unlock(&lock);
    mg_free(key.s);
    *image = m;
    return m ? MG_OK : MG_OOM;
}

const void *mg_cuda_image_data(const mg_cuda_image *image) {
    return image->data;
}

const char *mg_cuda_image_name(const mg_cuda_image *image) {
    return image->name;
}

/* ---- compiling ---- */

/* Compiles it and writes it to the disk cache. */
static void compile_image(mg_cuda_image *m) {
    size_t bytes = 0;
    const double began = mg_seconds();
    m->status = mg_nvrtc_compile(m->name, m->source, m->major, m->minor, &m->data, &bytes);
    m->seconds = mg_seconds() - began;
    if (m->status == MG_OK)
        mg_cuda_cache_write("kernel", m->key, m->data, bytes);
    else
        m->problem = mg_strdup(mg_error_message());
}

typedef struct batch {
    mg_cuda_image *const *images;
    int n;
} batch;

/* The body of each thread: compiles images of the batch until no WANTED one is left. */
static void *compile_batch(void *given) {
    const batch *b = given;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < b->n; i++) {
        mg_cuda_image *m = b->images[i];
        if (m->state != WANTED) continue;
        m->state = BUSY;
        pthread_mutex_unlock(&lock);
        compile_image(m);
        pthread_mutex_lock(&lock);
        m->state = m->status == MG_OK ? MADE : FAILED;
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* How many images of the batch are WANTED. */
static int count_wanted(const batch *b) {
    int n = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < b->n; i++) n += b->images[i]->state == WANTED;
    pthread_mutex_unlock(&lock);
    return n;
}

/* Waits for images that threads of another program are compiling. */
static void wait_for_others(const batch *b) {
    pthread_mutex_lock(&lock);
    for (int i = 0; i < b->n; i++)
        while (b->images[i]->state == BUSY) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

/* The source, line by line, and how long it took. */
static void log_image(const mg_cuda_image *m, double seconds) {
    mg_log("kernels", "%s: compiled in %.0f ms", m->name, seconds * 1e3);
    for (const char *line = m->source; *line;) {
        const int n = (int)strcspn(line, "\n");
        mg_log("kernels", "| %.*s", n, line);
        line += n + (line[n] != 0);
    }
}

/* Logs what was compiled. The calling thread does that for all, so that lines of different kernels
 * do not mix, and the log's sink is not called from other threads. */
static void log_batch(const batch *b) {
    for (int i = 0; i < b->n && mg_log_on("kernels"); i++) {
        pthread_mutex_lock(&lock);
        const double seconds = b->images[i]->seconds;
        b->images[i]->seconds = 0;
        pthread_mutex_unlock(&lock);
        if (seconds > 0) log_image(b->images[i], seconds);
    }
}

/* The calling thread compiles too; helpers are started only for images beyond the first. */
mg_status mg_cuda_images_make(mg_cuda_image *const *images, int n, int threads) {
    pthread_t helpers[MOST_THREADS];
    batch b = {images, n};
    int started = 0;
    const int wanted = count_wanted(&b), most = threads < MOST_THREADS ? threads : MOST_THREADS;
    while (started + 1 < wanted && started + 1 < most &&
           mg_thread_start(&helpers[started], compile_batch, &b))
        started++;
    compile_batch(&b);
    for (int i = 0; i < started; i++) pthread_join(helpers[i], NULL);
    wait_for_others(&b);
    mg_error_clear();
    log_batch(&b);
    for (int i = 0; i < n; i++)
        if (images[i]->state == FAILED)
            return mg_fail(images[i]->status, "%s",
                           images[i]->problem ? images[i]->problem : images[i]->name);
    return MG_OK;
}

/* The refused image stays valid for its holders, but find_image no longer returns it. */
mg_status mg_cuda_image_again(mg_cuda_image **image) {
    const mg_cuda_image *old = *image;
    if (!old->from_disk) return MG_OK;
    mg_cuda_image *m = new_image(old->name, old->source, old->key, old->major, old->minor);
    if (!m) return MG_OOM;
    pthread_mutex_lock(&lock);
    (*image)->refused = true;
    m->next = images_held;
    images_held = m;
    pthread_mutex_unlock(&lock);
    mg_cuda_image_drop(*image);
    *image = m;
    return mg_cuda_images_make(&m, 1, 1);
}
