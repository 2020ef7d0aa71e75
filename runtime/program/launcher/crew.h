/* The processes that one process of the launcher has started and waits for: ranks on this host, and
 * agents on other hosts, which have crews of ranks of their own. */
#ifndef MG_PROGRAM_LAUNCHER_CREW_H
#define MG_PROGRAM_LAUNCHER_CREW_H

#include "core/status.h"
#include "program/launcher/lines.h"
#include <stdbool.h>
#include <sys/types.h>

typedef enum mg_output { MG_OUTPUT_RANK0, MG_OUTPUT_ALL, MG_OUTPUT_PREFIX } mg_output;

typedef struct mg_member {
    int rank;          /* an agent's: its first one */
    const char *host;  /* of an agent, borrowed; NULL: this is a rank */
    pid_t pid;         /* 0: it has not started, or has ended */
    int orders;        /* an agent's: the socket that is its standard input; else -1 */
    mg_lines out, err; /* from = -1: it writes by itself */
    bool lost;         /* an agent's host cannot be reached, or not any more */
} mg_member;

typedef struct mg_crew {
    int size;              /* of the world */
    int n;                 /* members */
    mg_member *members;    /* owned */
    int orders;            /* of an agent: where its orders come from; else -1 */
    struct pollfd *polled; /* what it waits for; owned */
    int signals;           /* a signalfd */
    int status;            /* of the first rank that failed; 0: none has */
    double end;            /* when those that are left are asked to end, then killed; 0: not yet */
    int asked;             /* how often they were: SIGTERM, then SIGKILL */
    bool stopped;          /* a signal was passed on, so failures need no message */
    bool drains;           /* all have ended, but not all output has been read */
} mg_crew;

typedef struct mg_start { /* what mg_crew_start does */
    char *const *argv;    /* argv[0] is the program, searched for in PATH */
    const char *program;  /* the file to be executed instead of argv[0]; NULL: argv[0] */
    mg_output output;
} mg_start;

/* Room for n members. Blocks the signals that the crew passes on. MG_OOM, MG_IO. */
mg_status mg_crew_open(mg_crew *crew, int n, int size, int orders);
/* Starts a process for the next member, whose rank and host the caller has filled in. MG_IO names
 * the program. */
mg_status mg_crew_start(mg_crew *crew, const mg_start *start);
/* Waits for one event, and passes on output and signals. False: all have ended. */
bool mg_crew_turn(mg_crew *crew);
/* Waits for all, passing on output and signals; returns the exit status. Some seconds after one has
 * failed, the others are ended: they notice by themselves that they lack it, and say so. */
int mg_crew_wait(mg_crew *crew);
/* Kills those that run, and frees what the crew has. */
void mg_crew_close(mg_crew *crew);

#endif
