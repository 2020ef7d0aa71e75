/* How exact kernels must be: "fast" lets them use Winograd, TF32 and the like. */
#ifndef MG_CORE_PRECISION_H
#define MG_CORE_PRECISION_H

#include <stdbool.h>

bool mg_precision_fast(void); /* the default */
void mg_precision_set_fast(bool fast);
bool mg_deterministic(void);
void mg_deterministic_set(bool on);

#endif
