/* MG_CLONES: compiles a function for several x86 vector units, chosen when the plug-in is loaded.
 *
 * It goes on inner loops, which must be worth a call; OpenMP regions stand outside of them (gcc
 * moves the body of a region out of the clone). Sanitizers cannot run the choosing code, and clang
 * takes the plain version: both lose speed only. */
#ifndef MG_DEVICE_CPU_CLONES_H
#define MG_DEVICE_CPU_CLONES_H

#include <features.h>

#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__) &&                            \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define MG_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define MG_CLONES
#endif

#endif
