/* CPU quotas of cgroups, as containers and systemd set them: cpu.max in version 2, cpu.cfs_quota_us
 * and cpu.cfs_period_us in version 1.
 *
 * /proc/self/cgroup names the process's cgroup, /proc/self/mountinfo the folder where the tree of
 * cgroups is mounted. A quota also limits all cgroups below it, so every folder from the process's
 * cgroup up to the mount is read. The files are read without core/io, whose injected faults stand
 * for faults of disks: these files come from the kernel. */
#include "core/threads.h"
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { PATH = 4096, LINE = 2 * PATH };

/* One of the two trees of cgroups that may hold the quota; a machine may have both mounted. */
typedef struct tree {
    bool v2;
    char cgroup[PATH]; /* the process's, as /proc/self/cgroup names it */
    char top[PATH];    /* the cgroup that is mounted: "/" except in some containers */
    char folder[PATH]; /* where it is mounted */
} tree;

/* Opens ROOT + FOLDER + NAME. */
static FILE *open_below(const char *root, const char *folder, const char *name) {
    char path[LINE + PATH];
    if ((size_t)snprintf(path, sizeof path, "%s%s%s", root, folder, name) >= sizeof path)
        return NULL;
    return fopen(path, "r");
}

/* Whether `name` is one of the words in a list with commas between them. */
static bool among(const char *list, const char *name) {
    const size_t n = strlen(name);
    for (const char *p = list; *p; p += strcspn(p, ","), p += *p == ',')
        if (strncmp(p, name, n) == 0 && (p[n] == ',' || p[n] == 0)) return true;
    return false;
}

/* Reads a line without its end. */
static bool next_line(FILE *f, char line[LINE]) {
    if (!fgets(line, LINE, f)) return false;
    line[strcspn(line, "\n")] = 0;
    return true;
}

/* Finds the process's cgroup: the line "ID:CONTROLLERS:PATH", where version 2 has no controllers.
 */
static bool find_cgroup(const char *root, tree *t) {
    char line[LINE];
    bool found = false;
    FILE *f = open_below(root, "/proc/self/cgroup", "");
    if (!f) return false;
    while (!found && next_line(f, line)) {
        char *controllers = strchr(line, ':');
        char *path = controllers ? strchr(++controllers, ':') : NULL;
        if (!path) continue;
        *path++ = 0;
        if (t->v2 ? *controllers != 0 : !among(controllers, "cpu")) continue;
        found = (size_t)snprintf(t->cgroup, sizeof t->cgroup, "%s", path) < sizeof t->cgroup;
    }
    fclose(f);
    return found;
}

/* Finds where the tree is mounted: "ID PARENT MAJOR:MINOR TOP FOLDER OPTIONS ... - TYPE SOURCE
 * OPTIONS", where the last options of version 1 name the tree's controllers. */
static bool find_mount(const char *root, tree *t) {
    char line[LINE], type[16], options[256];
    bool found = false;
    FILE *f = open_below(root, "/proc/self/mountinfo", "");
    if (!f) return false;
    while (!found && next_line(f, line)) {
        const char *behind = strstr(line, " - ");
        found = behind && sscanf(behind, " - %15s %*s %255s", type, options) == 2 &&
                strcmp(type, t->v2 ? "cgroup2" : "cgroup") == 0 &&
                (t->v2 || among(options, "cpu")) &&
                sscanf(line, "%*s %*s %*s %4095s %4095s", t->top, t->folder) == 2;
    }
    fclose(f);
    return found;
}

/* Reads a folder's quota and its period, in microseconds each. Without a quota, the file says "max"
 * (not a number) in version 2, and -1 in version 1. */
static bool read_quota(const char *root, const char *folder, bool v2, long long *quota,
                       long long *period) {
    FILE *f = open_below(root, folder, v2 ? "/cpu.max" : "/cpu.cfs_quota_us");
    if (!f) return false;
    bool right = fscanf(f, "%lld", quota) == 1;
    if (!v2) {
        fclose(f);
        f = open_below(root, folder, "/cpu.cfs_period_us");
        if (!f) return false;
    }
    right = right && fscanf(f, "%lld", period) == 1;
    fclose(f);
    return right && *quota > 0 && *period > 0;
}

/* The CPUs that one folder's quota allows, rounded up; INT_MAX without a quota. */
static int folder_cpus(const char *root, const char *folder, bool v2) {
    long long quota, period;
    if (!read_quota(root, folder, v2, &quota, &period)) return INT_MAX;
    const long long cpus = quota / period + (quota % period != 0);
    return cpus < INT_MAX ? (int)cpus : INT_MAX;
}

/* The smallest quota of the folders from the process's cgroup up to the mount. In some containers
 * the cgroup lies outside the mounted tree: then only the mount's own folder is read. */
static int tree_cpus(const char *root, tree *t) {
    if (!find_cgroup(root, t) || !find_mount(root, t)) return INT_MAX;
    const char *below = t->cgroup;
    const size_t top = strlen(t->top);
    if (strcmp(t->top, "/") != 0) {
        const bool inside = strncmp(below, t->top, top) == 0 && (below[top] == '/' || !below[top]);
        below = inside ? below + top : "";
    }
    char folder[LINE];
    const size_t shortest = strlen(t->folder);
    snprintf(folder, sizeof folder, "%s%s", t->folder, below);
    int least = INT_MAX;
    for (;;) {
        const int cpus = folder_cpus(root, folder, t->v2);
        if (cpus < least) least = cpus;
        char *slash = strrchr(folder, '/');
        if (!slash || slash < folder + shortest) return least;
        *slash = 0;
    }
}

int mg_cgroup_cpus(const char *root) {
    tree v2 = {.v2 = true}, v1 = {.v2 = false};
    const int cpus[] = {tree_cpus(root, &v2), tree_cpus(root, &v1)};
    const int least = cpus[0] < cpus[1] ? cpus[0] : cpus[1];
    return least == INT_MAX ? 0 : least;
}
