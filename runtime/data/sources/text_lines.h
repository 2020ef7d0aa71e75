/* Lines of text files. */
#ifndef MG_DATA_SOURCES_TEXT_LINES_H
#define MG_DATA_SOURCES_TEXT_LINES_H

#include "data/source.h"

enum { MG_TEXT_LINE = 64 << 20 }; /* the most bytes of a line */

/* A source of the lines of n files, one after another, as texts without their ends (LF or CRLF).
 * The first `skip` lines of each file are left out, and a byte order mark. The last line may lack
 * its end; a file that ends with one has no empty line behind it. gzip is unpacked. Files are read
 * once to find the lines, and again when lines are wanted. Owned. NULL: MG_IO, MG_OOM,
 * MG_INTERRUPTED; MG_DATA: no lines, a line that is too long, damaged gzip data. */
mg_source *mg_text_lines_source(const char *const *paths, int n, int64_t skip);

#endif
