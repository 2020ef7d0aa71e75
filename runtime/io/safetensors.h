/* The row of the safetensors format for the list in store.c; the format is described in
 * safetensors.c. */
#ifndef MG_IO_SAFETENSORS_H
#define MG_IO_SAFETENSORS_H

#include "io/store.h"

extern const mg_store_format mg_safetensors;

#endif
