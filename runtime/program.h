/* What main.c and repl.c share: calling Lua the way the program does. */
#ifndef MG_PROGRAM_H
#define MG_PROGRAM_H

#include <lua.h>

/* Calls the function below its n_args arguments, with a traceback on errors and Ctrl-C as an error
 * of the script. A Lua status; on failure the message is on the stack. */
int mg_program_call(lua_State *L, int n_args, int n_results);
/* Prints and pops the message of a failed call. The program's exit status for it. */
int mg_program_report(lua_State *L, int status);
/* The read-eval loop, until the end of standard input. */
void mg_repl(lua_State *L);

#endif
