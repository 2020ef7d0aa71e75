/* Text that may come from a file, made fit for a terminal. */
#ifndef MG_CORE_PRINTABLE_H
#define MG_CORE_PRINTABLE_H

#include <stdbool.h>
#include <stddef.h>

enum { MG_PRINTABLE_MOST = 4 }; /* a byte becomes at most as many */

/* Writes the n bytes of text to `to`, as snprintf does: at most room - 1 bytes, never a part of a
 * character, and a zero; returns the length of the whole. What a terminal could obey, and what
 * changes the order of characters, is written as in a Lua string, as \27 or \u{202E}: control
 * characters (C0 except newline and tab, DEL, C1), bytes that are not UTF-8, and the marks of
 * bidirectional text; with one_line also newlines and tabs, as \n and \t. Printable text does not
 * change, so that text may pass through here twice. */
size_t mg_printable(const char *text, size_t n, bool one_line, char *to, size_t room);

#endif
