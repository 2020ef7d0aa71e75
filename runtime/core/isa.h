/* The instruction set that vectorised loops use: the widest that the processor has, or the one that
 * the environment variable MGPU_ISA names. All code that is compiled for several sets uses this
 * choice. */
#ifndef MG_CORE_ISA_H
#define MG_CORE_ISA_H

#include "core/status.h"

/* From narrow to wide. The first is what every processor of its kind runs (`baseline`, or `neon` on
 * aarch64); AVX2 includes FMA and F16C, AVX-512 its parts F, BW, VL and DQ. */
typedef enum mg_isa { MG_ISA_NARROWEST, MG_ISA_AVX2, MG_ISA_AVX512 } mg_isa;

/* The widest that this processor runs. */
mg_isa mg_isa_widest(void);

/* MG_USAGE if MGPU_ISA is an unknown name or names a set that this processor lacks. */
mg_status mg_isa_choose(mg_isa *isa);
/* For code that cannot report an error: a wrong MGPU_ISA gives the narrowest set. Computed once. */
mg_isa mg_isa_used(void);

#endif
