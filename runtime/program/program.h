/* Functions that the parts of the program mgpulua offer to main.c and to the prompt.
 *
 * Names begin with mg_main_, because the program exports its symbols and device/program uses the
 * prefix mg_program_. */
#ifndef MG_PROGRAM_PROGRAM_H
#define MG_PROGRAM_PROGRAM_H

#include "core/version.h"
#include <lua.h>
#include <stdbool.h>

#define MG_MAIN_VERSION MG_VERSION

/* The exit status of the program if a file cannot be read or written. The statuses of other
 * failures are in errors.c. */
enum { MG_EXIT_FILE = 74 };

/* ---- state.c: the Lua state ---- */

/* The name of the program at the beginning of its messages. */
extern const char *mg_main_name;
/* Prints why if the stack is too small. Threads get stacks of the same size. */
bool mg_main_has_stack(void);
/* Lua's libraries, with our pairs, next and os.exit. */
void mg_main_open_libraries(lua_State *L);
/* Calls the function with the argument, as lua_cpcall does, in a new state, which is closed
 * afterwards. Returns the exit status for an error, which is printed; else 0. */
int mg_main_in_state(lua_CFunction body, void *argument);

/* ---- command_line.c ---- */

/* Options about the processes of a world, as texts; NULL: not given. */
typedef struct mg_launch_options {
    const char *np, *hosts, *host_file, *output, *ranks_per_gpu, *restart, *elastic;
} mg_launch_options;

/* The command line, parsed. */
typedef struct mg_command_line {
    char **argv;
    int argc, script;  /* script: index in argv of its name; argc if there is none */
    bool interactive;  /* -i: go to the prompt after the script */
    bool no_env;       /* -E: ignore the environment */
    bool version;      /* print the version */
    bool executed;     /* an option such as -e was given: no prompt without a script */
    bool bytecode;     /* -b: the rest of the command line is for jit.bcsave */
    bool trusted;      /* --bytecode: the script may be bytecode */
    bool attach;       /* --attach: the rest is for a job that runs already */
    const char *job;   /* its process, as a text; NULL: not given */
    bool agent;        /* --agent: started by mgpulua --np on another host, for itself only */
    const char *wrong; /* an option that is unknown or lacks its value, or --help; NULL: none */
    mg_launch_options launch;
    const char *lacks; /* name of the value that the wrong option lacks, "DIR"; NULL: the option is
                          unknown */
} mg_command_line;

/* The text of --help. */
extern const char mg_command_line_usage[];

/* " (did you mean \"--devices\"?)" for a wrong argument that is similar to an option, else "". This
 * thread's next call overwrites the text. */
const char *mg_command_line_suggestion(const char *argument);
/* Fills in the rest from argv and argc, without running anything. */
void mg_command_line_scan(mg_command_line *m);
/* Writes the arguments without the launch options, and NULL, to `to`, which has room for argc + 1.
 */
void mg_command_line_of_rank(const mg_command_line *m, char **to);
/* Pushes an array of the chunks of -e. */
void mg_command_line_push_chunks(lua_State *L, const mg_command_line *m);
/* Executes the options before the script, in order. Returns the exit status of the first that
 * fails. */
int mg_command_line_run(lua_State *L, const mg_command_line *m);

/* ---- launcher/ ---- */

/* Whether the command line starts other processes: --np, -H or --hostfile. */
bool mg_launcher_wanted(const mg_command_line *m);
/* Starts them, waits for them and returns the exit status. */
int mg_launcher_run(const mg_command_line *m);
/* The main of the process that starts ranks on another host; see launcher/agent.h. */
int mg_agent_main(void);
/* What a process of a world does before it runs the script: it drops its standard output, or puts
 * its rank before each line, as --output demands, and notes --nranks_per_gpu. Returns an exit
 * status; 0: go on. */
int mg_launcher_join(const mg_command_line *m);

/* ---- interrupts.c ---- */

/* Gives signal handlers a stack, makes compiled loops stoppable, and installs the handlers of the
 * limits on CPU time and file sizes. To be called once, before the first mg_main_call. */
void mg_main_watch(lua_State *L);
/* Calls the function that lies below its n_args arguments on the stack, as lua_pcall does. Errors
 * get a traceback, and Ctrl-C or SIGTERM becomes an error of the script. Returns a Lua status; on
 * failure the message is on top of the stack. */
int mg_main_call(lua_State *L, int n_args, int n_results);

/* How many signals have interrupted the script so far. */
int mg_main_interrupts(void);
/* Calls mg_main_report_lua at the next instruction of the script. Safe in a signal handler of its
 * thread. */
void mg_main_hook_soon(void);

/* ---- report.c ---- */

/* Opens what wakes the printing thread. Further calls change nothing. */
void mg_main_report_open(void);
/* From here on SIGQUIT prints what each thread is in. Called by the script's thread. */
void mg_main_report_start(void);
/* The Lua state is about to be closed: nothing is printed any more. */
void mg_main_report_stop(void);
/* Whether a report wants to know where the Lua code is ... */
bool mg_main_report_wanted(void);
/* ... which this tells it, if it does. Called by a hook. */
void mg_main_report_lua(lua_State *L);

/* The lines of such a report, without a head, in at most `room` bytes; returns how many. Called by
 * the printing thread. */
size_t mg_main_where(char *text, size_t room);

/* ---- traceback.c ---- */

/* Pushes a traceback of the user's functions from this level of the stack on: a newline, "stack
 * traceback:" and a line for each, or "" if there are none to show. */
void mg_main_push_traceback(lua_State *L, int from);

/* ---- errors.c ---- */

/* The error handler of calls (a lua_CFunction): appends a traceback to the message. */
int mg_main_traceback(lua_State *L);
/* The exit status for a Lua error message: by the code of the library's last error if the message
 * contains that error, else 1. */
int mg_main_exit_status(const char *message);
/* Prints and pops the message of a call with this Lua status, and returns the program's exit status
 * for it. Without a failure it does nothing and returns 0. */
int mg_main_report(lua_State *L, int status);

/* ---- chunks.c: loading and running; all return an exit status ---- */

/* Calls the chunk on top of the stack, which was loaded with this Lua status, with the argument
 * unless that is NULL; or reports why it did not load. */
int mg_main_run(lua_State *L, int status, const char *argument);
int mg_main_run_text(lua_State *L, const char *text, const char *name, const char *argument);
/* Runs the value of the environment variable, if it is set: a chunk, or the name of a file after
 * `@`. */
int mg_main_run_variable(lua_State *L, const char *variable);

/* ---- bytecode.c ---- */

/* luaL_loadfile for text; bytecode only if it is trusted. NULL: standard input. Returns a Lua
 * status, with the function or the message on top of the stack. */
int mg_main_load(lua_State *L, const char *name, bool trusted);
/* From here on load, loadstring, loadfile, dofile and require refuse bytecode. */
void mg_main_refuse_bytecode(lua_State *L);

/* ---- packages.c ---- */

/* Puts mgpu's Lua files first on package.path, and what mg_main_set_up_core does. */
void mg_main_set_up_packages(lua_State *L);
/* Puts the C binding into package.preload, and a searcher for the aliases of modules behind the
 * others. root: the folder that holds lua/ and models/; NULL: unknown. */
void mg_main_set_up_core(lua_State *L, const char *root);

/* ---- exit.c ---- */

/* Ends the process with `status`, or with MG_EXIT_FILE instead of 0 if standard output could not be
 * written. Does not return. */
void mg_main_end(int status) __attribute__((noreturn));
/* The script is about to run in this process. */
void mg_main_begin(void);
/* Calls the function that an option has put into the registry as "mgpu.at_end", if there is one:
 * when the script has ended, by os.exit or an error, too; but not in a copy of the process that the
 * script has made by fork. Returns an exit status. */
int mg_main_at_end(lua_State *L);
/* os.exit([status [, close]]), as luajit's (a lua_CFunction). */
int mg_main_os_exit(lua_State *L);

#endif
