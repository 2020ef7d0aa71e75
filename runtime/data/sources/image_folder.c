/* Listing folders of images, and reading the images. */
#include "data/sources/image_folder.h"
#include "core/alloc.h"
#include "core/io.h"
#include "core/rng.h"
#include "core/threads.h"
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* ---- the list ---- */

struct mg_image_list {
    atomic_int references;
    mg_folder_labels labels;
    mg_path_list classes, files, skipped;
    int64_t *end; /* owned: for each class, the number of files in it and those before */
    char *path;   /* owned */
};

mg_image_list *mg_image_list_retain(mg_image_list *l) {
    atomic_fetch_add(&l->references, 1);
    return l;
}

void mg_image_list_release(mg_image_list *l) {
    if (!l || atomic_fetch_sub(&l->references, 1) != 1) return;
    mg_path_list_clear(&l->classes);
    mg_path_list_clear(&l->files);
    mg_path_list_clear(&l->skipped);
    mg_free(l->end);
    mg_free(l->path);
    mg_free(l);
}

const mg_path_list *mg_image_list_classes(const mg_image_list *l) {
    return &l->classes;
}

const mg_path_list *mg_image_list_skipped(const mg_image_list *l) {
    return &l->skipped;
}

static bool has_extension(void *context, const char *name) {
    const mg_image_folder *f = context;
    const char *dot = strrchr(name, '.');
    for (int i = 0; dot && i < f->n_extensions; i++)
        if (strcasecmp(dot + 1, f->extensions[i]) == 0) return true;
    return false;
}

/* Sets l->classes. */
static mg_status find_classes(mg_image_list *l, const mg_image_folder *f) {
    if (f->labels == MG_LABELS_NONE) return MG_OK;
    MG_TRY(f->classes ? MG_OK : mg_folder_folders(f->path, &l->classes));
    for (int i = 0; i < f->n_classes; i++)
        MG_TRY(mg_path_list_add(&l->classes, NULL, f->classes[i]));
    if (l->classes.n) return MG_OK;
    return mg_fail(MG_DATA,
                   "image_folder: %s has no folders: each class is one (labels = \"none\" reads "
                   "images without classes)",
                   f->path);
}

/* Adds the files of a class: the files in the folder of this name, or in all folders if it is
 * NULL. */
static mg_status add_class(mg_image_list *l, const mg_image_folder *f, const char *name) {
    mg_path_list folder = {0};
    mg_status status = mg_path_list_add(&folder, f->path, name ? name : "");
    const char *path = status == MG_OK ? mg_path_list_get(&folder, 0) : NULL;
    if (path && !mg_io_folder_exists(path))
        status = mg_fail(MG_DATA, "image_folder: there is no folder %s", path);
    if (status == MG_OK)
        status =
            mg_folder_files(path, f->follow_links, has_extension, (void *)(uintptr_t)f, &l->files);
    mg_path_list_clear(&folder);
    return status;
}

/* Moves the files from `first` on whose headers are not those of images to l->skipped. */
static mg_status skip_bad(mg_image_list *l, int64_t first) {
    int64_t kept = first;
    for (int64_t i = first; i < l->files.n; i++) {
        mg_image image;
        const char *path = mg_path_list_get(&l->files, i);
        if (mg_interrupt_take()) return mg_fail(MG_INTERRUPTED, "interrupted");
        const mg_status status = mg_image_probe(path, &image);
        if (status == MG_OK)
            l->files.begin[kept++] = l->files.begin[i];
        else if (status == MG_DATA || status == MG_UNSUPPORTED)
            MG_TRY(mg_path_list_add(&l->skipped, NULL, path));
        else
            return status; /* a file that cannot be read now may still be an image */
    }
    l->files.n = kept;
    return MG_OK;
}

static mg_status fill_list(mg_image_list *l, const mg_image_folder *f) {
    l->labels = f->labels;
    l->path = mg_strdup(f->path);
    if (!l->path) return MG_OOM;
    MG_TRY(find_classes(l, f));
    const int64_t n = l->classes.n ? l->classes.n : 1;
    l->end = mg_alloc_zero((size_t)n * sizeof *l->end);
    if (!l->end) return MG_OOM;
    for (int64_t i = 0; i < n; i++) {
        const int64_t first = l->files.n;
        MG_TRY(add_class(l, f, l->classes.n ? mg_path_list_get(&l->classes, i) : NULL));
        if (f->skip_bad) MG_TRY(skip_bad(l, first));
        l->end[i] = l->files.n;
    }
    if (l->files.n) return MG_OK;
    return mg_fail(MG_DATA, "image_folder: there are no images %s%s",
                   l->classes.n ? "in the folders of " : "in ", f->path);
}

mg_image_list *mg_image_list_new(const mg_image_folder *f) {
    mg_image_list *l = mg_alloc_zero(sizeof *l);
    if (!l) return NULL;
    atomic_init(&l->references, 1);
    if (fill_list(l, f) == MG_OK) return l;
    mg_source_name_error("image_folder");
    mg_image_list_release(l);
    return NULL;
}

/* The class of a file: the first class whose end is after it. */
static int32_t class_of(const mg_image_list *l, int64_t file) {
    int64_t lo = 0, hi = l->classes.n - 1;
    while (lo < hi) {
        const int64_t middle = lo + (hi - lo) / 2;
        if (l->end[middle] > file)
            hi = middle;
        else
            lo = middle + 1;
    }
    return (int32_t)lo;
}

/* ---- the source ---- */

typedef struct folder_source {
    mg_source base;
    mg_image_list *list; /* retained */
    mg_image_form form;
    int64_t *file; /* owned: the file of each row; NULL: row i is file i */
} folder_source;

static void put_label(const folder_source *s, int64_t file, void *data) {
    const int32_t id = class_of(s->list, file);
    float *values = data;
    if (s->list->labels == MG_LABELS_INT)
        memcpy(data, &id, sizeof id);
    else if (s->list->labels == MG_LABELS_BINARY)
        values[0] = (float)id;
    else
        for (int64_t i = 0; i < s->list->classes.n; i++) values[i] = i == id;
}

static mg_status folder_read(mg_source *base, mg_row_key key, const mg_wanted *const wanted[],
                             mg_cell cell[]) {
    const folder_source *s = (const folder_source *)base;
    const int64_t file = s->file ? s->file[key.row] : key.row;
    mg_image image;
    const mg_status status = mg_image_load(mg_path_list_get(&s->list->files, file), s->form,
                                           wanted ? wanted[0] : NULL, &image);
    if (status != MG_OK) {
        mg_error_prefix("image_folder");
        return status;
    }
    cell[0].shape = MG_SHAPE(image.height, image.width, image.channels);
    cell[0].data = image.wide ? mg_image_take_values(&image, MG_I32) : image.pixels;
    if (!cell[0].data) return MG_OOM;
    if (base->n_fields > 1) put_label(s, file, cell[1].data);
    return MG_OK;
}

static void folder_describe(const mg_source *base, int64_t row, char *text, size_t room) {
    const folder_source *s = (const folder_source *)base;
    snprintf(text, room, "%s", mg_path_list_get(&s->list->files, s->file ? s->file[row] : row));
}

static void folder_free(mg_source *base) {
    folder_source *s = (folder_source *)base;
    mg_image_list_release(s->list);
    mg_free(s->file);
    mg_free(s);
}

static const mg_source_api folder_api = {.name = "image_folder",
                                         .read_wanted = folder_read,
                                         .describe = folder_describe,
                                         .free = folder_free};

enum { SPLIT_STREAM = 0x53504c54 }; /* of random numbers */

/* Sets *chosen, owned, to whether each of n files is among `count` drawn at random. */
static mg_status draw_files(bool **chosen, int64_t n, int64_t count, uint64_t seed) {
    int64_t *order = mg_alloc((size_t)n * sizeof *order);
    *chosen = order ? mg_alloc_zero((size_t)n * sizeof **chosen) : NULL;
    if (*chosen) {
        mg_permutation(order, n, (uint32_t)seed, SPLIT_STREAM, seed >> 32);
        for (int64_t i = 0; i < count; i++) (*chosen)[order[i]] = true;
    }
    mg_free(order);
    return *chosen ? MG_OK : MG_OOM;
}

/* Sets the rows of a subset: its files in their order. */
static mg_status split_rows(folder_source *s, const mg_image_split *split) {
    const bool validates = split->subset == MG_SUBSET_VALIDATION;
    const int64_t n = s->list->files.n, validation = (int64_t)(split->validation * (double)n);
    bool *chosen;
    s->base.n_rows = validates ? validation : n - validation;
    if (!s->base.n_rows)
        return mg_fail(MG_USAGE,
                       "image_folder: validation_split = %g of %lld images leaves none for %s",
                       split->validation, (long long)n, validates ? "validation" : "training");
    MG_TRY(draw_files(&chosen, n, validation, split->seed));
    s->file = mg_alloc((size_t)s->base.n_rows * sizeof *s->file);
    for (int64_t i = 0, row = 0; s->file && i < n; i++)
        if (chosen[i] == validates) s->file[row++] = i;
    mg_free(chosen);
    return s->file ? MG_OK : MG_OOM;
}

static mg_status set_fields(folder_source *s) {
    const mg_image_list *l = s->list;
    if (l->labels == MG_LABELS_BINARY && l->classes.n != 2)
        return mg_fail(MG_USAGE, "image_folder: binary labels need two classes, but %s has %lld",
                       l->path, (long long)l->classes.n);
    if (l->labels == MG_LABELS_NONE) s->base.n_fields = 1;
    s->base.field[0] = (mg_field){.dtype = s->form.wide ? MG_I32 : MG_U8,
                                  .shape = MG_SHAPE(-1, -1, s->form.channels)};
    s->base.field[1].dtype = l->labels == MG_LABELS_INT ? MG_I32 : MG_F32;
    if (l->labels == MG_LABELS_BINARY) s->base.field[1].shape = MG_SHAPE(1);
    if (l->labels == MG_LABELS_CATEGORICAL) s->base.field[1].shape = MG_SHAPE(l->classes.n);
    return MG_OK;
}

mg_source *mg_image_folder_source(mg_image_list *l, mg_image_form form,
                                  const mg_image_split *split) {
    folder_source *s = mg_source_alloc(&folder_api, sizeof *s, 2);
    if (!s) return NULL;
    s->list = mg_image_list_retain(l);
    s->form = form;
    s->base.n_rows = l->files.n;
    mg_status status = set_fields(s);
    if (status == MG_OK && split->subset != MG_SUBSET_ALL) status = split_rows(s, split);
    if (status == MG_OK) return &s->base;
    mg_source_release(&s->base);
    return NULL;
}
