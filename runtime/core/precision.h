/* Settings of the process: how exact and how repeatable kernels must be. */
#ifndef MG_CORE_PRECISION_H
#define MG_CORE_PRECISION_H

#include <stdbool.h>

/* The default. Kernels may use Winograd, TF32 and the like, which round more. */
bool mg_precision_fast(void); /* the default */
void mg_precision_set_fast(bool fast);
/* Kernels must give the same bits in every run. Off by default. */
bool mg_deterministic(void);
void mg_deterministic_set(bool on);

#endif
