/* Discrete Fourier transforms. */
#ifndef MG_DEVICE_CPU_SPECTRA_SPECTRA_H
#define MG_DEVICE_CPU_SPECTRA_SPECTRA_H

#include "device/cpu/cpu.h"

extern const mg_kernel mg_cpu_rfft, mg_cpu_rfft_transpose;

/* Transforms of n complex numbers; does not change once it is made, so that threads can share it.
 */
typedef struct mg_fft mg_fft;

/* NULL after MG_OOM. */
mg_fft *mg_fft_make(int64_t n);
void mg_fft_free(mg_fft *f);
/* The doubles that mg_fft_run needs as room. */
int64_t mg_fft_room(const mg_fft *f);
/* X_k = sum over t of x_t e^(-2 pi i k t / n), in place. With real and imaginary parts exchanged it
 * computes the sums with e^(+2 pi i k t / n). */
void mg_fft_run(const mg_fft *f, double *real, double *imaginary, double *room);

#endif
