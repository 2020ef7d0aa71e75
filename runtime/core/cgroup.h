/* How much of the machine's CPUs the cgroups of this process leave it. */
#ifndef MG_CORE_CGROUP_H
#define MG_CORE_CGROUP_H

/* The CPU quota of this process's cgroup and of those around it, in CPUs: the smallest counts,
 * rounded up. 0: no limit, or the system does not tell. `root` is put before the paths of /proc and
 * of the cgroups' folders: "" except in tests. */
int mg_cgroup_cpus(const char *root);

#endif
