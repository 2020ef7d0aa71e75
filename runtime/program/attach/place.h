/* Where the sockets of jobs lie: FOLDER/PID.sock. */
#ifndef MG_PROGRAM_ATTACH_PLACE_H
#define MG_PROGRAM_ATTACH_PLACE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { MG_ATTACH_PATH = 108 }; /* of a socket: struct sockaddr_un */

/* Folder number i of this user, from 0 on: $XDG_RUNTIME_DIR/mgpulua, that folder where systemd puts
 * it, and /tmp/mgpulua-UID. False: there are no more. */
bool mg_attach_folder(int i, uid_t user, char *path, size_t room);
/* Whether the folder is there, belongs to the user and to nobody else, and is no link. With `make`
 * it is made if it is not there. */
bool mg_attach_folder_is_safe(const char *path, uid_t user, bool make);
/* The process of a name PID.sock; 0: it is no such name. */
pid_t mg_attach_process_of(const char *name);
/* Connects to the socket: a descriptor that does not block, or -1 with errno. */
int mg_attach_connect(const char *path);
/* Removes the sockets of processes that have died from the folder. */
void mg_attach_tidy_up(const char *folder);

#endif
