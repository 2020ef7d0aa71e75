/* The safetensors format: a JSON header, then the tensors' bytes. */
#ifndef MG_IO_SAFETENSORS_H
#define MG_IO_SAFETENSORS_H

#include "io/store.h"

extern const mg_store_format mg_safetensors;

#endif
