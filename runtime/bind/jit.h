/* mgpu.jit(fn): fn is traced once for each signature of its arguments; later calls run the plan
 * that tracing made.
 *
 *     jit.c         calls, the list of plans, the methods of jitted functions
 *     jit_trace.c   tracing, and the check MGPU_CHECK=retrace
 *     jit_submit.c  runs that go on beside the caller
 *     signature.c   what a plan depends on, as a string of bytes
 *     results.c     what fn returned, and the tensors of later runs put in its place */
#ifndef MG_BIND_JIT_H
#define MG_BIND_JIT_H

#include "bind/results.h"
#include "bind/signature.h"
#include "graph/graph.h"

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
    int template;             /* registry reference to the template of the results (results.h) */
    char *dump;               /* the plan as text, under MGPU_CHECK=retrace; owned */
} bind_jit_entry;

/* The userdata of a jitted function. Its environment table holds fn at 1, so that the collector
 * sees cycles through fn's upvalues, and from 2 on, for each entry, the upvalues that were signed
 * by address (bind_push_upvalues). */
typedef struct bind_jitted {
    bind_jit_entry entries[MAX_PLANS];
    mg_device *devices[MG_MAX_DEVICES]; /* that share the rows of a step; borrowed */
    double weights[MG_MAX_DEVICES];     /* their shares, if weighted */
    int n_devices, n_stages;            /* 0 devices: the default one; groups of devices */
    bool weighted, local_norm;          /* local_norm: batch statistics of each device's own rows */
    mg_device *central;                 /* strategy "central": the device that has the weights */
    int n_entries, n_traces;
    uint64_t clock; /* calls so far */
    bool warned;    /* of too many traces */
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

/* Calls fn with placeholders for the tensors in arguments first..last and makes a plan of what it
 * returned: *o lists the results, and their anchors and template are pushed. Owned by the caller.
 * Raises, with fn's own error unchanged. */
mg_plan *bind_jit_trace(lua_State *L, const bind_jitted *j, int first, int last, bind_outputs *o);
/* Whether MGPU_CHECK=retrace asks for a second trace of every call. */
bool bind_jit_checks_retraces(void);
/* Traces again and raises if the plan is another than that of e: then fn depends on something that
 * is not in the signature. */
void bind_jit_check_retrace(lua_State *L, const bind_jitted *j, bind_jit_entry *e, int first,
                            int last);

/* ---- jit_submit.c ---- */

/* The method submit(...) -> handle: begins a run and returns. */
int bind_jit_submit(lua_State *L);
/* Makes the metatable of such handles. */
void bind_open_pending(lua_State *L);

#endif
