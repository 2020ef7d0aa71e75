/* The prompt: reads Lua from standard input, runs it and prints values. */
#ifndef MG_PROMPT_PROMPT_H
#define MG_PROMPT_PROMPT_H

#include <lua.h>

/* Runs the prompt until standard input ends. */
void mg_prompt_run(lua_State *L);

#endif
