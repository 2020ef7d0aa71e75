/* The signature of a call: everything that a plan of mgpu.jit depends on, as a string of bytes.
 * Calls with equal signatures run the same plan.
 *
 * The bytes hold the settings, then each argument, then each upvalue of the function that can be
 * signed: of a tensor argument the dtype, shape and device; of numbers, strings and booleans the
 * value; of variables, and of tensors in upvalues, the identity (address), because they are part of
 * the plan. */
#ifndef MG_BIND_SIGNATURE_H
#define MG_BIND_SIGNATURE_H

#include "bind/bind.h"

/* Limits of one call: bytes, tensors in its arguments, labels. */
enum { BIND_MAX_KEY = 4096, BIND_MAX_TENSORS = 512, BIND_MAX_LABELS = 64 };

/* Names what the bytes up to `end`, from the end of the label before, describe: for the warning
 * that says what keeps changing. */
typedef struct bind_label {
    size_t end;
    const char *kind, *name; /* "upvalue", "rate"; borrowed; name may be NULL */
    int number;              /* argument 2; 0: none */
} bind_label;

/* The signature of one call, and the tensors found in its arguments, which the plan is run with. */
typedef struct bind_signature {
    lua_State *L;
    char key[BIND_MAX_KEY];
    size_t n;
    mg_tensor *tensors[BIND_MAX_TENSORS]; /* borrowed from the Lua stack */
    int n_tensors;
    bind_label labels[BIND_MAX_LABELS]; /* in the order of their bytes */
    int n_labels;
} bind_signature;

/* Adds the settings that plans depend on: default device, precision, determinism, and which layers
 * and variables are trainable. */
void bind_sign_settings(bind_signature *s);
/* Adds the values at stack positions first..last, and lists their tensors. Raises for a value that
 * cannot be an argument. */
void bind_sign_arguments(bind_signature *s, int first, int last);
/* Adds the upvalues of the function at `fn` that are numbers, strings, booleans, tensors or
 * variables. Tables are not looked into; see MGPU_CHECK=retrace. */
void bind_sign_upvalues(bind_signature *s, int fn);
/* Pushes a table of the upvalues that are signed by address. It is kept with the signature, so that
 * no other object gets such an address. */
void bind_push_upvalues(lua_State *L, int fn);
/* To be called when `trainable` of a layer or variable changes to its opposite. */
void bind_turn_trainable(const void *object);
/* Writes the label in words: `argument 2`, `upvalue "rate"`. */
void bind_label_text(char *to, size_t size, const bind_label *l);
/* For qsort of names: the order in which the named fields of a table are signed and traced. */
int bind_compare_names(const void *a, const void *b);
/* FNV-1a over the bytes. */
uint64_t bind_signature_hash(const bind_signature *s);

#endif
