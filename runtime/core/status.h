/* Status codes and the thread's last error message.
 *
 * A fallible function returns mg_status, or NULL, after mg_fail() has stored one sentence that
 * names what went wrong, where, and what to do. The first detector writes the message; callers
 * forward. */
#ifndef MG_CORE_STATUS_H
#define MG_CORE_STATUS_H

#include <stdarg.h>

typedef enum mg_status {
    MG_OK = 0,
    MG_USAGE,       /* a wrong argument: shape, dtype, option, name */
    MG_DATA,        /* wrong contents: a label out of range, a damaged file */
    MG_IO,          /* the operating system refused */
    MG_OOM,         /* memory limit or allocator */
    MG_NONFINITE,   /* NaN or infinity where a number was needed */
    MG_DEVICE,      /* a device failed */
    MG_COMM,        /* a peer failed */
    MG_INTERRUPTED, /* Ctrl-C or mg_interrupt() */
    MG_UNSUPPORTED, /* legal, but not available here */
    MG_INTERNAL     /* our mistake */
} mg_status;

#define MG_N_STATUS 11

/* The size of a message, including its zero byte: two paths of the maximum length and some
 * sentences. A longer message is cut and ends in "...". */
enum { MG_ERROR_BYTES = 12288 };

/* Stores the message (never used as a format again) and returns code. Control characters of
 * arguments become visible (core/printable.h). */
mg_status mg_fail(mg_status code, const char *format, ...) __attribute__((format(printf, 2, 3)));
mg_status mg_fail_v(mg_status code, const char *format, va_list args)
    __attribute__((format(printf, 2, 0)));

/* The thread's last message ("" if none) and its code. The text lives until the next mg_fail(). */
const char *mg_error_message(void);
mg_status mg_error_code(void);

/* Prefixes the stored message with "text: ". If both do not fit, the message is cut at its end. */
void mg_error_prefix(const char *text);

/* Forgets the stored error. */
void mg_error_clear(void);

/* "usage", "data", ... */
const char *mg_status_name(mg_status code);

/* " (did you mean \"NAME\"?)" for the one of the n names that is nearest to `given` by edit
 * distance, or "" if none is near. This thread's next call overwrites the text. */
const char *mg_did_you_mean(const char *given, const char *const *names, int n);
/* The same, followed by the list of all n names: "; the options are axis, keepdims", where `noun`
 * is "option". A text of more than 1023 bytes is cut. This thread's next call overwrites the
 * text. */
const char *mg_name_hint(const char *given, const char *const *names, int n, const char *noun);

#define MG_TRY(expr)                                                                               \
    do {                                                                                           \
        mg_status mg_try_ = (expr);                                                                \
        if (mg_try_ != MG_OK) return mg_try_;                                                      \
    } while (0)

#endif
