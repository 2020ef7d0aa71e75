/* Downloads. The network code is a plug-in, mgpu-fetch.so, opened when a download is wanted. */
#ifndef MG_DATA_FETCH_H
#define MG_DATA_FETCH_H

#include "core/status.h"

/* Gets url and puts it at path, whole and only if its SHA-256 is the given one (64 hex digits;
 * NULL: anything is taken). MG_IO says why not and where to put the file by hand, MG_DATA that the
 * sum is another, MG_UNSUPPORTED that the plug-in is not installed. */
mg_status mg_fetch(const char *url, const char *path, const char *sha256);

/* What the plug-in exports, under this name. */
typedef mg_status mg_fetch_function(const char *url, const char *path, const char *sha256);
#define MG_FETCH_SYMBOL "mg_fetch_plugin"

#endif
