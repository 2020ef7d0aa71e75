/* Names of classes, and their ids from 0. */
#ifndef MG_DATA_SOURCES_CLASS_NAMES_H
#define MG_DATA_SOURCES_CLASS_NAMES_H

#include "core/status.h"
#include <stdint.h>

typedef struct mg_class_names mg_class_names;

/* Empty. Owned. NULL: MG_OOM. */
mg_class_names *mg_class_names_new(void);
/* Sets *id to that of the name, which is added if it is new. MG_OOM. */
mg_status mg_class_names_add(mg_class_names *c, const char *name, int32_t *id);
/* The id of the name; -1 if it is not there. */
int32_t mg_class_names_find(const mg_class_names *c, const char *name);
int32_t mg_class_names_count(const mg_class_names *c);
/* Borrowed. */
const char *mg_class_names_get(const mg_class_names *c, int32_t id);
/* Gives new ids in the order of the names' bytes; maps[old id] is set to the new one. MG_OOM. */
mg_status mg_class_names_sort(mg_class_names *c, int32_t *map);
/* Accepts NULL. */
void mg_class_names_free(mg_class_names *c);

#endif
