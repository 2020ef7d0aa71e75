/* Visits: what somebody outside asks of a running script between two of its steps.
 *
 * `mgpulua --attach` runs commands in a job (program/attach). Another thread takes them in and sets
 * a flag; the script's thread looks at it where nothing is half done, and then runs them. Beside
 * the flag there are a few numbers about the job that the other thread may tell without the
 * script. */
#ifndef MG_CORE_VISIT_H
#define MG_CORE_VISIT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

extern atomic_bool mg_visit_flag;

/* Whether there is something to do. One load: it is asked before each step. */
static inline bool mg_visit_wanted(void) {
    return atomic_load_explicit(&mg_visit_flag, memory_order_relaxed);
}

/* About the training that goes on. */
typedef struct mg_visit_notes {
    _Atomic double loss;          /* the last that was read; NaN: none was */
    atomic_int_least64_t epochs;  /* of the fit; 0: unknown */
    atomic_int_least64_t steps;   /* of an epoch; 0: unknown */
    atomic_bool at_prompt;        /* it waits for an input */
    _Atomic(const char *) device; /* its default device, an interned name; NULL: none is open */
} mg_visit_notes;
extern mg_visit_notes mg_visit_noted;

#endif
