/* Reading lines without an editor, and the signals that come meanwhile. */
#ifndef MG_PROMPT_READ_LINE_H
#define MG_PROMPT_READ_LINE_H

#include <signal.h>
#include <stdbool.h>

typedef enum mg_read_result {
    MG_READ_LINE,
    MG_READ_INTERRUPTED, /* Ctrl-C */
    MG_READ_END          /* the end of the input, or a signal that ends the program */
} mg_read_result;

/* What has come since the flag was reset. */
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
/* While the user's code runs, SIGHUP and SIGQUIT do again what they did before mg_read_begin: end
 * the program. */
void mg_read_pause(bool pause);

/* Reads a line from standard input without its newline: from a terminal after the prompt, or with
 * NULL from anything else. On MG_READ_LINE the caller frees *line. */
mg_read_result mg_read_line(const char *prompt, char **line);

#endif
