/* Images in folders, one folder for each class. */
#ifndef MG_DATA_SOURCES_IMAGE_FOLDER_H
#define MG_DATA_SOURCES_IMAGE_FOLDER_H

#include "data/image.h"
#include "data/source.h"
#include "io/folder.h"

typedef enum mg_folder_labels {
    MG_LABELS_NONE,        /* images only, from all folders below the path */
    MG_LABELS_INT,         /* the id of the class, int32 {} */
    MG_LABELS_BINARY,      /* the same of two classes, float32 {1} */
    MG_LABELS_CATEGORICAL, /* one-hot, float32 {classes} */
} mg_folder_labels;

/* What to look for. The pointers are borrowed. */
typedef struct mg_image_folder {
    const char *path;
    mg_folder_labels labels;
    const char *const *classes;    /* folders in the order of their ids; NULL: all, sorted */
    const char *const *extensions; /* without the dot; compared case-insensitively */
    int n_classes, n_extensions;
    bool follow_links; /* also to folders below those of the classes */
    bool skip_bad;     /* leave out files whose headers are not those of images */
} mg_image_folder;

/* The files found: for each class the files below its folder, sorted. */
typedef struct mg_image_list mg_image_list;

/* Owned. NULL: MG_IO, MG_OOM, MG_INTERRUPTED; MG_DATA: no images, a class without a folder. */
mg_image_list *mg_image_list_new(const mg_image_folder *f);
mg_image_list *mg_image_list_retain(mg_image_list *l);
/* Accepts NULL. */
void mg_image_list_release(mg_image_list *l);
/* Names of classes, and paths left out by skip_bad. */
const mg_path_list *mg_image_list_classes(const mg_image_list *l);
const mg_path_list *mg_image_list_skipped(const mg_image_list *l);

/* A part of the files for validation, drawn at random. */
typedef enum mg_subset { MG_SUBSET_ALL, MG_SUBSET_TRAINING, MG_SUBSET_VALIDATION } mg_subset;
typedef struct mg_image_split {
    mg_subset subset;
    double validation; /* the share of the files */
    uint64_t seed;
} mg_image_split;

/* A source of images {-1, -1, channels} (1, 3 or 4), uint8 or, if wide, int32 from 0 to 65535,
 * decoded when they are read, and their labels. Retains the list. Owned. NULL: MG_OOM; MG_USAGE: a
 * subset without files, binary labels of another number of classes. */
mg_source *mg_image_folder_source(mg_image_list *l, mg_image_form form,
                                  const mg_image_split *split);

#endif
