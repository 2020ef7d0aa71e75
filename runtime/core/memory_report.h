/* Who has a device's memory: for the message of one that runs out of it. */
#ifndef MG_CORE_MEMORY_REPORT_H
#define MG_CORE_MEMORY_REPORT_H

#include <stddef.h>

typedef struct mg_device mg_device;
typedef struct mg_variable mg_variable;

/* Variables tell when they come and go. */
void mg_memory_report_add(mg_variable *v);
void mg_memory_report_remove(mg_variable *v);

/* "work space of plans 2.1 GiB, variables 9.0 MiB (largest: dense.kernel 7.6 MiB, ...), other
 * tensors 0.8 GiB" in `text`. */
void mg_memory_report_describe(mg_device *d, char *text, size_t size);

#endif
