/* Reading lines, without an editor or with one, and handling the signals that arrive meanwhile. */
#ifndef MG_PROMPT_READ_LINE_H
#define MG_PROMPT_READ_LINE_H

#include <signal.h>
#include <stdbool.h>

/* ---- read_line.c: without an editor; signals ---- */

typedef enum mg_read_result {
    MG_READ_LINE,
    MG_READ_INTERRUPTED, /* Ctrl-C */
    MG_READ_END          /* the end of the input, or a signal that ends the program */
} mg_read_result;

/* The signals that have arrived since the flags were reset. */
typedef struct mg_read_signals {
    volatile sig_atomic_t interrupt; /* Ctrl-C */
    volatile sig_atomic_t suspend;   /* Ctrl-Z */
    volatile sig_atomic_t redraw;    /* the terminal's size changed, or the process was continued */
    volatile sig_atomic_t end;       /* SIGTERM, SIGHUP or SIGQUIT: its number */
} mg_read_signals;
extern mg_read_signals mg_read_caught;

/* The handler that sets the flags. */
void mg_read_on_signal(int number);
/* Between these two calls Ctrl-C and SIGTERM, SIGHUP and SIGQUIT only set flags. */
void mg_read_begin(void);
void mg_read_end(void);
/* With `pause`, while the user's code runs, SIGHUP and SIGQUIT end the program again, as before
 * mg_read_begin. */
void mg_read_pause(bool pause);

/* Reads a line from standard input without its newline: from a terminal after the prompt, or with
 * NULL from anything else. On MG_READ_LINE the caller frees *line. */
mg_read_result mg_read_line(const char *prompt, char **line);

/* ---- line_editor.c: GNU readline or libedit, whichever is installed; loaded at run time ---- */

/* Called on Tab with the line and the byte at which the cursor is. Writes to *insert what to insert
 * at the cursor and to *listing what to show below the line; both are owned by the completer until
 * its next call, and NULL for nothing. */
typedef void mg_completer(void *context, const char *line, int cursor, const char **insert,
                          const char **listing);

/* Loads a library: the first that is installed, or the one that `wanted` names, "readline" or
 * "libedit". Returns its name, or NULL if there is none. */
const char *mg_line_editor_open(const char *wanted, mg_completer *completer, void *context);
/* Lets the user edit a line; the result and *line are those of mg_read_line. The terminal has its
 * usual modes before and after. */
mg_read_result mg_line_editor_read(const char *prompt, char **line);
/* Appends an entry to the history that the arrow keys walk through, or empties it. */
void mg_line_editor_add_history(const char *entry);
void mg_line_editor_clear_history(void);

#endif
