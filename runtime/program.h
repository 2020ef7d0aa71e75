/* What main.c and repl.c share: calling Lua with tracebacks and Ctrl-C, and reporting errors. */
#ifndef MG_PROGRAM_H
#define MG_PROGRAM_H

#include <lua.h>

/* Calls the function that lies below its n_args arguments on the stack, as lua_pcall does. Errors
 * get a traceback, and Ctrl-C or SIGTERM becomes an error of the script. Returns a Lua status; on
 * failure the message is on top of the stack. */
int mg_program_call(lua_State *L, int n_args, int n_results);
/* Prints and pops the message of a call with this Lua status, and returns the program's exit status
 * for it. Without a failure it does nothing and returns 0. */
int mg_program_report(lua_State *L, int status);
/* Runs the prompt until standard input ends. */
void mg_repl(lua_State *L);

#endif
