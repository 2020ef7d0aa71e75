/* Fault injection, for tests: makes a device fail, hang, or be lost at a chosen step of a program.
 */
#ifndef MG_DEVICE_FAULT_H
#define MG_DEVICE_FAULT_H

#include "device/device.h"
#include <stdbool.h>

typedef struct mg_fault {
    char device[MG_DEVICE_NAME], op[32]; /* op: "": any step */
    bool commit;                         /* a step of the commit phase, else of the compute phase */
    bool stuck;                          /* hangs until the other devices give up, then fails */
    bool lost;  /* hangs until mg_fault_let_go, then continues: the watchdog marks it lost */
    bool again; /* later matching steps fail, too */
    int at;     /* which matching step, from 1; 0: no fault is planned */
} mg_fault;

/* Plans a fault; NULL removes it. Must not be called while programs run. */
void mg_fault_plan(const mg_fault *fault);
bool mg_fault_planned(void);
/* Lets hanging devices that were declared lost continue with their steps. */
void mg_fault_let_go(void);
/* Called before each step. MG_DEVICE if the step is to fail. `given_up(context)` says whether the
 * other devices have stopped waiting. */
mg_status mg_fault_check(const mg_device *d, const char *op, bool commit,
                         bool (*given_up)(void *context), void *context);

#endif
