/* Plug-ins: shared objects `mgpu-<name>.so`, searched for beside libmgpu and then in the folders
 * that MGPU_PLUGINS lists, separated by colons. A program that has plug-ins inside of it (pack/)
 * looks for them there and nowhere else. */
#ifndef MG_CORE_PLUGIN_H
#define MG_CORE_PLUGIN_H

#include <stdbool.h>
#include <stddef.h>

/* Loads the plug-in and returns the address of `symbol` in it. The plug-in stays loaded. NULL if
 * there is no such file, it does not load, or it does not export the symbol: *problem then says
 * which, in static or thread-local memory. */
void *mg_plugin_symbol(const char *name, const char *symbol, const char **problem);
/* Finds the program `mgpu-<name>` in the same folders and writes its path to `path`, of `room`
 * bytes. Returns whether there is one. */
bool mg_plugin_program(const char *name, char *path, size_t room);
/* Calls `found` for every plug-in file that exports `symbol`. The files are read, not loaded: that
 * a plug-in is found does not mean that the libraries it needs are installed. A name is reported
 * once per folder that has it. */
void mg_plugin_each(const char *symbol, void (*found)(void *context, const char *name),
                    void *context);

/* The plug-ins inside of the program. */
typedef struct mg_plugins_inside {
    /* As mg_plugin_symbol; *problem stays NULL if there is no such plug-in inside. */
    void *(*symbol)(const char *name, const char *symbol, const char **problem);
    /* The name of the i-th, from 0; NULL behind the last. */
    const char *(*name)(int i);
} mg_plugins_inside;
/* Called before any other function of this header. `inside` must stay. */
void mg_plugin_use_inside(const mg_plugins_inside *inside);

#endif
