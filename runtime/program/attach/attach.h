/* Attached prompts: `mgpulua --attach` in another process runs commands in this job.
 *
 *     another process                      this one
 *     client.c    --- records over a --->  visitors.c   connections: what they ask, what they get
 *     (record.h)      Unix socket          server.c     listens; its thread is that of report.c
 *                                          state.c      what it answers without the script
 *                                          visit.c      the script's thread, between two steps:
 * runs commands by lua/mgpu/attach/job.lua, whose output output.c takes
 *
 * Until somebody connects, a listening socket is all that there is (place.h says where). Before the
 * first step no thread looks at it: then SIGIO tells, and a hook makes the thread. */
#ifndef MG_PROGRAM_ATTACH_ATTACH_H
#define MG_PROGRAM_ATTACH_ATTACH_H

#include <lua.h>
#include <stdbool.h>
#include <stddef.h>

/* ---- server.c ---- */

/* From here on the process listens, unless MGPU_ATTACH is 0 or no socket can be made. Called by the
 * script's thread, which keeps its Lua state. `script`: its name, which must live on. */
void mg_attach_listen(lua_State *L, const char *script);
/* Serves connections until the descriptor `wake` can be read. Called by the thread of report.c. */
void mg_attach_serve(int wake);
/* Ends all connections, likewise. */
void mg_attach_close(void);
/* Removes the socket. In a copy of the process, made by fork, it does nothing. */
void mg_attach_stop(void);
/* Whether a connection waits for the thread to be made. */
bool mg_attach_knocked(void);
/* Makes the script's thread call the hook of interrupts.c soon. */
void mg_attach_call_hook(void);
/* Rings for the thread: there is something to send. */
void mg_attach_ring(void);

/* ---- state.c ---- */

/* What --ps shows, as lines name=value, of the job with this script, which began at this time. */
size_t mg_attach_state(char *text, size_t room, const char *script, long long began, bool paused);

/* ---- visit.c ---- */

/* Prepares the Lua state for commands: the function that core.visit calls. */
void mg_attach_visit_open(lua_State *L);
/* Whether a command is running now. Called by the script's thread. */
bool mg_attach_is_running(void);

/* ---- visitors.c ---- */

/* Whether the command that runs is to be stopped; asking clears it. */
bool mg_attach_take_cancel(void);
/* Whether a hook has to be called, for the thread or for a command to stop. */
bool mg_attach_wants_hook(void);

/* ---- output.c ---- */

/* Prepares the redirection: takes note of io.stdout and io.stderr. */
void mg_attach_output_open(lua_State *L);
/* Between these calls, what Lua prints goes to `write`, with 1 for standard output and 2 for
 * standard error. */
void mg_attach_output_begin(lua_State *L, void (*write)(int to, const char *bytes, size_t n));
void mg_attach_output_end(lua_State *L);

/* ---- client.c ---- */

/* The C functions of mgpu.attach.link, for the other side (a lua_CFunction). */
int mg_attach_open_link(lua_State *L);

#endif
