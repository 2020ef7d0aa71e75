/* The signature of a call: what a plan of mgpu.jit was traced for.
 *
 * A string of bytes: for the settings, each argument, and each upvalue of the function that is a
 * number or its like, a tensor or a variable, its type and shape, value or identity. */
#ifndef MG_BIND_SIGNATURE_H
#define MG_BIND_SIGNATURE_H

#include "bind/bind.h"

enum { BIND_MAX_KEY = 4096, BIND_MAX_TENSORS = 512, BIND_MAX_LABELS = 64 };

typedef struct bind_label { /* whose the bytes up to `end` are: argument 2, upvalue "rate" */
    size_t end;
    const char *kind, *name; /* borrowed; name may be NULL */
    int number;              /* 0: none */
} bind_label;

typedef struct bind_signature { /* of one call */
    lua_State *L;
    char key[BIND_MAX_KEY];
    size_t n;
    mg_tensor *tensors[BIND_MAX_TENSORS];
    int n_tensors;
    bind_label labels[BIND_MAX_LABELS]; /* in the order of their bytes */
    int n_labels;
} bind_signature;

/* Adds what a plan depends on besides: the default device, precision, determinism, what is
 * trainable. */
void bind_sign_settings(bind_signature *s);
/* Adds the values at stack positions first..last, and lists their tensors. Raises what cannot be an
 * argument. */
void bind_sign_arguments(bind_signature *s, int first, int last);
/* What the function at `fn` has from outside, one level deep: numbers, strings and booleans by
 * value, tensors and variables by identity. */
void bind_sign_upvalues(bind_signature *s, int fn);
/* Pushes a table of those that are signed by identity: kept with the signature, their addresses are
 * not used again. */
void bind_push_upvalues(lua_State *L, int fn);
/* `trainable` of a layer or variable was turned into its opposite. */
void bind_turn_trainable(const void *object);
/* The label in words. */
void bind_label_text(char *to, size_t size, const bind_label *l);
/* For qsort: the order in which the named fields of a table are taken. */
int bind_compare_names(const void *a, const void *b);
uint64_t bind_signature_hash(const bind_signature *s);

#endif
