/* The record of a thread, for activity.c and profile.c. */
#ifndef MG_CORE_ACTIVITY_RECORD_H
#define MG_CORE_ACTIVITY_RECORD_H

#include "core/profile.h"
#include <pthread.h>
#include <stdatomic.h>

enum { MG_MOST_SPANS = 32 }; /* of a stack; deeper ones are counted only */

/* A span that goes on. Its owner writes, others read: members that are no atomics are the owner's
 * alone, or protected by mg_activity_record.lock. */
typedef struct mg_open_span {
    _Atomic(const char *) what, device, where, layer;
    atomic_int_least64_t number;
    atomic_uint kind;            /* and from bit 8 on mg_origin.backward */
    atomic_uint_least64_t start; /* ns; 0: not measured */
    _Atomic float flops, bytes;
    mg_activity_describer describe; /* by the lock; NULL: nothing more is known */
    const void *of;
    int64_t about;
} mg_open_span;

typedef struct mg_activity_record {
    atomic_bool used; /* by a thread that lives */
    char name[32];    /* by the lock of the table */
    atomic_int depth;
    pthread_mutex_t lock;
    mg_open_span span[MG_MOST_SPANS];
    /* of the owner alone: mg_activity_sum, ns */
    bool sums_on;
    uint64_t sums_from;
    uint64_t inside[MG_MOST_SPANS + 1]; /* in spans of each depth, within the open one */
    uint64_t sums[MG_SPAN_KINDS];
    /* profile.c: */
    mg_event *ring;          /* mapped; NULL: not yet */
    size_t room;             /* events of the ring, a power of two */
    unsigned profile;        /* the number of the profile that its events belong to */
    atomic_uint_least64_t n; /* events written in that profile */
} mg_activity_record;

extern mg_activity_record mg_activity_records[MG_PROFILE_TRACKS];
extern atomic_int mg_activity_n_records;  /* those behind them have never had a thread */
extern pthread_mutex_t mg_activity_table; /* protects names, and taking and releasing records */

/* An unused record for this name, marked as used: the one that had the name last, if there is one.
 * NULL: all are used. */
mg_activity_record *mg_activity_take(const char *name);
/* Writes an event to the ring of the record. */
void mg_profile_write(mg_activity_record *r, const mg_event *e);
/* Set while a profile is recorded. */
extern atomic_bool mg_profile_on;

#endif
