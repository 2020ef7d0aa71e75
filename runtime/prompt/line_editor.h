/* Line editing by GNU readline or libedit, whichever is installed; loaded at run time. */
#ifndef MG_PROMPT_LINE_EDITOR_H
#define MG_PROMPT_LINE_EDITOR_H

#include "prompt/read_line.h"

/* Called on Tab with the line and the byte at which the cursor is. Writes to *insert what to insert
 * at the cursor and to *listing what to show below the line; both are owned by the completer until
 * its next call, and NULL for nothing. */
typedef void mg_completer(void *context, const char *line, int cursor, const char **insert,
                          const char **listing);

/* Loads a library: the first that there is, or the one that `wanted` names, "readline" or
 * "libedit". Returns its name, or NULL if there is none. */
const char *mg_line_editor_open(const char *wanted, mg_completer *completer, void *context);
/* Lets the user edit a line; the result and *line are those of mg_read_line. The terminal has its
 * usual modes before and after. */
mg_read_result mg_line_editor_read(const char *prompt, char **line);
/* Appends an entry to the history that the arrow keys walk through, or empties it. */
void mg_line_editor_add_history(const char *entry);
void mg_line_editor_clear_history(void);

#endif
