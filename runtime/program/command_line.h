/* What the command line asks for. */
#ifndef MG_PROGRAM_COMMAND_LINE_H
#define MG_PROGRAM_COMMAND_LINE_H

#include <lua.h>
#include <stdbool.h>

typedef struct mg_command_line {
    char **argv;
    int argc, script;  /* script: index in argv of its name; argc if there is none */
    bool interactive;  /* -i: go to the prompt after the script */
    bool no_env;       /* -E: ignore the environment */
    bool version;      /* print the version */
    bool executed;     /* an option does something by itself: no prompt without a script */
    bool bytecode;     /* -b: the rest of the command line is for jit.bcsave */
    bool trusted;      /* --bytecode: the script may be bytecode */
    const char *wrong; /* an option that is unknown or lacks its value, or --help; NULL: none */
    const char *lacks; /* what the value is that the wrong option lacks, "DIR"; NULL: unknown */
} mg_command_line;

/* The text of --help. */
extern const char mg_command_line_usage[];

/* " (did you mean \"--devices\"?)" for a wrong argument that is like an option, else "". This
 * thread's next call overwrites the text. */
const char *mg_command_line_suggestion(const char *argument);

/* Fills in the rest from argv and argc, without running anything. */
void mg_command_line_scan(mg_command_line *m);
/* Carries out the options before the script, in order. Returns the exit status of the first that
 * fails. */
int mg_command_line_run(lua_State *L, const mg_command_line *m);

#endif
