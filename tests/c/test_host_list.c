/* Lists of hosts (world/host_list): the forms of SLURM, PBS, UGE, Open MPI and MPICH. Damaged texts
 * and huge numbers are refused with a message that names the variable or file. */
#include "core/alloc.h"
#include "world/host_list.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

typedef mg_status reader(mg_host_list *list, const char *text, const char *who);

/* Reads a text; it must give these hosts, as "a:4 b:1", and nothing else. */
static void gives(reader *read, const char *text, const char *expected) {
    mg_host_list list = {0};
    char got[4096] = "";
    if (read(&list, text, "WHO") != MG_OK) fail_msg("%s: %s", text, mg_error_message());
    for (int i = 0; i < list.n; i++)
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%s:%d", i ? " " : "",
                 list.hosts[i].name, list.hosts[i].slots);
    assert_string_equal(got, expected);
    mg_host_list_free(&list);
}

/* The text must be refused with a message that contains this. */
static void refuses(reader *read, const char *text, const char *message) {
    mg_host_list list = {0};
    if (read(&list, text, "WHO") != MG_USAGE) fail_msg("\"%s\" was not refused", text);
    if (!strstr(mg_error_message(), message) || strncmp(mg_error_message(), "WHO", 3) != 0)
        fail_msg("\"%s\": \"%s\" does not contain \"%s\"", text, mg_error_message(), message);
    mg_host_list_free(&list);
}

static void slurm_lists_are_expanded(void **state) {
    (void)state;
    gives(mg_host_list_slurm, "n1", "n1:0");
    gives(mg_host_list_slurm, "n[1-3,7],gpu[01-03]-ib",
          "n1:0 n2:0 n3:0 n7:0 gpu01-ib:0 gpu02-ib:0 gpu03-ib:0");
    gives(mg_host_list_slurm, "n[9-11]", "n9:0 n10:0 n11:0");
    gives(mg_host_list_slurm, "n[098-101]", "n098:0 n099:0 n100:0 n101:0");
    gives(mg_host_list_slurm, "r[0-1]n[1-2]", "r0n1:0 r0n2:0 r1n1:0 r1n2:0");
    gives(mg_host_list_slurm, "b,a", "b:0 a:0"); /* in the order of the list */
}

static void damaged_slurm_lists_are_refused(void **state) {
    (void)state;
    const char *const texts[] = {"",      ",",        "a,",           "a,,b",   "n[",   "n[1",
                                 "n[1-",  "n[1-]",    "n[]",          "n[3-1]", "n[a]", "n]",
                                 "n[1,]", "n[1-2-3]", "n[1]]",        "n[[1]]", "n 1",  "n[-1]",
                                 "n[1,2", "n[1 2]",   "n[1000000000]"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        refuses(mg_host_list_slurm, texts[i], "not a list of nodes");
    refuses(mg_host_list_slurm, "n[0-999999999]", "more than 16384 hosts");
    refuses(mg_host_list_slurm, "n[0-99]m[0-99]o[0-99]", "more than 16384 hosts");
    char name[MG_HOST_NAME + 8];
    memset(name, 'x', sizeof name);
    name[sizeof name - 1] = 0;
    refuses(mg_host_list_slurm, name, "not a list of nodes");
    memcpy(name + MG_HOST_NAME - 1, "[1]", 4);
    refuses(mg_host_list_slurm, name, "not a list of nodes");
    memcpy(name + MG_HOST_NAME - 3, "[100]", 6);
    refuses(mg_host_list_slurm, name, "not a list of nodes");
}

static void slurm_counts_belong_to_the_hosts_in_order(void **state) {
    (void)state;
    mg_host_list list = {0};
    int n = -1;
    assert_int_equal(mg_host_list_slurm(&list, "n[1-4]", "WHO"), MG_OK);
    assert_int_equal(mg_host_list_slurm_counts(&list, "2(x2),1,0", "WHO"), MG_OK);
    static const int slots[] = {2, 2, 1, 0};
    for (int i = 0; i < 4; i++) assert_int_equal(list.hosts[i].slots, slots[i]);
    assert_int_equal(mg_host_list_slurm_counts(&list, "2(x3)", "WHO"), MG_USAGE);
    assert_non_null(strstr(mg_error_message(), "WHO=2(x3) has 3 nodes, but node 3 is asked for"));
    mg_host_list_free(&list);
    assert_int_equal(mg_slurm_count("3,1(x999999999)", 999999999, "WHO", &n), MG_OK);
    assert_int_equal(n, 1);
    const char *const texts[] = {"",      ",",     "a",      "2(",        "2(x", "2(x)",
                                 "2(x0)", "2(x2",  "2(x2)1", "2 1",       "1,",  "-1",
                                 "2x",    "2(y2)", "70000",  "9999999999"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (mg_slurm_count(texts[i], 5, "WHO", &n) != MG_USAGE) fail_msg("%s", texts[i]);
        assert_non_null(strstr(mg_error_message(), "not a list of counts"));
    }
}

static void hosts_are_given_with_slots(void **state) {
    (void)state;
    gives(mg_host_list_given, "a", "a:1");
    gives(mg_host_list_given, "a:4,b:2,c", "a:4 b:2 c:1");
    gives(mg_host_list_given, "[fd00::2]:3,[::1]", "fd00::2:3 ::1:1");
    gives(mg_host_list_given, "a:4,b,a:2", "a:6 b:1");
    gives(mg_host_list_given, "me@a:2", "me@a:2");
    refuses(mg_host_list_given, "", "a host's name is missing");
    refuses(mg_host_list_given, "a:1,", "a host's name is missing");
    refuses(mg_host_list_given, "a,,b", "a host's name is missing");
    refuses(mg_host_list_given, "-oProxyCommand=x", "a host's name cannot begin with -");
    refuses(mg_host_list_given, ":4", "a host's name has 0 characters");
    refuses(mg_host_list_given, "[]:4", "a host's name has 0 characters");
    refuses(mg_host_list_given, "a:0", "\"a:0\": the number of slots must be 1 to 65536");
    refuses(mg_host_list_given, "a:x", "\"a:x\": the number of slots");
    refuses(mg_host_list_given, "a:", "\"a:\": the number of slots");
    refuses(mg_host_list_given, "a:4x", "\"a:4x\": the number of slots");
    refuses(mg_host_list_given, "a:65537", "the number of slots");
    refuses(mg_host_list_given, "a:65536,a:1", "host a has more than 65536 slots");
}

static void files_of_all_forms_are_read(void **state) {
    (void)state;
    gives(mg_host_list_lines, "a slots=4\nb  slots=2 max_slots=8\n\n# no host\nc\n", "a:4 b:2 c:1");
    gives(mg_host_list_lines, "a:4 # four\n\tb:2 binding=user\nc", "a:4 b:2 c:1");
    gives(mg_host_list_lines, "n1\nn1\nn2\nn1\n", "n1:3 n2:1"); /* PBS */
    gives(mg_host_list_lines, "n1 4 all.q@n1 UNDEFINED\r\nn2 2 all.q@n2 <NULL>\r\n", "n1:4 n2:2");
    refuses(mg_host_list_lines, "", "WHO names no host");
    refuses(mg_host_list_lines, "\n # a\n \n", "WHO names no host");
    refuses(mg_host_list_lines, "a slots=0", "\"a slots=0\": the number of slots");
    refuses(mg_host_list_lines, "a slots=", "the number of slots");
    refuses(mg_host_list_lines, "a slots = 4", "the number of slots");
    refuses(mg_host_list_lines, "a slots=4x", "the number of slots");
    refuses(mg_host_list_lines, "a slots4", "the number of slots");
    refuses(mg_host_list_lines, "a 4x q", "the number of slots");
    refuses(mg_host_list_lines, "a 0 q", "the number of slots");
    refuses(mg_host_list_lines, "a 70000 q", "the number of slots");
    refuses(mg_host_list_lines, "a:0", "the number of slots");
    refuses(mg_host_list_lines, "a 65536 q\na\n", "host a has more than 65536 slots");
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    reader *const readers[] = {mg_host_list_slurm, mg_host_list_given, mg_host_list_lines};
    for (size_t i = 0; i < 3; i++) {
        mg_host_list list = {0};
        mg_alloc_fail_after(1);
        assert_int_equal(readers[i](&list, "a", "WHO"), MG_OOM);
        mg_alloc_fail_after(0);
        mg_host_list_free(&list);
    }
    assert_int_equal(mg_alloc_get_stats().live_blocks, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slurm_lists_are_expanded),
        cmocka_unit_test(damaged_slurm_lists_are_refused),
        cmocka_unit_test(slurm_counts_belong_to_the_hosts_in_order),
        cmocka_unit_test(hosts_are_given_with_slots),
        cmocka_unit_test(files_of_all_forms_are_read),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
