/* What the connections of a job (visitors.c) ask of its server. */
#ifndef MG_PROGRAM_ATTACH_SERVER_H
#define MG_PROGRAM_ATTACH_SERVER_H

#include "core/version.h"
#include <stdbool.h>
#include <stddef.h>

#define MG_SERVER_VERSION MG_VERSION

/* The answers to STATE and WHERE: write at most `room` bytes and return how many. */
size_t mg_server_state(char *text, size_t room, bool paused);
size_t mg_server_where(char *text, size_t room);

#endif
