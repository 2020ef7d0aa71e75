/* Output of another process, passed on in whole lines. */
#ifndef MG_PROGRAM_LAUNCHER_LINES_H
#define MG_PROGRAM_LAUNCHER_LINES_H

#include <stdbool.h>
#include <stddef.h>

typedef struct mg_lines {
    int from, to;    /* file descriptors; from: -1 after the end */
    char prefix[24]; /* "[2] ", written before each line */
    char *text;      /* the beginning of a line whose end has not come yet; owned */
    size_t n, room;
    const char *wanted; /* the first line that begins so is not passed on, but what follows is */
    char *found;        /* copied to `found`, cut to its room; NULL: there is no such line */
    size_t found_room;
} mg_lines;

/* Reads once, which may wait, and writes the lines that are complete. At the end of the output, and
 * if reading fails, it writes what is left as a line and closes `from`. */
void mg_lines_pass(mg_lines *lines);

/* Passes on what has been written so far, up to what a pipe holds; never waits. */
void mg_lines_drain(mg_lines *lines);

#endif
