/* mgpu.jit(fn): fn is traced once for each signature of its arguments; later calls run the plan
 * that tracing made.
 *
 *     jit.c         calls, the list of plans, the methods of jitted functions
 *     jit_trace.c   tracing, and the check MGPU_CHECK=retrace
 *     jit_submit.c  runs in the background (submit)
 *     signature.c   what a plan depends on, as a string of bytes
 *     results.c     the results of fn, and putting the tensors of later runs into them */
#ifndef MG_BIND_JIT_H
#define MG_BIND_JIT_H

#include "bind/bind.h"
#include "graph/graph.h"

/* ---- signature.c ----
 *
 * The signature of a call: everything that a plan of mgpu.jit depends on, as a string of bytes.
 * Calls with equal signatures run the same plan.
 *
 * The bytes hold the settings, then each argument, then each upvalue of the function that can be
 * signed: the dtype, shape and device of a tensor argument; the value of a number, string or
 * boolean; the identity (address) of a variable, or of a tensor in an upvalue, because it is part
 * of the plan. */

/* Limits of one call: bytes, tensors in its arguments, labels. */
enum { BIND_MAX_KEY = 4096, BIND_MAX_TENSORS = 512, BIND_MAX_LABELS = 64, BIND_MAX_DEPTH = 100 };

/* The first byte of a tensor in a signature. */
#define BIND_TENSOR_TAG 't'

/* Names the bytes from the end of the previous label up to `end`, for the warning that says which
 * value keeps changing. */
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
    int depth; /* tables around the value that is added */
} bind_signature;

/* Adds the settings that plans depend on: default device, precision, determinism, and which layers
 * and variables are trainable. */
void bind_sign_settings(bind_signature *s);
/* Adds the values at stack positions first..last, and lists their tensors. Raises for a value that
 * cannot be an argument. */
void bind_sign_arguments(bind_signature *s, int first, int last);
/* Adds the upvalues of the function at `fn` that are numbers, strings, booleans, tensors or
 * variables. The contents of tables are not signed; see MGPU_CHECK=retrace. */
void bind_sign_upvalues(bind_signature *s, int fn);
/* Pushes a table of the upvalues that are signed by address. It is kept as long as the signature,
 * so that no other object gets the same address. */
void bind_push_upvalues(lua_State *L, int fn);
/* To be called whenever `trainable` of a layer or variable is toggled. */
void bind_turn_trainable(const void *object);
/* A number for the set of objects that have been toggled an odd number of times. */
uint64_t bind_trainable_pattern(void);
/* Writes the label in words: `argument 2`, `upvalue "rate"`. */
void bind_label_text(char *to, size_t size, const bind_label *l);
/* For qsort of names: the order in which the named fields of a table are signed and traced. */
int bind_compare_names(const void *a, const void *b);
/* FNV-1a over the bytes. */
uint64_t bind_signature_hash(const bind_signature *s);

/* ---- results.c ----
 *
 * The results of a traced function, from which later runs return equal results with their own
 * tensors.
 *
 * The results are kept as a template: a table of the returned values, nested tables included, with
 * a light userdata i in the place of the i-th tensor. */

/* The tensors among the results of a trace: the outputs of the plan. */
typedef struct bind_outputs {
    mg_tensor *list[BIND_MAX_TENSORS]; /* borrowed from the anchors on the stack */
    int n, n_results;                  /* tensors; values that the function returned */
    int depth;                         /* tables around the value that is looked at */
} bind_outputs;

/* The stack must hold only the n_results returned values. Replaces them by the anchors, a table
 * that keeps the tensors alive, and the template. Raises for a value that cannot be a result. */
void bind_outputs_take(lua_State *L, bind_outputs *o, int n_results);

/* The tensors of one run, in a userdata whose collection releases them. */
typedef struct bind_results {
    int room, n; /* n: how many the run has filled in */
    mg_tensor *list[];
} bind_results;

/* Pushes one with room for n tensors. */
bind_results *bind_new_results(lua_State *L, int n);
/* Pushes the results of the function: n_results values made from the template (a registry
 * reference), with the tensors of r, which are all filled in. Returns n_results. */
int bind_push_results(lua_State *L, bind_results *r, int template, int n_results);

/* Makes the metatable of bind_results. */
void bind_open_results(lua_State *L);

#define BIND_JIT "mgpu.jit"
/* Plans kept for one function (the least recently used is dropped); traces after which a
 * warning names the argument that keeps changing. */
enum { MAX_PLANS = 64, WARN_AFTER = 8 };
/* Calls of jitted functions inside one another. */
enum { MAX_NESTED = 100 };

/* A plan and the signature that it was traced for. */
typedef struct bind_jit_entry {
    uint64_t hash, last_used; /* of the key; bind_jitted.clock at the last call */
    size_t key_size;
    char *key;                /* the signature; owned */
    mg_plan *plan;            /* owned */
    int n_outputs, n_results; /* tensors that the plan computes; values that fn returned */
    int template;             /* registry reference to the template of the results */
    struct mg_recipe *recipe; /* of a recorded function, owned; NULL: it cannot be recorded */
    char *dump;               /* the plan as text, under MGPU_CHECK=retrace; owned */
    bind_line caller;         /* of the last call */
} bind_jit_entry;

/* The userdata of a jitted function. Its environment table holds fn at 1, so that the collector
 * sees cycles through fn's upvalues, and from 2 on, for each entry, the upvalues that were signed
 * by address (bind_push_upvalues). */
typedef struct bind_jitted {
    bind_jit_entry entries[MAX_PLANS];
    mg_device *devices[MG_MAX_DEVICES]; /* devices of a step; borrowed */
    double weights[MG_MAX_DEVICES];     /* relative shares of the rows, if weighted */
    int n_devices, n_stages;            /* 0 devices: the default one; groups of devices */
    int n_absent;                       /* further devices that are not there: for reports */
    bool weighted, local_norm;          /* local_norm: batch statistics of each device's own rows */
    bool frozen;        /* plans compute what depends on variables only once for many runs */
    int threads;        /* of a frozen plan, at most; 0: all */
    bool recorded;      /* plans have recipes, for the method call_recorded */
    bool joint;         /* all ranks of the world share it, unless one is alone */
    mg_device *central; /* strategy "central": the device that has the weights */
    int n_entries, n_traces;
    uint64_t clock; /* calls so far */
    bool warned;    /* of too many traces */
    bool reminded;  /* that several devices compute the same */
} bind_jitted;

/* ---- jit.c ---- */

/* The jitted function at index 1; raises if it is something else. */
bind_jitted *bind_check_jitted(lua_State *L);
/* Pushes fn of the jitted function at index 1. */
void bind_jit_push_function(lua_State *L);
/* Signs the arguments 2..last (fills *s) and returns the entry for them: found, or made by tracing.
 * With `check`, an entry that is found is traced again and compared. Borrowed from j. Raises. */
bind_jit_entry *bind_jit_entry_for(lua_State *L, bind_jitted *j, bind_signature *s, int last,
                                   bool check);

/* ---- jit_trace.c ---- */

/* Calls fn with placeholders for the tensors in arguments first..last and makes a plan of its
 * results: *o lists them, and their anchors and template are pushed. Owned by the caller, as is
 * *recipe, if `recipe` is not NULL. Raises, with fn's own error unchanged. */
mg_plan *bind_jit_trace(lua_State *L, const bind_jitted *j, int first, int last, bind_outputs *o,
                        struct mg_recipe **recipe);
/* Whether MGPU_CHECK=retrace asks for a second trace of every call. */
bool bind_jit_checks_retraces(void);
/* Traces again and raises if the plan differs from the plan of e: then fn depends on something that
 * is not in the signature. */
void bind_jit_check_retrace(lua_State *L, const bind_jitted *j, bind_jit_entry *e, int first,
                            int last);

/* ---- jit_submit.c ---- */

/* The method submit(...) -> handle: begins a run and returns. */
int bind_jit_submit(lua_State *L);
/* Makes the metatable of such handles. */
void bind_open_pending(lua_State *L);

#endif
