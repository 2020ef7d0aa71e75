/* The binary files of CIFAR-10 and CIFAR-100: records of one or two label bytes and an image, whose
 * red, green and blue planes follow each other. */
#ifndef MG_DATA_CIFAR_H
#define MG_DATA_CIFAR_H

#include "core/status.h"
#include <stddef.h>
#include <stdint.h>

/* Height and width of an image; the most labels of a record. */
enum { MG_CIFAR_SIDE = 32, MG_CIFAR_PIXELS = MG_CIFAR_SIDE * MG_CIFAR_SIDE, MG_CIFAR_LABELS = 2 };

typedef struct mg_cifar_format {
    int labels;                   /* of a record */
    int classes[MG_CIFAR_LABELS]; /* the number of classes: each label is smaller */
} mg_cifar_format;

/* Records that were read. */
typedef struct mg_cifar {
    int64_t rows, room; /* room: records that the blocks can hold */
    uint8_t *images;    /* owned, {rows, 32, 32, 3} */
    uint8_t *labels;    /* owned, {rows, labels} */
} mg_cifar;

/* Appends the records of a file, plain or gzipped, to *c, which begins as all zeros and must be
 * freed also after a failure. MG_IO, MG_OOM; MG_DATA for a file without records, an incomplete
 * record or a label that is no class; MG_INTERRUPTED. */
mg_status mg_cifar_read(mg_cifar *c, const mg_cifar_format *format, const char *path);
/* The same for files in a tar archive, in the order of the names. MG_DATA also if one is missing.
 */
mg_status mg_cifar_read_archive(mg_cifar *c, const mg_cifar_format *format, const char *path,
                                const char *const *names, size_t n);
void mg_cifar_free(mg_cifar *c);

#endif
