/* The line editor.
 *
 * GNU readline and libedit offer the same functions under the same names, so the declarations here
 * serve both; where they behave differently, a comment says so. The callback interface is used: it
 * returns after each key, so that all signals are handled here, in one place. They are blocked
 * except while the loop waits for a key, so the processing of a key is never interrupted.
 *
 * Completion is a command of our own, since the two libraries find the word to complete in
 * different ways. */
#define _GNU_SOURCE /* ppoll */
#include "prompt/read_line.h"

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* ---- the library ----------------------------------------------------------------------------- */

typedef int command(int count, int key);

/* The functions and variables used of the library. The last ones exist in only one of the two, else
 * they are NULL. */
static struct api {
    int (*initialize)(void);
    void (*install)(const char *prompt, void (*on_line)(char *));
    void (*remove)(void);
    void (*read_char)(void);
    void (*free_line_state)(void);
    void (*cleanup_after_signal)(void);
    void (*prep_terminal)(int meta);
    void (*deprep_terminal)(void);
    void (*resize)(void);
    void (*redraw)(void);
    int (*insert)(const char *text);
    int (*add_command)(const char *name, command *function, int key);
    int (*on_new_line)(void);
    void (*use_history)(void);
    void (*add_history)(const char *entry);
    void (*clear_history)(void);
    char **line;
    int *point, *end, *catch_signals, *catch_resize;
    const char **name;
    void (*cleanup_callback)(void); /* readline */
    void (*reset_size)(void);       /* readline */
    int *change_environment;        /* readline */
} api;

static const struct symbol {
    const char *name;
    size_t offset; /* in api */
    bool optional;
} symbols[] = {
    {"rl_initialize", offsetof(struct api, initialize), false},
    {"rl_callback_handler_install", offsetof(struct api, install), false},
    {"rl_callback_handler_remove", offsetof(struct api, remove), false},
    {"rl_callback_read_char", offsetof(struct api, read_char), false},
    {"rl_free_line_state", offsetof(struct api, free_line_state), false},
    {"rl_cleanup_after_signal", offsetof(struct api, cleanup_after_signal), false},
    {"rl_prep_terminal", offsetof(struct api, prep_terminal), false},
    {"rl_deprep_terminal", offsetof(struct api, deprep_terminal), false},
    {"rl_resize_terminal", offsetof(struct api, resize), false},
    {"rl_forced_update_display", offsetof(struct api, redraw), false},
    {"rl_insert_text", offsetof(struct api, insert), false},
    {"rl_add_defun", offsetof(struct api, add_command), false},
    {"rl_on_new_line", offsetof(struct api, on_new_line), false},
    {"using_history", offsetof(struct api, use_history), false},
    {"add_history", offsetof(struct api, add_history), false},
    {"clear_history", offsetof(struct api, clear_history), false},
    {"rl_line_buffer", offsetof(struct api, line), false},
    {"rl_point", offsetof(struct api, point), false},
    {"rl_end", offsetof(struct api, end), false},
    {"rl_catch_signals", offsetof(struct api, catch_signals), false},
    {"rl_catch_sigwinch", offsetof(struct api, catch_resize), false},
    {"rl_readline_name", offsetof(struct api, name), false},
    {"rl_callback_sigcleanup", offsetof(struct api, cleanup_callback), true},
    {"rl_reset_screen_size", offsetof(struct api, reset_size), true},
    {"rl_change_environment", offsetof(struct api, change_environment), true},
};

static const struct library {
    const char *name, *file;
} libraries[] = {
    {"readline", "libreadline.so.8"},
    {"readline", "libreadline.so.7"},
    {"libedit", "libedit.so.2"},
    {"libedit", "libedit.so.0"},
};

static bool load(const char *file) {
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!library) return false;
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *address = dlsym(library, symbols[i].name);
        if (!address && !symbols[i].optional) return false;
        memcpy((char *)&api + symbols[i].offset, &address, sizeof address);
    }
    return true;
}

/* ---- completion ------------------------------------------------------------------------------ */

static bool is_readline;
static int prompt_width;
static mg_completer *complete;
static void *completer_context;

/* If at least this many keys are waiting, the text was pasted, and a tab in it is inserted as a
 * tab. (GNU readline recognizes pasted text by itself.) */
enum { PASTED = 16 };
static bool is_pasted(void) {
    int waiting = 0;
    return ioctl(STDIN_FILENO, FIONREAD, &waiting) == 0 && waiting >= PASTED;
}

/* GNU readline shows an inserted text by itself. libedit must redraw the line, and does so from the
 * cursor's position, so the cursor is moved to the line's start first. */
static void show_insertion(int old_point) {
    if (is_readline) return;
    struct winsize size;
    const bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    int cells = prompt_width;
    for (int i = 0; i < old_point; i++) cells += ((*api.line)[i] & 0xC0) != 0x80; /* UTF-8 */
    if (known && cells >= size.ws_col) printf("\033[%dA", cells / size.ws_col);
    printf("\r\033[J");
    fflush(stdout);
    api.redraw();
}

/* Shows the list below the line, and the line again below the list. */
static void show_listing(const char *listing) {
    printf("\n%s", listing);
    fflush(stdout);
    api.on_new_line();
    api.redraw();
}

/* The command for Tab. */
static int on_tab(int count, int key) {
    const char *insert = NULL, *listing = NULL;
    const int point = *api.point;
    (void)count, (void)key;
    if (is_pasted())
        insert = "\t";
    else
        complete(completer_context, *api.line, point, &insert, &listing);
    if (insert) {
        api.insert(insert);
        show_insertion(point);
    } else if (listing) {
        show_listing(listing);
    } else {
        fputc('\a', stdout);
        fflush(stdout);
    }
    return 0;
}

const char *mg_line_editor_open(const char *wanted, mg_completer *completer, void *context) {
    const struct library *found = NULL;
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries && !found; i++)
        if ((!wanted || strcmp(wanted, libraries[i].name) == 0) && load(libraries[i].file))
            found = &libraries[i];
    if (!found) return NULL;
    is_readline = strcmp(found->name, "readline") == 0;
    complete = completer;
    completer_context = context;
    *api.name = "mgpulua"; /* for $if in an inputrc */
    *api.catch_signals = *api.catch_resize = 0;
    if (api.change_environment) *api.change_environment = 0; /* no LINES and COLUMNS */
    api.initialize();
    api.use_history();
    api.add_command("mgpu-complete", on_tab, '\t');
    return found->name;
}

/* ---- reading a line -------------------------------------------------------------------------- */

static char *result;
static bool done;

static void on_line(char *line) {
    result = line;
    done = true;
    api.remove(); /* before the library shows the next prompt */
}

/* SIGCONT arrives when the process continues after a stop, in which the shell has changed the
 * terminal's modes. */
static const int editing[] = {SIGTSTP, SIGWINCH, SIGCONT};
enum { N_EDITING = sizeof editing / sizeof *editing };

static void suspend(void) {
    sigset_t only;
    struct sigaction ours, standard = {.sa_handler = SIG_DFL};
    api.deprep_terminal();
    sigaction(SIGTSTP, &standard, &ours);
    sigemptyset(&only);
    sigaddset(&only, SIGTSTP);
    raise(SIGTSTP); /* pending until it is unblocked, which stops the process */
    sigprocmask(SIG_UNBLOCK, &only, NULL);
    sigprocmask(SIG_BLOCK, &only, NULL);
    sigaction(SIGTSTP, &ours, NULL);
}

static void leave_line(const char *text) {
    api.free_line_state();
    if (api.cleanup_callback) api.cleanup_callback();
    api.cleanup_after_signal();
    api.remove();
    fputs(text, stdout);
    fflush(stdout);
}

/* Handles the signals that have arrived. True if the line is abandoned. */
static bool handle_signals(void) {
    if (mg_read_caught.suspend) {
        mg_read_caught.suspend = 0;
        suspend();
        mg_read_caught.redraw = 1;
    }
    if (mg_read_caught.interrupt || mg_read_caught.end) {
        leave_line(mg_read_caught.interrupt ? "^C\n" : "\n");
        return true;
    }
    if (mg_read_caught.redraw) {
        mg_read_caught.redraw = 0;
        api.prep_terminal(1);
        api.resize();
        api.on_new_line();
        api.redraw();
    }
    return false;
}

/* Passes keys to the library until the line is complete or abandoned. `open` is the signal mask
 * while it waits. False: abandoned. */
static bool edit(const char *prompt, const sigset_t *open) {
    done = false;
    result = NULL;
    prompt_width = (int)strlen(prompt);
    if (api.reset_size) api.reset_size();
    api.install(prompt, on_line);
    while (!done) {
        struct pollfd key = {.fd = STDIN_FILENO, .events = POLLIN};
        if (handle_signals()) return false; /* including those that arrived before the line */
        fflush(stdout);
        const int n = ppoll(&key, 1, NULL, open);
        const bool gone = n > 0 && (key.revents & (POLLHUP | POLLERR | POLLNVAL));
        if (gone || (n < 0 && errno != EINTR)) { /* libedit does not report the end of the input */
            leave_line("\n");
            return true;
        }
        if (n > 0) api.read_char();
    }
    return true;
}

mg_read_result mg_line_editor_read(const char *prompt, char **line) {
    struct sigaction action = {.sa_handler = mg_read_on_signal}, before[N_EDITING];
    static const int all[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGWINCH, SIGCONT};
    sigset_t blocked, open;
    sigemptyset(&blocked);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) sigaddset(&blocked, all[i]);
    sigprocmask(SIG_BLOCK, &blocked, &open);
    for (int i = 0; i < N_EDITING; i++) {
        sigaction(editing[i], NULL, &before[i]);
        if (before[i].sa_handler != SIG_IGN) sigaction(editing[i], &action, NULL);
    }
    mg_read_caught.interrupt = mg_read_caught.suspend = mg_read_caught.redraw = 0;
    const bool complete_line = edit(prompt, &open);
    for (int i = 0; i < N_EDITING; i++) sigaction(editing[i], &before[i], NULL);
    sigprocmask(SIG_SETMASK, &open, NULL);
    *line = result;
    if (!complete_line && !mg_read_caught.end) return MG_READ_INTERRUPTED;
    return complete_line && result ? MG_READ_LINE : MG_READ_END;
}

/* ---- history --------------------------------------------------------------------------------- */

void mg_line_editor_add_history(const char *entry) {
    api.add_history(entry);
}

void mg_line_editor_clear_history(void) {
    api.clear_history();
}
