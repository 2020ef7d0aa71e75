/* The prompt: reads Lua from standard input, runs it and prints values. */
#ifndef MG_PROMPT_PROMPT_H
#define MG_PROMPT_PROMPT_H

#include "program/program.h"
#include <lua.h>
#include <stdbool.h>

/* Runs the prompt until the user leaves it. `init`: run the user's init files first. Returns the
 * exit status: 0, or that of the signal that ended it. */
int mg_prompt_run(lua_State *L, bool init);
/* Runs the prompt in another job, or what the command line gives it to run there. Returns the exit
 * status. */
int mg_prompt_attach(lua_State *L, const mg_command_line *m);

#endif
