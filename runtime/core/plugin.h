/* Plug-ins: `mgpu-<name>.so`, sought beside libmgpu and then in the folders of MGPU_PLUGINS. */
#ifndef MG_CORE_PLUGIN_H
#define MG_CORE_PLUGIN_H

/* What the plug-in exports under `symbol`; it stays open. NULL, and *problem says in static or
 * thread-local memory why: it is not there, does not load, or exports nothing of that name. */
void *mg_plugin_symbol(const char *name, const char *symbol, const char **problem);

#endif
