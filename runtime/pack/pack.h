/* What the parts of a packed program offer to its main (pack/main.c) and to a model as a library
 * (pack/embed.c). */
#ifndef MG_PACK_PACK_H
#define MG_PACK_PACK_H

#include <lua.h>

/* ---- lua_files.c ---- */

/* require finds the modules of mgpu and of the script inside of the program before any file;
 * io.open, io.lines, io.input, loadfile and dofile find the files inside of it. Called when Lua's
 * libraries are open. */
void mg_pack_open_files(lua_State *L);
/* Pushes the function that the file inside of the program defines, or a message. Returns a Lua
 * status. */
int mg_pack_load(lua_State *L, const char *path);

/* ---- plugins.c ---- */

/* From here on plug-ins are those inside of the program, and the cpu device is one. */
void mg_pack_use_plugins(void);

#endif
