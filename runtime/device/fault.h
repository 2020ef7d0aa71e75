/* Injected failures, for tests: a device that fails, does not answer, or never comes back, at a
 * step of a program. */
#ifndef MG_DEVICE_FAULT_H
#define MG_DEVICE_FAULT_H

#include "device/device.h"
#include <stdbool.h>

typedef struct mg_fault {
    char device[MG_DEVICE_NAME], op[32]; /* op: "" = any */
    bool commit;                         /* the phase */
    bool stuck;                          /* does not answer until others give up */
    bool lost;                           /* does not come back until let go */
    int at; /* the how-manieth match, from 1; 0: no failure is planned */
} mg_fault;

/* Plans a failure; NULL takes it back. Not while programs run. */
void mg_fault_plan(const mg_fault *fault);
bool mg_fault_planned(void);
/* Devices that are lost go on with their steps, late. */
void mg_fault_let_go(void);
/* Called before a step: MG_DEVICE where it is to fail. `given_up` says that others have. */
mg_status mg_fault_check(const mg_device *d, const char *op, bool commit,
                         bool (*given_up)(void *context), void *context);

#endif
