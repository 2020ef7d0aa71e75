/* Where mg_library_open searches for libraries such as cuDNN: in the wheels of Python
 * installations, which it finds through VIRTUAL_ENV, CONDA_PREFIX or the python3 of PATH, following
 * symbolic links. */
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

/* The temporary folder with the imitated Python installations. */
static char tree[] = "/tmp/library-XXXXXX";

static void shell(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Runs a formatted shell command; asserts success. */
static void shell(const char *format, ...) {
    char command[4096];
    va_list args;
    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    assert_int_equal(system(command), 0);
}

/* Setup of the group, in the folder `tree`: base/ is a Python without wheels. venv/ has a library
 * in a wheel, and its python3 is a link to base's. linked/ and twice/ hold nothing but a python3
 * that links to venv's, directly and through linked/. loop/ holds a link to itself. The library is
 * a copy of libjansson under another name. */
static int make_installations(void **state) {
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

/* Teardown: removes the folder. */
static int remove_installations(void **state) {
    (void)state;
    shell("/bin/rm -rf %s", tree);
    return 0;
}

/* Sets an environment variable to the path of a folder in `tree`. */
static void set_to_folder(const char *name, const char *folder) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", tree, folder);
    setenv(name, path, 1);
}

/* Opens the library; on success its function table must be filled. */
static mg_status open_found(void) {
    static const char *const symbols[] = {"json_object", NULL};
    void *table[1] = {NULL};
    mg_library library = {.file = "libfound.so.1",
                          .what = "Found",
                          .install = "plant it",
                          .symbols = symbols,
                          .table = table};
    const mg_status status = mg_library_open(&library);
    /* The address of json_object. */
    if (status == MG_OK) assert_non_null(table[0]);
    return status;
}

/* An environment in which the library cannot be found: a Python without wheels, no virtual
 * environment. */
static void set_empty_environment(void) {
    unsetenv("MGPU_CUDA_LIBRARIES"), unsetenv("VIRTUAL_ENV"), unsetenv("CONDA_PREFIX");
    set_to_folder("HOME", "."), set_to_folder("PATH", "base/bin");
}

/* A library that is nowhere is MG_UNSUPPORTED with its name; a circular link ends the search. */
static void a_missing_library_is_unsupported(void **state) {
    (void)state;
    set_empty_environment();
    assert_int_equal(open_found(), MG_UNSUPPORTED);
    assert_non_null(strstr(mg_error_message(), "Found is missing"));
    set_to_folder("PATH", "loop"); /* links in a circle end */
    assert_int_equal(open_found(), MG_UNSUPPORTED);
}

/* The library is found in the installation of PATH's python3: directly in venv, and through one and
 * two more links. */
static void a_wheel_of_the_python_in_PATH_is_found(void **state) {
    (void)state;
    for (int i = 0; i < 3; i++) {
        set_empty_environment();
        set_to_folder("PATH", (const char *[]){"venv/bin", "linked", "twice"}[i]);
        assert_int_equal(open_found(), MG_OK);
    }
}

/* The library is found through VIRTUAL_ENV and CONDA_PREFIX. */
static void a_wheel_of_the_active_environment_is_found(void **state) {
    (void)state;
    set_empty_environment();
    set_to_folder("VIRTUAL_ENV", "venv");
    assert_int_equal(open_found(), MG_OK);
    set_empty_environment();
    set_to_folder("CONDA_PREFIX", "venv");
    assert_int_equal(open_found(), MG_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_missing_library_is_unsupported),
        cmocka_unit_test(a_wheel_of_the_python_in_PATH_is_found),
        cmocka_unit_test(a_wheel_of_the_active_environment_is_found),
    };
    return cmocka_run_group_tests(tests, make_installations, remove_installations);
}
