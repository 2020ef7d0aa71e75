/* Numbers in text. */
#define _GNU_SOURCE /* strtod_l */
#include "data/sources/csv.h"
#include <locale.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char SPACES[] = " \t", DIGITS[] = "0123456789";

/* ---- strtod ---- */

/* The C locale, in which the decimal separator is a point, independent of the program's locale. */
static pthread_once_t c_once = PTHREAD_ONCE_INIT;
static locale_t c_locale;
static void make_c_locale(void) {
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

static double parse_slowly(const char *text) {
    pthread_once(&c_once, make_c_locale);
    return c_locale ? strtod_l(text, NULL, c_locale) : strtod(text, NULL);
}

/* ---- the fast way ---- */

/* A decimal number: digits * 10^exponent; exact unless there are too many digits. */
typedef struct decimal {
    uint64_t digits; /* the digits read until they exceed EXACT */
    int exponent;
    bool negative;
} decimal;

#define EXACT ((uint64_t)1 << 53) /* integers below it are exact doubles */

/* Reads digits; returns how many there are. */
static size_t read_digits(decimal *d, const char *text) {
    size_t n = 0;
    for (; text[n] >= '0' && text[n] <= '9'; n++)
        if (d->digits < EXACT) d->digits = 10 * d->digits + (uint64_t)(text[n] - '0');
    return n;
}

/* Reads "e-12" if it is there; returns its end, or NULL if it is incomplete. */
static const char *read_exponent(decimal *d, const char *p) {
    if (*p != 'e' && *p != 'E') return p;
    const bool negative = *++p == '-';
    if (*p == '-' || *p == '+') p++;
    const size_t n = strspn(p, DIGITS);
    if (!n) return NULL;
    const int value = n < 6 ? atoi(p) : 1000000;
    d->exponent += negative ? -value : value;
    return p + n;
}

/* digits and 10^|exponent| are exact doubles, so there is only one rounding and the result is the
 * nearest double. */
static bool combine(const decimal *d, double *value) {
    static const double tens[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                  1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                  1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    if (d->digits >= EXACT || d->exponent < -22 || d->exponent > 22) return false;
    const double v = (double)d->digits;
    *value = d->exponent < 0 ? v / tens[-d->exponent] : v * tens[d->exponent];
    if (d->negative) *value = -*value;
    return true;
}

static bool only_spaces(const char *p) {
    return !p[strspn(p, SPACES)];
}

/* The length of "infinity" or "inf" at p; 0: neither. */
static size_t infinity_at(const char *p) {
    if (*p != 'i' && *p != 'I') return 0;
    if (strncasecmp(p, "infinity", 8) == 0) return 8;
    return strncasecmp(p, "inf", 3) == 0 ? 3 : 0;
}

bool mg_csv_number(const char *text, double *value) {
    const char *start = text + strspn(text, SPACES), *p = start;
    decimal d = {.negative = *p == '-'};
    if (*p == '-' || *p == '+') p++;
    const size_t infinity = infinity_at(p);
    if (infinity) *value = d.negative ? -__builtin_inf() : __builtin_inf();
    if (infinity) return only_spaces(p + infinity);
    const size_t before = read_digits(&d, p);
    p += before;
    const size_t behind = *p == '.' ? read_digits(&d, p + 1) : 0;
    d.exponent = -(int)behind;
    if (*p == '.') p += 1 + behind;
    p = before + behind ? read_exponent(&d, p) : NULL;
    if (!p || !only_spaces(p)) return false;
    if (!combine(&d, value)) *value = parse_slowly(start);
    return true;
}

bool mg_csv_integer(const char *text, int64_t *value) {
    const char *p = text + strspn(text, SPACES);
    const bool negative = *p == '-';
    if (*p == '-' || *p == '+') p++;
    const size_t n = strspn(p, DIGITS);
    bool fits = n > 0 && only_spaces(p + n);
    *value = 0;
    for (size_t i = 0; i < n && fits;
         i++) { /* accumulates negatively, because the negative range is larger by one */
        fits = !__builtin_mul_overflow(*value, 10, value) &&
               !__builtin_sub_overflow(*value, p[i] - '0', value);
    }
    return fits && (negative || !__builtin_sub_overflow(0, *value, value));
}
