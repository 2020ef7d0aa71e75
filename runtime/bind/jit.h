/* mgpu.jit: what its files share. */
#ifndef MG_BIND_JIT_H
#define MG_BIND_JIT_H

#include "bind/results.h"
#include "bind/signature.h"
#include "graph/graph.h"

#define BIND_JIT "mgpu.jit"
enum { MAX_PLANS = 64, WARN_AFTER = 8 };

typedef struct bind_jit_entry {
    uint64_t hash, last_used;
    size_t key_size;
    char *key;     /* owned */
    mg_plan *plan; /* owned */
    int n_outputs, n_results;
    int template; /* registry reference: a table of the results, [1..n_results] */
    char *dump;   /* owned: under MGPU_CHECK=retrace */
} bind_jit_entry;

typedef struct bind_jitted { /* its environment table holds the function at 1, so that cycles are
                           collected; and after it the upvalues that each entry was signed with */
    bind_jit_entry entries[MAX_PLANS];
    mg_device *devices[MG_MAX_DEVICES]; /* of plans on several */
    double weights[MG_MAX_DEVICES];
    int n_devices, n_stages;
    bool weighted, local_norm;
    mg_device *keeper;
    int n_entries, n_traces;
    uint64_t clock;
    bool warned;
} bind_jitted;

/* ---- jit.c ---- */

bind_jitted *bind_check_jitted(lua_State *L);
void bind_jit_push_function(lua_State *L);
bind_jit_entry *bind_jit_entry_for(lua_State *L, bind_jitted *j, bind_signature *s, int last,
                                   bool check);

/* ---- jit_trace.c ---- */

mg_plan *bind_jit_trace(lua_State *L, const bind_jitted *j, int first, int last, bind_outputs *o);
bool bind_jit_checks_retraces(void);
void bind_jit_check_retrace(lua_State *L, const bind_jitted *j, bind_jit_entry *e, int first,
                            int last);

/* ---- jit_submit.c ---- */

int bind_jit_submit(lua_State *L);
void bind_open_pending(lua_State *L);

#endif
