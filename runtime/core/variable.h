/* Variables: named handles on a current value, with copies of it on other devices.
 *
 * This file is their data structure. Reading and assigning are in graph/trace.c, because inside an
 * open trace they mean its placeholders and not the real value. Assigning re-binds the handle: a
 * value captured earlier stays what it was. */
#ifndef MG_CORE_VARIABLE_H
#define MG_CORE_VARIABLE_H

#include "core/tensor.h"

typedef struct mg_replica { /* the value on a further device */
    mg_device *device;
    mg_tensor *value; /* owned */
} mg_replica;

struct mg_variable {
    atomic_int refs;
    char *name; /* owned */
    bool trainable;
    bool autocast;        /* a layer that computes in another dtype reads it in that dtype */
    bool nonfinite;       /* a step has made the value NaN or infinite (graph/new_values.h) */
    mg_tensor *value;     /* owned: an MG_VALUE, or lazy and then in its thread's pending list */
    uint64_t n_changes;   /* how often it got a new value: mg_variable_note_change */
    mg_replica *replicas; /* owned: equal to value, on other devices */
    int n_replicas;
    mg_tensor *traced; /* owned: the value inside the open trace, or NULL */
    mg_tensor *entry;  /* owned: the placeholder of the value at the trace's entry, or NULL */
    uint16_t trace;    /* serial number of the trace that `traced` and `entry` belong to */
    bool internal;     /* the runtime's own: leak checks do not count its copies */
    bool watched;      /* the open trace checks its new value (mg_guard_variables) */
    mg_variable *next, *previous; /* in the list of all variables */
};

/* The value's dtype and shape become the variable's for good. Owned. */
mg_variable *mg_variable_new(mg_tensor *value, const char *name, bool trainable);
mg_variable *mg_variable_retain(mg_variable *v);
/* Accepts NULL. */
void mg_variable_release(mg_variable *v);

/* `value` (taken over, also on failure) becomes the current one; replicas are dropped. */
mg_status mg_variable_set(mg_variable *v, mg_tensor *value);

/* To be called whenever v has got a new value, wherever that was written. */
void mg_variable_note_change(mg_variable *v);
/* How often variables of this process got new values: while it stays the same, so do all of them.
 */
uint64_t mg_variables_changes(void);

/* Calls visit for every variable of the process, under the lock of their list. */
void mg_variables_visit(void (*visit)(const mg_variable *v, void *context), void *context);

/* ---- copies on several devices ---- */

/* The value as it lies on d, or NULL. Borrowed. */
mg_tensor *mg_variable_find_on(const mg_variable *v, const mg_device *d);
/* Adds a copy (taken over, also on failure) on a device that has none. */
mg_status mg_variable_add_replica(mg_variable *v, mg_device *d, mg_tensor *copy);
/* `value` (taken over) replaces the one on d, which must exist. */
void mg_variable_replace_on(mg_variable *v, mg_device *d, mg_tensor *value);
/* The copy on d, if there is one, becomes v->value, which then is a replica. */
void mg_variable_promote(mg_variable *v, mg_device *d);
/* Forgets the copy on d, unless it is the only one; another is promoted if it was v->value. */
void mg_variable_remove_from(mg_variable *v, mg_device *d);
/* Forgets replica number i. */
void mg_variable_drop_replica(mg_variable *v, int i);

/* ---- variables whose value is still lazy, per thread ---- */

/* Entries of the calling thread's pending list ... */
int mg_variables_n_pending(void);
/* ... and the variable of entry i, or NULL if it has been evaluated since. Borrowed. */
mg_variable *mg_variables_pending(int i);
/* Removes the entries that have been evaluated, or that nobody else holds any more. */
void mg_variables_prune(void);

#endif
