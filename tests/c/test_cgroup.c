/* The CPU quota of a process's cgroups (core/cgroup), read below a temporary folder that replaces
 * the root. */
#include "core/threads.h"
#include "core/io.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define V2 "/sys/fs/cgroup"
#define V1 "/sys/fs/cgroup/cpu,cpuacct"
/* Lines of /proc/self/mountinfo; there may be optional fields before the dash. */
#define MOUNT_V2(top) "30 23 0:27 " top " " V2 " rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
#define MOUNT_V1(top)                                                                              \
    "22 21 0:20 / / rw shared:1 - ext4 /dev/sda1 rw\n"                                             \
    "31 30 0:28 " top " /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory\n"             \
    "32 30 0:29 " top " " V1 " rw shared:10 master:2 - cgroup cgroup rw,cpuacct,cpu\n"

/* The folder that replaces the root; each test makes a new one. */
static char root[64];

static int make_root(void **state) {
    (void)state;
    strcpy(root, "/tmp/mgpu-test-cgroup-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state) {
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", root);
    return system(command);
}

/* Writes a file below the root. */
static void put(const char *path, const char *text) {
    char full[512];
    snprintf(full, sizeof full, "%s%s", root, path);
    char *name = strrchr(full, '/');
    *name = 0;
    assert_int_equal(mg_io_make_folder(full), MG_OK);
    *name = '/';
    mg_file *f = mg_io_create(full);
    assert_non_null(f);
    assert_int_equal(mg_io_write(f, text, strlen(text)), MG_OK);
    assert_int_equal(mg_io_commit(f), MG_OK);
}

static void put_proc(const char *cgroup, const char *mountinfo) {
    put("/proc/self/cgroup", cgroup);
    put("/proc/self/mountinfo", mountinfo);
}

static void put_v1(const char *folder, const char *quota, const char *period) {
    char path[256];
    snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", folder);
    put(path, quota);
    snprintf(path, sizeof path, "%s/cpu.cfs_period_us", folder);
    put(path, period);
}

static void a_quota_of_version_2_is_rounded_up(void **state) {
    (void)state;
    put_proc("0::/app.slice/job\n", MOUNT_V2("/"));
    assert_int_equal(mg_cgroup_cpus(root), 0); /* the root cgroup has no such file */
    put(V2 "/app.slice/job/cpu.max", "max 100000\n");
    assert_int_equal(mg_cgroup_cpus(root), 0);
    put(V2 "/app.slice/job/cpu.max", "150000 100000\n");
    assert_int_equal(mg_cgroup_cpus(root), 2);
    put(V2 "/app.slice/job/cpu.max", "200000 100000\n");
    assert_int_equal(mg_cgroup_cpus(root), 2);
    put(V2 "/app.slice/job/cpu.max", "1000 100000\n");
    assert_int_equal(mg_cgroup_cpus(root), 1);
}

static void the_smallest_quota_on_the_way_up_counts(void **state) {
    (void)state;
    put_proc("0::/app.slice/job\n", MOUNT_V2("/"));
    put(V2 "/app.slice/job/cpu.max", "400000 100000\n");
    put(V2 "/app.slice/cpu.max", "300000 100000\n");
    put(V2 "/beside/cpu.max", "100000 100000\n");
    assert_int_equal(mg_cgroup_cpus(root), 3);
    put(V2 "/cpu.max", "120000 60000\n"); /* the mount itself, as in a container */
    assert_int_equal(mg_cgroup_cpus(root), 2);
}

static void a_container_sees_its_cgroup_as_the_root(void **state) {
    (void)state;
    put(V2 "/cpu.max", "300000 100000\n");
    put_proc("0::/\n", MOUNT_V2("/"));
    assert_int_equal(mg_cgroup_cpus(root), 3);
    put_proc("0::/../other\n", MOUNT_V2("/")); /* joined from outside the namespace */
    assert_int_equal(mg_cgroup_cpus(root), 3);
}

static void version_1_has_its_own_files(void **state) {
    (void)state;
    put_proc("9:memory:/else\n4:cpuset:/else\n3:cpu,cpuacct:/user/job\n0::/\n", MOUNT_V1("/"));
    put_v1(V1 "/user/job", "-1\n", "100000\n");
    put_v1(V1 "/else", "100000\n", "100000\n");
    assert_int_equal(mg_cgroup_cpus(root), 0);
    put_v1(V1 "/user", "250000\n", "100000\n");
    assert_int_equal(mg_cgroup_cpus(root), 3);
    put_v1(V1 "/user/job", "50000\n", "50000\n");
    assert_int_equal(mg_cgroup_cpus(root), 1);
}

/* A container of version 1 may see the names of the host, but only its own part mounted. */
static void a_mounted_part_is_taken_off_the_name(void **state) {
    (void)state;
    put_proc("3:cpuacct,cpu:/docker/0123/job\n", MOUNT_V1("/docker/0123"));
    put_v1(V1 "/job", "100000\n", "100000\n");
    put_v1(V1, "200000\n", "100000\n");
    assert_int_equal(mg_cgroup_cpus(root), 1);
    put_proc("3:cpuacct,cpu:/docker/01234\n", MOUNT_V1("/docker/0123"));
    assert_int_equal(mg_cgroup_cpus(root), 2);
}

static void both_versions_may_be_mounted(void **state) {
    (void)state;
    put_proc("3:cpu,cpuacct:/a\n0::/b\n", MOUNT_V1("/") MOUNT_V2("/"));
    put_v1(V1 "/a", "400000\n", "100000\n");
    assert_int_equal(mg_cgroup_cpus(root), 4);
    put(V2 "/b/cpu.max", "300000 100000\n");
    assert_int_equal(mg_cgroup_cpus(root), 3);
}

static void files_that_say_nothing_are_no_limit(void **state) {
    (void)state;
    assert_int_equal(mg_cgroup_cpus(root), 0); /* no /proc */
    put_proc("\n:\n0:\n0::/a\n", "\n - \n1 2 3 - cgroup2\n" MOUNT_V2("/"));
    static const char *const wrong[] = {"",         "\n",         "max\n",      "100000\n",
                                        "100000 0", "0 100000\n", "-1 100000\n"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        put(V2 "/a/cpu.max", wrong[i]);
        assert_int_equal(mg_cgroup_cpus(root), 0);
    }
    put(V2 "/a/cpu.max", "9000000000000000 1");
    assert_int_equal(mg_cgroup_cpus(root), 0); /* more than any machine has */
}

int main(void) {
#define WITH_ROOT(test) cmocka_unit_test_setup_teardown(test, make_root, remove_root)
    const struct CMUnitTest tests[] = {
        WITH_ROOT(a_quota_of_version_2_is_rounded_up),
        WITH_ROOT(the_smallest_quota_on_the_way_up_counts),
        WITH_ROOT(a_container_sees_its_cgroup_as_the_root),
        WITH_ROOT(version_1_has_its_own_files),
        WITH_ROOT(a_mounted_part_is_taken_off_the_name),
        WITH_ROOT(both_versions_may_be_mounted),
        WITH_ROOT(files_that_say_nothing_are_no_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
