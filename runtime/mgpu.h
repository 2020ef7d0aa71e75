/* The public C API of mgpulua: what a host program needs.
 *
 * A host links libmgpu-lua.so (or loads `mgpu.core` from a stock luajit), opens a Lua state, and
 * works through Lua: models, data and training are Lua tables over the functions of mgpu.core. The
 * library installs no signal handlers, never exits, and prints nothing but what the host's
 * `mgpu.output` writes. Several states may load it, each used by one thread at a time. */
#ifndef MGPU_H
#define MGPU_H

#ifdef __cplusplus
extern "C" {
#endif

struct lua_State;

/* Puts the table of mgpu.core on the stack: register it as package.preload["mgpu.core"], then
 * `require "mgpu"` finds the front end through package.path (lua/?.lua, lua/?/init.lua). The string
 * LUA_REGISTRYINDEX["mgpu.root"], set before, names the folder that holds lua/ and models/. */
int luaopen_mgpu_core(struct lua_State *L);

/* Asks the running computation to stop: its next step or binding call raises "interrupted", nothing
 * of an unfinished step is committed, and the state stays usable. Safe in a signal handler. */
void mg_interrupt(void);

/* Closes all devices and frees what they hold. Call it after the last lua_close(). */
void mg_devices_close(void);

/* The calling thread's last error: one sentence ("" if none), valid until its next failing call. */
const char *mg_error_message(void);

#ifdef __cplusplus
}
#endif

#endif
