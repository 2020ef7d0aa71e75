/* Downloads. The network code is a plug-in, mgpu-fetch.so, which is opened at the first download:
 * the library itself depends on no network library. */
#ifndef MG_DATA_FETCH_H
#define MG_DATA_FETCH_H

#include "core/status.h"

/* Downloads url to the file `path`. The file is complete and, if sha256 is given (64 hex digits;
 * NULL: not checked), has that checksum; otherwise nothing is left at path. MG_IO: the download
 * failed (the message says why and where to put the file by hand), MG_DATA: another checksum,
 * MG_UNSUPPORTED: the plug-in is not installed, MG_INTERRUPTED. */
mg_status mg_fetch(const char *url, const char *path, const char *sha256);

/* What the plug-in exports, under the name MG_FETCH_SYMBOL. */
typedef mg_status mg_fetch_function(const char *url, const char *path, const char *sha256);
#define MG_FETCH_SYMBOL "mg_fetch_plugin"

#endif
