/* The wish that a training saves a checkpoint and stops, which a signal handler may utter. */
#ifndef MG_CORE_STOP_H
#define MG_CORE_STOP_H

#include <stdbool.h>

/* A training that can save listens from here on, or does not any more; forgets what was before. A
 * wish that came too late to be fulfilled becomes an interrupt. */
void mg_stop_listen(bool on);
/* Asks the training to save and stop; `reason` is a signal's number. False if none listens. Safe in
 * a signal handler. */
bool mg_stop_request(int reason);
/* The reason, once mg_stop_request has been called; 0 before. */
int mg_stop_requested(void);
/* The training has saved because of the wish. */
void mg_stop_set_saved(void);
/* Whether it has; a program then ends with the exit status for it. */
bool mg_stop_saved(void);

#endif
