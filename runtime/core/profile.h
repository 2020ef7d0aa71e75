/* Recording the spans of all threads (core/activity.h), for a profile.
 *
 * Between mg_profile_begin and mg_profile_end each span that ends is written to a ring of its
 * thread: without locks, and without the allocator, because a ring is mapped once, and the system
 * gives it pages as they are written. Reading is for one thread, after the end. */
#ifndef MG_CORE_PROFILE_H
#define MG_CORE_PROFILE_H

#include "core/activity.h"
#include "core/status.h"

typedef struct mg_event { /* a span that has ended */
    uint64_t start, end;  /* ns, by the clock of mg_seconds */
    mg_span span;
    int depth;
} mg_event;

/* Begins to record. room: the most events that a thread keeps, a power of two; later ones replace
 * the oldest. MG_USAGE: a profile is being recorded already. */
mg_status mg_profile_begin(size_t room);
void mg_profile_end(void);
/* Calls flush(of) at the end of the profile that is being recorded, for devices that add their
 * events late. */
void mg_profile_at_end(void (*flush)(void *of), void *of);
bool mg_profile_is_on(void);
/* The number of profiles begun: a different one for each. */
unsigned mg_profile_number(void);
/* When the profile began and ended, ns. */
uint64_t mg_profile_from(void);
uint64_t mg_profile_to(void);
/* From when on all tracks have kept their events, ns: later than the beginning if a ring was full.
 */
uint64_t mg_profile_kept_from(void);
/* The time of day at which it began: seconds since 1970. */
double mg_profile_time_of_day(void);
/* The name of track i, from 0: a thread, or what mg_profile_add was given. NULL: it has no events.
 * Tracks are numbered below MG_PROFILE_TRACKS. */
enum { MG_PROFILE_TRACKS = 256 };
const char *mg_profile_track(int i);
/* The events of track i by their starts, outer ones first, in memory for mg_free; *n of them.
 * *lost: how many older ones were replaced. NULL: MG_OOM. */
mg_event *mg_profile_events(int i, size_t *n, uint64_t *lost);
/* Adds an event to the track of this name, for work that a device has timed itself. Its threads
 * take turns. */
void mg_profile_add(const char *track, const mg_event *e);
/* Gives the memory of the events back to the system. */
void mg_profile_drop(void);

#endif
