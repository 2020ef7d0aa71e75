/* The static libpng and libjpeg are compiled for programs: they reach stderr at a fixed distance,
 * which a plug-in cannot. There the name is replaced by this one (pack/rules.mk). */
#include <stdio.h>

extern FILE *mg_pack_stderr;
__attribute__((visibility("hidden"))) FILE *mg_pack_stderr;

__attribute__((constructor)) static void set(void) {
    mg_pack_stderr = stderr;
}
