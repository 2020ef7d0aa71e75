/* Where libraries are sought: Python's wheels, in installations that are links to others. */
#define _GNU_SOURCE
#include "core/library.h"
#include <dlfcn.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char tree[] = "/tmp/library-XXXXXX";

static void shell(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void shell(const char *format, ...) {
    char command[4096];
    va_list args;
    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    assert_int_equal(system(command), 0);
}

/* base: a Python without wheels; venv: one with a library in its wheels, its python3 a link to
 * base's; linked, twice: folders with nothing but a link to venv's python3, and to that. */
static int plant(void **state) {
    (void)state;
    Dl_info jansson;
    assert_non_null(mkdtemp(tree));
    assert_int_not_equal(dladdr((void *)(intptr_t)json_object, &jansson), 0);
    shell("cd %s && mkdir -p base/bin base/lib/python3.12/site-packages venv/bin linked twice "
          "venv/lib/python3.12/site-packages/nvidia/cu13/lib && touch base/bin/python3 && "
          "ln -s ../../base/bin/python3 venv/bin/python3 && ln -s ../venv/bin/python3 linked && "
          "ln -s %s/linked/python3 twice && mkdir loop && "
          "ln -s python3 loop/python3 && "
          "cp %s venv/lib/python3.12/site-packages/nvidia/cu13/lib/libfound.so.1",
          tree, tree, jansson.dli_fname);
    return 0;
}

static int uproot(void **state) {
    (void)state;
    shell("/bin/rm -rf %s", tree);
    return 0;
}

static void in(const char *name, const char *folder) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", tree, folder);
    setenv(name, path, 1);
}

static mg_status open_found(void) {
    static const char *const symbols[] = {"json_object", NULL};
    void *table[1] = {NULL};
    mg_library library = {.file = "libfound.so.1",
                          .what = "Found",
                          .install = "plant it",
                          .symbols = symbols,
                          .table = table};
    const mg_status status = mg_library_open(&library);
    if (status == MG_OK) assert_non_null(table[0]);
    return status;
}

static void nothing_is_set(void) {
    unsetenv("MGPU_CUDA_LIBRARIES"), unsetenv("VIRTUAL_ENV"), unsetenv("CONDA_PREFIX");
    in("HOME", "."), in("PATH", "base/bin");
}

static void a_library_that_is_nowhere(void **state) {
    (void)state;
    nothing_is_set();
    assert_int_equal(open_found(), MG_UNSUPPORTED);
    assert_non_null(strstr(mg_error_message(), "Found is missing"));
    in("PATH", "loop"); /* links in a circle end */
    assert_int_equal(open_found(), MG_UNSUPPORTED);
}

static void beside_the_python_of_the_path(void **state) {
    (void)state;
    for (int i = 0; i < 3; i++) {
        nothing_is_set();
        in("PATH", (const char *[]){"venv/bin", "linked", "twice"}[i]);
        assert_int_equal(open_found(), MG_OK);
    }
}

static void in_the_environment_that_is_active(void **state) {
    (void)state;
    nothing_is_set();
    in("VIRTUAL_ENV", "venv");
    assert_int_equal(open_found(), MG_OK);
    nothing_is_set();
    in("CONDA_PREFIX", "venv");
    assert_int_equal(open_found(), MG_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_library_that_is_nowhere),
        cmocka_unit_test(beside_the_python_of_the_path),
        cmocka_unit_test(in_the_environment_that_is_active),
    };
    return cmocka_run_group_tests(tests, plant, uproot);
}
