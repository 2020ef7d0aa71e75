/* Plain lines, and the signals of the prompt.
 *
 * While the prompt runs, its handlers only set flags: the reading functions check them when a
 * system call was interrupted. mg_main_call replaces the handlers while Lua code of the user
 * runs. */
#define _GNU_SOURCE /* ppoll */
#include "prompt/read_line.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

mg_read_signals mg_read_caught;

void mg_read_on_signal(int number) {
    switch (number) {
    case SIGINT: mg_read_caught.interrupt = 1; break;
    case SIGTSTP: mg_read_caught.suspend = 1; break;
    case SIGWINCH:
    case SIGCONT: mg_read_caught.redraw = 1; break;
    default: mg_read_caught.end = number;
    }
}

/* SIGTSTP, SIGWINCH and SIGCONT are handled while a line is edited only: line_editor.c. */
static const int handled[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
enum { N_HANDLED = sizeof handled / sizeof *handled };
static struct sigaction before[N_HANDLED];

void mg_read_begin(void) {
    /* without SA_RESTART a signal makes read() fail with EINTR */
    struct sigaction action = {.sa_handler = mg_read_on_signal};
    mg_read_caught = (mg_read_signals){0};
    for (int i = 0; i < N_HANDLED; i++) {
        sigaction(handled[i], NULL, &before[i]);
        if (before[i].sa_handler != SIG_IGN) sigaction(handled[i], &action, NULL);
    }
}

void mg_read_end(void) {
    for (int i = 0; i < N_HANDLED; i++) sigaction(handled[i], &before[i], NULL);
}

void mg_read_pause(bool pause) {
    const struct sigaction ours = {.sa_handler = mg_read_on_signal};
    for (int i = 0; i < N_HANDLED; i++) {
        if (handled[i] == SIGINT || handled[i] == SIGTERM) continue; /* mg_main_call's */
        if (before[i].sa_handler != SIG_IGN)
            sigaction(handled[i], pause ? &before[i] : &ours, NULL);
    }
}

/* Waits for a line of the terminal. The signals are blocked outside of the wait, so none of them
 * can arrive between the check of the flags and the wait. False: a signal has arrived. */
static bool wait_for_line(const sigset_t *open) {
    struct pollfd line = {.fd = STDIN_FILENO, .events = POLLIN};
    while (!mg_read_caught.interrupt && !mg_read_caught.end)
        if (ppoll(&line, 1, NULL, open) >= 0 || errno != EINTR) return true;
    return false;
}

static ssize_t read_from_terminal(const char *prompt, char **line, size_t *room) {
    FILE *shown = isatty(STDOUT_FILENO) ? stdout : stderr; /* a result in a file has no prompts */
    sigset_t blocked, open;
    sigemptyset(&blocked);
    for (int i = 0; i < N_HANDLED; i++) sigaddset(&blocked, handled[i]);
    sigprocmask(SIG_BLOCK, &blocked, &open);
    mg_read_caught.interrupt = 0;
    fputs(prompt, shown);
    fflush(shown);
    clearerr(stdin); /* the user may have ended an io.read by Ctrl-D */
    const ssize_t n = wait_for_line(&open) ? getline(line, room, stdin) : -1;
    sigprocmask(SIG_SETMASK, &open, NULL);
    return n;
}

mg_read_result mg_read_line(const char *prompt, char **line) {
    size_t room = 0;
    *line = NULL;
    fflush(stdout);
    mg_read_caught.interrupt = 0;
    if (mg_read_caught.end) return MG_READ_END; /* the signal arrived between two lines */
    const ssize_t n =
        prompt ? read_from_terminal(prompt, line, &room) : getline(line, &room, stdin);
    if (n >= 0) {
        if (n > 0 && (*line)[n - 1] == '\n') (*line)[n - 1] = '\0';
        return MG_READ_LINE;
    }
    free(*line);
    return mg_read_caught.interrupt && !mg_read_caught.end ? MG_READ_INTERRUPTED : MG_READ_END;
}
