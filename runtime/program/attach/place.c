/* The folders of sockets, which others must not be able to prepare: see place.h. */
#define _GNU_SOURCE
#include "program/attach/place.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* The folder that the system gives the user for such files; NULL: none. */
static const char *runtime_folder(uid_t user) {
    const char *given = getenv("XDG_RUNTIME_DIR");
    return user == getuid() && given && given[0] == '/' ? given : NULL;
}

bool mg_attach_folder(int i, uid_t user, char *path, size_t room) {
    const char *given = runtime_folder(user);
    int n = -1;
    if (i == 0 && given) n = snprintf(path, room, "%s/mgpulua", given);
    if (given) i--;
    if (i == 0) n = snprintf(path, room, "/run/user/%u/mgpulua", (unsigned)user);
    if (i == 1) n = snprintf(path, room, "/tmp/mgpulua-%u", (unsigned)user);
    if (n < 0) return false;
    if ((size_t)n >= room) *path = 0; /* no socket fits there; there may be other folders */
    return true;
}

bool mg_attach_folder_is_safe(const char *path, uid_t user, bool make) {
    struct stat about;
    if (!*path) return false;
    if (make && mkdir(path, 0700) != 0 && errno != EEXIST) return false;
    return lstat(path, &about) == 0 && S_ISDIR(about.st_mode) && about.st_uid == user &&
           (about.st_mode & 077) == 0;
}

pid_t mg_attach_process_of(const char *name) {
    char *end;
    if (name[0] < '1' || name[0] > '9') return 0;
    const long number = strtol(name, &end, 10);
    return strcmp(end, ".sock") == 0 && number <= 0x7fffffff ? (pid_t)number : 0;
}

int mg_attach_connect(const char *path) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    if ((size_t)snprintf(to.sun_path, sizeof to.sun_path, "%s", path) >= sizeof to.sun_path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1;
    if (connect(fd, (const struct sockaddr *)&to, sizeof to) == 0) return fd;
    const int why = errno;
    close(fd);
    errno = why;
    return -1;
}

/* A process of that number may be another one, or live where its number is not the same: only if
 * nobody listens is the socket that of a dead one. */
void mg_attach_tidy_up(const char *folder) {
    DIR *open = opendir(folder);
    if (!open) return;
    for (const struct dirent *entry; (entry = readdir(open)) != NULL;) {
        char path[MG_ATTACH_PATH];
        const pid_t process = mg_attach_process_of(entry->d_name);
        if (!process || kill(process, 0) == 0 || errno != ESRCH) continue;
        if ((size_t)snprintf(path, sizeof path, "%s/%s", folder, entry->d_name) >= sizeof path)
            continue;
        const int fd = mg_attach_connect(path);
        if (fd >= 0)
            close(fd);
        else if (errno == ECONNREFUSED)
            unlink(path);
    }
    closedir(open);
}
