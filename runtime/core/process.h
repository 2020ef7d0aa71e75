/* Processes that this one starts and waits for.
 *
 * A process gets a group of its own, so that Ctrl-C at the terminal reaches only the one that
 * started it, which then decides. It gets SIGTERM when the thread that started it ends, however
 * that happens. Its standard input is empty. */
#ifndef MG_CORE_PROCESS_H
#define MG_CORE_PROCESS_H

#include "core/status.h"
#include <stdbool.h>
#include <sys/types.h>

typedef struct mg_process {
    pid_t pid;  /* 0: it has ended and was waited for */
    int status; /* then: as of waitpid */
} mg_process;

typedef struct mg_process_plan {
    const char *program;          /* the file to be executed */
    char *const *arguments;       /* NULL at the end; the first is the name */
    const char *const *variables; /* "NAME=value", in place of this process's; "NAME": not set. NULL
                                     at the end */
    const char *output;           /* standard output and error are appended to this file */
} mg_process_plan;

/* MG_IO: the output cannot be written, or the program not be executed; MG_OOM. */
mg_status mg_process_start(const mg_process_plan *plan, mg_process *p);
/* Whether it has ended. Does not wait. */
bool mg_process_ended(mg_process *p);
/* Sends the signal to the process and those that it has started in its group, unless it has ended.
 */
void mg_process_signal(const mg_process *p, int signal_number);
/* Kills it, with its group, and waits for it. */
void mg_process_kill(mg_process *p);

#endif
