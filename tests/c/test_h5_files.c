/* What mgpu-h5 (io/h5_helper) reads from files that libhdf5 has written, what it leaves out, how it
 * ends, and what its sandbox forbids. Files that it refuses are in test_h5_hostile.c. */
#define _GNU_SOURCE
#include "core/alloc.h"
#include "core/io.h"
#include "core/plugin.h"
#include "device/buffer.h"
#include "device/device.h"
#include "graph/graph.h"
#include "h5_folder.h"
#include "io/h5.h"
#include "io/h5_helper/helper.h"
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- files ---- */

/* The file being made, empty. */
static hid_t begin(void) {
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL); /* failures are asserted, not printed */
    const hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(file >= 0);
    return file;
}

static hid_t space_of(int rank, const hsize_t *dims) {
    return rank ? H5Screate_simple(rank, dims, NULL) : H5Screate(H5S_SCALAR);
}

/* Adds a dataset, or to the root an attribute; `values` NULL: it is not written. Closes `type` and
 * `space`. */
static void add(hid_t file, bool attribute, const char *name, hid_t type, hid_t space,
                const void *values) {
    const hid_t x =
        attribute ? H5Acreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT)
                  : H5Dcreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(x >= 0);
    if (values && attribute) assert_true(H5Awrite(x, type, values) >= 0);
    if (values && !attribute)
        assert_true(H5Dwrite(x, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
    if (attribute)
        H5Aclose(x);
    else
        H5Dclose(x);
    H5Tclose(type);
    H5Sclose(space);
}

/* Loads the file; *n: its entries without the root. */
static mg_h5_tree *load(size_t *n) {
    mg_h5_tree *tree = mg_h5_load(path);
    if (!tree) fail_msg("%s", mg_error_message());
    *n = tree->n - 1;
    return tree;
}

/* Closes the file, which cannot be loaded for a reason with this text. */
static void refused(hid_t file, const char *text) {
    H5Fclose(file);
    assert_null(mg_h5_load(path));
    assert_int_equal(mg_error_code(), MG_DATA);
    if (!strstr(mg_error_message(), text))
        fail_msg("\"%s\" without \"%s\"", mg_error_message(), text);
    assert_non_null(strstr(mg_error_message(), path));
}

/* ---- tests ---- */

/* Whole numbers of each size get a type that holds them. */
static void whole_numbers_are_widened(void **state) {
    (void)state;
    static const struct {
        int bytes;
        bool is_signed;
        mg_dtype dtype;
    } cases[] = {{1, false, MG_U8}, {1, true, MG_I32},  {2, false, MG_I32},
                 {2, true, MG_I32}, {3, true, MG_I32},  {4, false, MG_I64},
                 {4, true, MG_I32}, {5, false, MG_I64}, {8, true, MG_I64}};
    enum { N = sizeof cases / sizeof cases[0] };
    for (int attribute = 0; attribute < 2; attribute++) {
        char name[16];
        size_t n;
        const hid_t file = begin();
        for (int i = 0; i < N; i++) {
            const int64_t value = 100 + i;
            const hid_t type = H5Tcopy(cases[i].is_signed ? H5T_STD_I64LE : H5T_STD_U64LE);
            H5Tset_precision(type, 8 * (size_t)cases[i].bytes);
            H5Tset_size(type, (size_t)cases[i].bytes);
            snprintf(name, sizeof name, "%d", i);
            add(file, attribute, name, type, space_of(0, NULL), &value);
        }
        H5Fclose(file);
        mg_h5_tree *tree = load(&n);
        assert_int_equal(n, N);
        for (int i = 0; i < N; i++) {
            double value;
            const mg_tensor *t = tree->entries[i + 1].tensor;
            assert_int_equal(t->dtype, cases[i].dtype);
            assert_int_equal(mg_tensor_read_double(tree->entries[i + 1].tensor, &value), MG_OK);
            assert_true(value == 100 + i);
        }
        mg_h5_free(tree);
    }
}

/* A dataset of such a type is refused; an attribute is left out. */
static void types_that_tensors_lack_are_refused(void **state) {
    (void)state;
    enum { N = 7 };
    const char no = 0;
    char name[16];
    size_t n;
    for (int i = 0; i <= N; i++) {
        hid_t type[N] = {H5Tcopy(H5T_NATIVE_LDOUBLE), H5Tcreate(H5T_OPAQUE, 3),
                         H5Tcreate(H5T_ENUM, 4),      H5Tcopy(H5T_C_S1),
                         H5Tcreate(H5T_COMPOUND, 8),  H5Tcopy(H5T_STD_REF_OBJ),
                         H5Tvlen_create(H5T_STD_I8LE)};
        const int value = 0;
        H5Tenum_insert(type[2], "A", &value);
        H5Tinsert(type[4], "x", 0, H5T_IEEE_F64LE);
        const hid_t file = begin();
        for (int k = 0; k < N; k++) {
            snprintf(name, sizeof name, "%d", k);
            if (i == N && k != 3) /* text may be an attribute */
                add(file, true, name, type[k], space_of(0, NULL), NULL);
            else if (k == i)
                add(file, false, name, type[k], space_of(0, NULL), k == 3 ? &no : NULL);
            else
                H5Tclose(type[k]);
        }
        if (i < N) {
            refused(file, "has a type that tensors do not have");
            continue;
        }
        H5Fclose(file);
        mg_h5_free(load(&n));
        assert_int_equal(n, 0);
    }
}

static void attributes_have_shapes_like_tensors(void **state) {
    (void)state;
    const hsize_t nine[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    size_t n;
    hid_t file = begin();
    add(file, true, "nine", H5Tcopy(H5T_STD_U8LE), space_of(9, nine), NULL);
    refused(file, "has 9 axes, at most 8 are possible");
    file = begin(); /* without elements */
    add(file, true, "none", H5Tcopy(H5T_IEEE_F32LE), H5Screate(H5S_NULL), NULL);
    H5Fclose(file);
    mg_h5_tree *tree = load(&n);
    assert_int_equal(n, 1);
    assert_int_equal(tree->entries[1].tensor->shape.rank, 1);
    assert_int_equal(tree->entries[1].tensor->shape.dim[0], 0);
    mg_h5_free(tree);
}

/* Chunks may be compressed, but not claimed. */
static void chunks_are_read_if_they_are_there(void **state) {
    (void)state;
    const hsize_t dims[1] = {1 << 20}, chunk[1] = {1 << 16};
    float *values = calloc(dims[0], sizeof *values);
    size_t n;
    for (int written = 0; written < 2; written++) {
        const hid_t file = begin(), creation = H5Pcreate(H5P_DATASET_CREATE);
        const hid_t space = space_of(1, dims);
        H5Pset_chunk(creation, 1, chunk);
        H5Pset_deflate(creation, 9);
        const hid_t set =
            H5Dcreate2(file, "zeros", H5T_IEEE_F32LE, space, H5P_DEFAULT, creation, H5P_DEFAULT);
        if (written)
            assert_true(H5Dwrite(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >=
                        0);
        H5Dclose(set);
        H5Sclose(space);
        H5Pclose(creation);
        if (!written) {
            refused(file, "\"zeros\" claims 4194304 bytes and stores 0");
            continue;
        }
        H5Fclose(file);
        mg_h5_tree *tree = load(&n);
        assert_int_equal(mg_tensor_bytes(tree->entries[1].tensor), 4 << 20);
        mg_h5_free(tree);
        /* the first chunk's bytes are no deflate data */
        FILE *f = fopen(path, "r+b");
        fseek(f, 0, SEEK_END);
        const long size = ftell(f);
        for (long at = 2048; at < size; at++) {
            fseek(f, at, SEEK_SET);
            fputc(0xff, f);
        }
        fclose(f);
        assert_null(mg_h5_load(path));
        assert_int_equal(mg_error_code(), MG_DATA);
    }
    free(values);
}

static void links_out_of_the_file_are_left_out(void **state) {
    (void)state;
    size_t n;
    const hid_t file = begin(), named = H5Tcopy(H5T_STD_I8LE);
    H5Lcreate_external(path, "/", file, "outside", H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_soft("/missing", file, "soft", H5P_DEFAULT, H5P_DEFAULT);
    H5Tcommit2(file, "type", named, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    H5Tclose(named);
    H5Fclose(file);
    mg_h5_free(load(&n));
    assert_int_equal(n, 0);
}

static void a_group_in_itself_is_refused(void **state) {
    (void)state;
    const hid_t file = begin();
    H5Lcreate_hard(file, "/", file, "again", H5P_DEFAULT, H5P_DEFAULT);
    refused(file, "groups nest deeper than 32");
}

static void an_attribute_of_a_longer_name_is_left_out(void **state) {
    (void)state;
    char name[MG_H5_MAX_NAME + 2];
    size_t n;
    memset(name, 'x', sizeof name);
    name[sizeof name - 1] = 0;
    const hid_t file = begin();
    add(file, true, name, H5Tcopy(H5T_STD_U8LE), space_of(0, NULL), "a");
    H5Fclose(file);
    mg_h5_free(load(&n));
    assert_int_equal(n, 0);
}

/* Of fixed and of variable length, where there may be none. */
static void texts_are_read_in_every_form(void **state) {
    (void)state;
    const hsize_t dims[1] = {2};
    const char *const two[2] = {"one", NULL};
    size_t n;
    hid_t file = begin(), type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, H5T_VARIABLE);
    add(file, true, "a", type, space_of(1, dims), two);
    type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, 3);
    H5Tset_strpad(type, H5T_STR_SPACEPAD);
    add(file, true, "b", type, space_of(1, dims), "abcd  ");
    H5Fclose(file);
    mg_h5_tree *tree = load(&n);
    assert_int_equal(n, 2);
    assert_string_equal(tree->entries[1].texts[0], "one");
    assert_string_equal(tree->entries[1].texts[1], "");
    assert_string_equal(tree->entries[2].texts[0], "abc");
    mg_h5_free(tree);
}

/* ---- the program ---- */

/* The exit status of mgpu-h5 with these arguments for a shell. */
static int status_of(const char *arguments) {
    char program[4200], command[4400];
    assert_true(mg_plugin_program("h5", program, sizeof program));
    snprintf(command, sizeof command, "exec %s %s", program, arguments);
    const int status = system(command);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void the_program_ends_with_a_status(void **state) {
    (void)state;
    char arguments[128];
    assert_int_equal(status_of("2>/dev/null"), 2);
    assert_int_equal(status_of("reed 2>/dev/null"), 2);
    assert_int_equal(status_of("read 2>/dev/null </dev/null | cat"), 0); /* the status of cat */
    assert_int_equal(status_of("read >/dev/null </dev/null"), 1);        /* not a regular file */
    assert_int_equal(status_of("read >/dev/null <&-"), 1);
    H5Fclose(begin());
    snprintf(arguments, sizeof arguments, "read >/dev/full <%s", path);
    assert_int_equal(status_of(arguments), 3); /* its output cannot be written */
    snprintf(arguments, sizeof arguments, "read >/dev/null <%s", path);
    assert_int_equal(status_of(arguments), 0);
}

/* ---- writing ---- */

/* Writes the records of a group with an attribute of texts to the file, and to `bytes`. Returns how
 * many bytes they are. */
static size_t make_records(unsigned char bytes[1024]) {
    mg_h5_tree *tree = mg_h5_new();
    assert_non_null(mg_h5_add(tree, "group", NULL, NULL));
    mg_h5_entry *e = mg_h5_add(tree, "group", "names", NULL);
    assert_int_equal(mg_h5_add_text(e, "one", 3), MG_OK);
    assert_int_equal(mg_h5_add_text(e, "three", 5), MG_OK);
    const int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_int_equal(mg_h5_write_records(tree, fd), MG_OK);
    const ssize_t n = pread(fd, bytes, 1024, 0);
    assert_in_range(n, 3 * sizeof(mg_h5_header), 1023);
    close(fd);
    mg_h5_free(tree);
    return (size_t)n;
}

/* Wherever they end, no file comes out that lacks something. */
static void cut_records_make_no_file(void **state) {
    (void)state;
    static const char reason[] = "the records are cut off";
    unsigned char bytes[1024];
    char arguments[160], out[80];
    const size_t n = make_records(bytes);
    snprintf(out, sizeof out, "%s.out", path);
    snprintf(arguments, sizeof arguments, "write >%s <%s", out, path);
    for (size_t cut = n; cut > 0; cut = cut > 11 ? cut - 11 : 0) {
        assert_int_equal(truncate(path, (off_t)cut), 0);
        assert_int_equal(status_of(arguments), cut == n ? 0 : 1);
        FILE *f = fopen(out, "rb");
        const size_t got = fread(bytes, 1, sizeof bytes, f);
        fclose(f);
        if (cut == n) {
            assert_memory_equal(bytes, "\x89HDF", 4);
        } else {
            assert_int_equal(got, sizeof(mg_h5_header) + sizeof reason - 1);
            assert_memory_equal(bytes + sizeof(mg_h5_header), reason, sizeof reason - 1);
        }
    }
    unlink(out);
}

/* Texts are stored with the length of the longest: of these, no memory holds them all. */
static void texts_that_take_too_much_memory_are_an_error(void **state) {
    (void)state;
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
    skip(); /* there malloc ends the program, which gets no options that forbid it */
#endif
    enum { LONG = 4 << 20, N = 1 << 18 };
    char *text = calloc(1, LONG);
    memset(text, 'x', LONG);
    mg_h5_tree *tree = mg_h5_new();
    mg_h5_entry *e = mg_h5_add(tree, "", "names", NULL);
    for (int i = 0; i < N - 1; i++) assert_int_equal(mg_h5_add_text(e, "", 0), MG_OK);
    assert_int_equal(mg_h5_add_text(e, text, LONG), MG_OK);
    assert_int_equal(mg_h5_save(tree, path), MG_INTERNAL);
    assert_non_null(strstr(mg_error_message(), "out of memory: 1099511627776 bytes are needed"));
    mg_h5_free(tree);
    free(text);
}

/* In a process in the sandbox: the number of the first thing that it may do, but should not. */
static int escape(void) {
    const int inherited = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    sandbox_enter(1000);
    if (open("/dev/null", O_RDONLY) >= 0) return 1;
    if (socket(AF_INET, SOCK_STREAM, 0) >= 0) return 2;
    if (fork() >= 0) return 3;
    if (kill(getppid(), 0) == 0) return 4;
    if (unlink(path) == 0) return 5;
    if (execl("/bin/true", "true", (char *)NULL) == 0) return 6;
    void *much = malloc((size_t)8 << 30);
    if (much) return 7;
    char *some = malloc(1 << 20);
    if (!some) return 8;
    const int moved = dup2(inherited, 1);
    return moved >= 0 ? 9 : 0;
}

static void the_sandbox_forbids_everything_else(void **state) {
    (void)state;
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
    skip(); /* there the filter is off: see sandbox.c */
#endif
    int status;
    const pid_t pid = fork();
    if (pid == 0) _exit(escape());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_true(mg_io_exists(path));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_numbers_are_widened),
        cmocka_unit_test(types_that_tensors_lack_are_refused),
        cmocka_unit_test(attributes_have_shapes_like_tensors),
        cmocka_unit_test(chunks_are_read_if_they_are_there),
        cmocka_unit_test(links_out_of_the_file_are_left_out),
        cmocka_unit_test(a_group_in_itself_is_refused),
        cmocka_unit_test(an_attribute_of_a_longer_name_is_left_out),
        cmocka_unit_test(texts_are_read_in_every_form),
        cmocka_unit_test(the_program_ends_with_a_status),
        cmocka_unit_test(cut_records_make_no_file),
        cmocka_unit_test(texts_that_take_too_much_memory_are_an_error),
        cmocka_unit_test(the_sandbox_forbids_everything_else),
    };
    return cmocka_run_group_tests(tests, open_folder, remove_folder);
}
