/* The signature of a call: what a plan of mgpu.jit was traced for.
 *
 * A string of bytes: for the settings, each argument, and each plain upvalue of the function, its
 * type and shape or value. */
#ifndef MG_BIND_SIGNATURE_H
#define MG_BIND_SIGNATURE_H

#include "bind/bind.h"

enum { BIND_MAX_KEY = 4096, BIND_MAX_TENSORS = 512, BIND_MAX_LABELS = 64 };

typedef struct bind_signature { /* of one call */
    lua_State *L;
    char key[BIND_MAX_KEY];
    size_t n;
    mg_tensor *tensors[BIND_MAX_TENSORS];
    int n_tensors;
    struct {
        size_t end;
        char name[48];
    } labels[BIND_MAX_LABELS]; /* which bytes are whose */
    int n_labels;
} bind_signature;

/* Adds what a plan depends on besides: the default device, precision, determinism. */
void bind_sign_settings(bind_signature *s);
/* Adds the values at stack positions first..last, and lists their tensors. Raises what cannot be an
 * argument. */
void bind_sign_arguments(bind_signature *s, int first, int last);
/* Numbers, strings and booleans that the function at `fn` has from outside, one level deep. */
void bind_sign_upvalues(bind_signature *s, int fn);
/* For qsort: the order in which the named fields of a table are taken. */
int bind_compare_names(const void *a, const void *b);
uint64_t bind_signature_hash(const bind_signature *s);

#endif
