/* The fast Fourier transform of any length, in double.
 *
 * n is a product of small factors: Stockham's algorithm, one pass for each factor r, which replaces
 * r numbers at a time by their transform and leaves all in order. n has a prime factor above
 * LARGEST: Bluestein's, k t = (k^2 + t^2 - (k - t)^2) / 2 makes the transform a convolution, which
 * three transforms of a power of two compute.
 *
 * Our own, since Debian 12 has no library that fits: FFTW is under the GPL, kissfft is slow for
 * large primes, and pocketfft is not packaged. Compiled once, without wide vectors: a spectrum is a
 * small part of a training step. */
#include "core/alloc.h"
#include "device/cpu/spectra/spectra.h"
#include <math.h>
#include <string.h>

enum { LARGEST = 31, MOST_FACTORS = 64 };

struct mg_fft {
    int64_t n;
    int count; /* of factors */
    int factor[MOST_FACTORS];
    double *real, *imaginary; /* e^(-2 pi i k / n), n each */
    /* Bluestein's only: */
    mg_fft *inner;                        /* of a power of two above 2 n - 2 */
    double *chirp_real, *chirp_imaginary; /* e^(-pi i k^2 / n), n each */
    double *filter_real, *filter_imaginary;
};

/* ---- making ---- */

/* 4, 2, 3, 5, 6, ...: fours before twos; multiples of earlier factors divide nothing that is left.
 */
static int next_factor(int r) {
    return r == 4 ? 2 : r == 3 ? 5 : r + 1;
}

/* Sets the factors of n; false if one is too large. */
static bool find_factors(mg_fft *f) {
    int64_t rest = f->n;
    for (int r = 4; r <= LARGEST && rest > 1; r = next_factor(r))
        for (; rest % r == 0; rest /= r) f->factor[f->count++] = r;
    return rest == 1;
}

/* n numbers e^(-2 pi i power(k) / period). */
static bool make_table(double **real, double **imaginary, int64_t n, bool squares, int64_t period) {
    *real = mg_alloc((size_t)n * 2 * sizeof **real);
    if (!*real) return false;
    *imaginary = *real + n;
    for (int64_t k = 0; k < n; k++) {
        const int64_t power = squares ? k * k % period : k;
        const double angle = 2 * 3.14159265358979323846 * (double)power / (double)period;
        (*real)[k] = cos(angle);
        (*imaginary)[k] = -sin(angle);
    }
    return true;
}

/* The transform of the conjugate chirp, around 0 and divided by the inner length. */
static bool make_filter(mg_fft *f) {
    const int64_t n = f->n, m = f->inner->n;
    double *room = mg_alloc((size_t)mg_fft_room(f->inner) * sizeof *room);
    f->filter_real = mg_alloc_zero((size_t)m * 2 * sizeof *f->filter_real);
    if (!room || !f->filter_real) {
        mg_free(room);
        return false;
    }
    f->filter_imaginary = f->filter_real + m;
    for (int64_t k = 0; k < n; k++) {
        const int64_t mirrored = (m - k) % m;
        f->filter_real[k] = f->filter_real[mirrored] = f->chirp_real[k] / (double)m;
        f->filter_imaginary[k] = f->filter_imaginary[mirrored] = -f->chirp_imaginary[k] / (double)m;
    }
    mg_fft_run(f->inner, f->filter_real, f->filter_imaginary, room);
    mg_free(room);
    return true;
}

static bool make_chirp(mg_fft *f) {
    int64_t m = 1;
    while (m < 2 * f->n - 1) m *= 2;
    f->inner = mg_fft_make(m);
    return f->inner && make_table(&f->chirp_real, &f->chirp_imaginary, f->n, true, 2 * f->n) &&
           make_filter(f);
}

mg_fft *mg_fft_make(int64_t n) {
    mg_fft *f = mg_alloc_zero(sizeof *f);
    if (!f) return NULL;
    f->n = n;
    if (find_factors(f) ? make_table(&f->real, &f->imaginary, n, false, n) : make_chirp(f))
        return f;
    mg_fft_free(f);
    return NULL;
}

void mg_fft_free(mg_fft *f) {
    if (!f) return;
    mg_fft_free(f->inner);
    mg_free(f->real);
    mg_free(f->chirp_real);
    mg_free(f->filter_real);
    mg_free(f);
}

int64_t mg_fft_room(const mg_fft *f) {
    return f->inner ? 2 * f->inner->n + mg_fft_room(f->inner) : 2 * f->n;
}

/* ---- Stockham's algorithm ---- */

/* The transform of r numbers, by its definition. The table has f->n entries for a full turn. */
static void transform_few(const mg_fft *f, int r, const double *a, const double *b, double *c,
                          double *d) {
    const int64_t turn = f->n / r;
    for (int k = 0; k < r; k++) {
        c[k] = d[k] = 0;
        for (int j = 0; j < r; j++) {
            const double w = f->real[j * k % r * turn], v = f->imaginary[j * k % r * turn];
            c[k] += a[j] * w - b[j] * v;
            d[k] += a[j] * v + b[j] * w;
        }
    }
}

static void transform_2(const double *a, const double *b, double *c, double *d) {
    c[0] = a[0] + a[1];
    d[0] = b[0] + b[1];
    c[1] = a[0] - a[1];
    d[1] = b[0] - b[1];
}

static void transform_4(const double *a, const double *b, double *c, double *d) {
    const double even = a[0] + a[2], odd = a[1] + a[3], even_i = b[0] + b[2], odd_i = b[1] + b[3];
    const double p = a[0] - a[2], q = a[1] - a[3], p_i = b[0] - b[2], q_i = b[1] - b[3];
    c[0] = even + odd;
    d[0] = even_i + odd_i;
    c[1] = p + q_i;
    d[1] = p_i - q;
    c[2] = even - odd;
    d[2] = even_i - odd_i;
    c[3] = p - q_i;
    d[3] = p_i + q;
}

/* One pass from x to y, each n real and then n imaginary parts: `stride` transforms of length
 * n / stride, interleaved, become r times as many, which are r times as short. */
static void run_pass(const mg_fft *f, int r, int64_t stride, const double *x, const double *xi,
                     double *y, double *yi) {
    const int64_t length = f->n / stride, m = length / r;
    double a[LARGEST], b[LARGEST], c[LARGEST], d[LARGEST];
    for (int64_t p = 0; p < m; p++)
        for (int64_t q = 0; q < stride; q++) {
            for (int j = 0; j < r; j++) {
                a[j] = x[q + stride * (p + m * j)];
                b[j] = xi[q + stride * (p + m * j)];
            }
            if (r == 4)
                transform_4(a, b, c, d);
            else if (r == 2)
                transform_2(a, b, c, d);
            else
                transform_few(f, r, a, b, c, d);
            for (int k = 0; k < r; k++) {
                const double w = f->real[p * k * stride], v = f->imaginary[p * k * stride];
                y[q + stride * (r * p + k)] = c[k] * w - d[k] * v;
                yi[q + stride * (r * p + k)] = c[k] * v + d[k] * w;
            }
        }
}

static void run_passes(const mg_fft *f, double *real, double *imaginary, double *room) {
    double *x = real, *xi = imaginary, *y = room, *yi = room + f->n;
    int64_t stride = 1;
    for (int i = 0; i < f->count; i++) {
        run_pass(f, f->factor[i], stride, x, xi, y, yi);
        double *const last = x, *const last_i = xi;
        x = y, xi = yi, y = last, yi = last_i;
        stride *= f->factor[i];
    }
    if (x == real) return;
    memcpy(real, x, (size_t)f->n * sizeof *real);
    memcpy(imaginary, xi, (size_t)f->n * sizeof *real);
}

/* ---- Bluestein's algorithm ---- */

/* (c, d) = (a + i b) (w + i v). */
static void multiply(double a, double b, double w, double v, double *c, double *d) {
    *c = a * w - b * v;
    *d = a * v + b * w;
}

static void run_chirp(const mg_fft *f, double *real, double *imaginary, double *room) {
    const int64_t n = f->n, m = f->inner->n;
    double *c = room, *d = room + m, *rest = room + 2 * m;
    memset(c, 0, (size_t)m * 2 * sizeof *c);
    for (int64_t k = 0; k < n; k++)
        multiply(real[k], imaginary[k], f->chirp_real[k], f->chirp_imaginary[k], &c[k], &d[k]);
    mg_fft_run(f->inner, c, d, rest);
    for (int64_t k = 0; k < m; k++)
        multiply(c[k], d[k], f->filter_real[k], f->filter_imaginary[k], &c[k], &d[k]);
    mg_fft_run(f->inner, d, c, rest); /* with the parts swapped: the inverse, with them swapped */
    for (int64_t k = 0; k < n; k++)
        multiply(c[k], d[k], f->chirp_real[k], f->chirp_imaginary[k], &real[k], &imaginary[k]);
}

void mg_fft_run(const mg_fft *f, double *real, double *imaginary, double *room) {
    if (f->inner)
        run_chirp(f, real, imaginary, room);
    else
        run_passes(f, real, imaginary, room);
}
