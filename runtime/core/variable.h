/* Variables: named handles on a current value.
 *
 * Reading captures the value; assigning re-binds the handle, so a value captured earlier stays what
 * it was. While a trace is open, reads give the trace's placeholder and assignments are noted for
 * the plan's commit phase; the real value is untouched. */
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
    bool autocast;        /* a layer of narrower dtype reads it in that dtype */
    mg_tensor *value;     /* owned: an MG_VALUE, or lazy and pending */
    mg_replica *replicas; /* equal to value, on other devices */
    int n_replicas;
    mg_tensor *traced;            /* owned: the value inside the open trace, or NULL */
    mg_tensor *entry;             /* owned: the placeholder of the open trace, or NULL */
    uint16_t trace;               /* serial of the trace that `traced` and `entry` belong to */
    mg_variable *next, *previous; /* of all variables: core/memory_report.c */
};

/* The value's dtype and shape become the variable's for good. Owned. */
mg_variable *mg_variable_new(mg_tensor *value, const char *name, bool trainable);
mg_variable *mg_variable_retain(mg_variable *v);
void mg_variable_release(mg_variable *v);

/* The current value (of the open trace, if one is open). Owned; NULL on failure. */
mg_tensor *mg_variable_read(mg_variable *v);
/* MG_USAGE if the shape differs; casts to the variable's dtype. */
mg_status mg_variable_assign(mg_variable *v, mg_tensor *value);

/* ---- on several devices ---- */

/* The value as it lies on d: made by copying at first need, then kept up to date by plans that run
 * there. The value must be evaluated. Borrowed; NULL on failure. */
mg_tensor *mg_variable_on(mg_variable *v, mg_device *d);
/* value (taken over) is the new one on d, where mg_variable_on has been before. */
void mg_variable_bind(mg_variable *v, mg_device *d, mg_tensor *value);
/* The copy on d becomes the value that others read, if there is one. */
void mg_variable_lead(mg_variable *v, mg_device *d);
/* The copy on d is worth nothing any more; another leads. */
void mg_variable_leave(mg_variable *v, mg_device *d);
/* Forgets replica number i. */
void mg_variable_drop_replica(mg_variable *v, int i);

/* The variables of this thread whose value is still lazy: fills pending (borrowed) up to max. */
int mg_variables_pending(mg_variable **pending, int max);
/* Forgets those that have a value by now. */
void mg_variables_prune(void);

#endif
