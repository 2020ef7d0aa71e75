/* HDF5 files that libhdf5 reads without complaint, but that no model contains, and files with
 * damaged objects: mgpu-h5 refuses each with a sentence that names the object. The files are made
 * here with libhdf5; files with random damage are in tests/lua/files/h5_spec.lua. */
#define _GNU_SOURCE      /* memmem */
#define H5_USE_110_API 1 /* H5Oget_info of HDF5 1.10; newer versions give no addresses */
#include "core/io.h"
#include "core/status.h"
#include "device/device.h"
#include "graph/graph.h"
#include "h5_folder.h"
#include "io/h5.h"
#include "io/h5_protocol.h"
#include <hdf5.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* A new file at `path`. */
static hid_t create(void) {
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL); /* failures are asserted, not printed */
    return H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
}

/* Whether the last message begins with the file's name and this text. */
static bool message_is(const char *text) {
    char expected[400];
    snprintf(expected, sizeof expected, "%s: %s", path, text);
    return strncmp(mg_error_message(), expected, strlen(expected)) == 0;
}

/* The file cannot be loaded: MG_DATA, with one of these in the message after the file's name. */
static void refused_as(const char *text, const char *other) {
    mg_h5_tree *tree = mg_h5_load(path);
    if (tree) {
        mg_h5_free(tree);
        fail_msg("it was read, instead of \"%s\"", text);
    }
    assert_int_equal(mg_error_code(), MG_DATA);
    if (!message_is(text) && !message_is(other))
        fail_msg("expected \"%s: %s\", got \"%s\"", path, text, mg_error_message());
}

static void refused(const char *text) {
    refused_as(text, text);
}

/* A file with one dataset "group/values" of this type and shape, which holds nothing yet. */
static void write_dataset(hid_t type, int rank, const hsize_t *dims, hid_t creation) {
    hid_t file = create(), space = H5Screate_simple(rank, dims, NULL);
    hid_t group = H5Gcreate2(file, "group", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    hid_t dataset = H5Dcreate2(group, "values", type, space, H5P_DEFAULT, creation, H5P_DEFAULT);
    assert_true(dataset >= 0);
    H5Dclose(dataset);
    H5Gclose(group);
    H5Sclose(space);
    H5Fclose(file);
}

/* Properties of a dataset that is stored in chunks of `n` elements along each axis. */
static hid_t chunked(int rank, hsize_t n) {
    hsize_t chunk[H5S_MAX_RANK];
    for (int i = 0; i < rank; i++) chunk[i] = n;
    hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
    assert_true(H5Pset_chunk(creation, rank, chunk) >= 0);
    return creation;
}

static void a_dataset_cannot_claim_what_it_does_not_store(void **state) {
    (void)state;
    const hsize_t nine[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    const hsize_t huge[3] = {1LLU << 30, 1LLU << 30, 1LLU << 30};
    hid_t creation = chunked(3, 8);
    write_dataset(H5T_NATIVE_FLOAT, 9, nine, H5P_DEFAULT);
    refused("\"group/values\" has 9 axes, at most 8 are possible");
    write_dataset(H5T_NATIVE_FLOAT, 3, huge, creation);
    refused("\"group/values\" claims too many elements");
    write_dataset(H5T_NATIVE_FLOAT, 3, (hsize_t[3]){1 << 20, 1 << 10, 16}, creation);
    refused("\"group/values\" claims 17179869184 elements of 4 bytes, which is too much for the "
            "file's size");
    write_dataset(H5T_NATIVE_FLOAT, 3, (hsize_t[3]){100, 10, 10}, creation);
    refused("\"group/values\" claims 40000 bytes and stores 0");
    H5Pclose(creation);
}

static void a_dataset_of_another_file_is_not_read(void **state) {
    (void)state;
    hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
    assert_true(H5Pset_external(creation, "another.bin", 0, 40) >= 0);
    write_dataset(H5T_NATIVE_FLOAT, 1, (hsize_t[1]){10}, creation);
    refused("\"group/values\" is stored in another file");
    H5Pclose(creation);
}

static void a_type_without_a_tensor_is_named(void **state) {
    (void)state;
    hid_t pair = H5Tcreate(H5T_COMPOUND, 8), text = H5Tcopy(H5T_C_S1);
    H5Tinsert(pair, "x", 0, H5T_NATIVE_FLOAT);
    H5Tinsert(pair, "y", 4, H5T_NATIVE_FLOAT);
    write_dataset(pair, 1, (hsize_t[1]){2}, H5P_DEFAULT);
    refused("\"group/values\" has a type that tensors do not have");
    write_dataset(text, 1, (hsize_t[1]){2}, H5P_DEFAULT);
    refused("\"group/values\" has a type that tensors do not have");
    H5Tclose(pair);
    H5Tclose(text);
}

/* ---- a filter that mgpu-h5 does not know ---- */

static size_t copy_bytes(unsigned flags, size_t n_values, const unsigned values[], size_t n,
                         size_t *size, void **buffer) {
    (void)flags, (void)n_values, (void)values, (void)size, (void)buffer;
    return n;
}

static void an_unknown_compression_is_named(void **state) {
    (void)state;
    const H5Z_class2_t filter = {.version = H5Z_CLASS_T_VERS,
                                 .id = 300, /* for tests: 256 to 511 are reserved for them */
                                 .encoder_present = 1,
                                 .decoder_present = 1,
                                 .name = "copy",
                                 .filter = copy_bytes};
    const float values[4] = {1, 2, 3, 4};
    assert_true(H5Zregister(&filter) >= 0);
    hid_t creation = chunked(1, 4), file = create();
    assert_true(H5Pset_filter(creation, 300, H5Z_FLAG_MANDATORY, 0, NULL) >= 0);
    hid_t space = H5Screate_simple(1, (hsize_t[1]){4}, NULL);
    hid_t dataset =
        H5Dcreate2(file, "values", H5T_NATIVE_FLOAT, space, H5P_DEFAULT, creation, H5P_DEFAULT);
    assert_true(H5Dwrite(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
    H5Dclose(dataset);
    H5Sclose(space);
    H5Pclose(creation);
    H5Fclose(file);
    refused("\"values\" cannot be read: it is damaged, or compressed in a way this libhdf5 lacks");
}

/* ---- groups ---- */

static void groups_have_limits(void **state) {
    (void)state;
    char name[3000], expected[300];
    hid_t file = create(), group = H5Gopen2(file, "/", H5P_DEFAULT);
    for (int depth = 0; depth < 40; depth++) {
        hid_t inner = H5Gcreate2(group, "g", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
        H5Gclose(group);
        group = inner;
    }
    H5Gclose(group);
    H5Fclose(file);
    refused("groups nest deeper than 32");

    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = 0;
    file = create();
    group = H5Gcreate2(file, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(group >= 0);
    H5Gclose(H5Gcreate2(group, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    H5Gclose(group);
    H5Fclose(file);
    snprintf(expected, sizeof expected, "a name in \"%.200s\" is too long", name);
    refused(expected);
}

/* Adds `n` hard links to `object` to the group. */
static void add_links(hid_t file, const char *group, const char *object, int n) {
    char link[32];
    for (int i = 0; i < n; i++) {
        snprintf(link, sizeof link, "%s/%d", group, i);
        assert_true(H5Lcreate_hard(file, object, file, link, H5P_DEFAULT, H5P_DEFAULT) >= 0);
    }
}

/* Named types make no records, so the limit of the records does not end the walk through them. */
static void links_cannot_multiply_objects(void **state) {
    (void)state;
    hid_t file = create(), type = H5Tcopy(H5T_NATIVE_FLOAT);
    assert_true(H5Tcommit2(file, "type", type, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT) >= 0);
    H5Gclose(H5Gcreate2(file, "a", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    H5Gclose(H5Gcreate2(file, "b", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    add_links(file, "b", "type", 1001);
    add_links(file, "a", "b", 1000);
    H5Tclose(type);
    H5Fclose(file);
    refused("there are more than 1000000 objects");
}

/* ---- damage ---- */

/* A file with a group that has an array, a text and a dataset; returns the address of the group. */
static size_t write_group(void) {
    const float values[3] = {1, 2, 3};
    const char *text = "a text";
    H5O_info_t info;
    hid_t file = create(), line = H5Screate_simple(1, (hsize_t[1]){3}, NULL);
    hid_t one = H5Screate(H5S_SCALAR), string = H5Tcopy(H5T_C_S1);
    H5Tset_size(string, H5T_VARIABLE);
    hid_t group = H5Gcreate2(file, "group", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    hid_t array = H5Acreate2(group, "array", H5T_NATIVE_FLOAT, line, H5P_DEFAULT, H5P_DEFAULT);
    hid_t note = H5Acreate2(group, "note", string, one, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(H5Awrite(array, H5T_NATIVE_FLOAT, values) >= 0);
    assert_true(H5Awrite(note, string, (const void *)&text) >= 0);
    assert_true(H5Oget_info(group, &info) >= 0);
    H5Aclose(note);
    H5Aclose(array);
    H5Gclose(group);
    H5Tclose(string);
    H5Sclose(one);
    H5Sclose(line);
    H5Fclose(file);
    return (size_t)info.addr;
}

/* Where the file has these n bytes, from `from` on. */
static size_t find(const char *bytes, size_t n, size_t from) {
    char file[16384];
    FILE *f = fopen(path, "rb");
    const size_t size = fread(file, 1, sizeof file, f);
    fclose(f);
    assert_true(size < sizeof file);
    const char *found = memmem(file + from, size - from, bytes, n);
    assert_non_null(found);
    return (size_t)(found - file);
}

/* Makes the file's byte at `at` 255. */
static void damage(size_t at) {
    FILE *f = fopen(path, "r+b");
    assert_int_equal(fseek(f, (long)at, SEEK_SET), 0);
    assert_int_equal(fputc(255, f), 255);
    assert_int_equal(fclose(f), 0);
}

/* The error names the damaged part. Headers and messages have the layout of the first version of
 * the format, which H5P_DEFAULT gives. */
static void damage_is_named(void **state) {
    (void)state;
    enum { SIGNATURE = 0, ROOT_HEADER = 96, FIRST_MESSAGE = 16, MESSAGE_BEFORE_NAME = 8 };
    write_group();
    damage(SIGNATURE);
    refused("it is not an HDF5 file, or it is damaged");
    write_group();
    damage(ROOT_HEADER + FIRST_MESSAGE);
    refused("its root group is damaged");
    write_group();
    damage(find("TREE", 4, 0)); /* the list of what the root contains */
    refused("the group \"\" is damaged");
    damage(write_group()); /* the version of its header */
    refused("\"group\" is damaged");
    write_group();
    damage(find("array", 6, 0) - MESSAGE_BEFORE_NAME);
    refused("the attributes of \"group\" are damaged");
    write_group();
    damage(find("array", 6, 0) + 8 + 13); /* behind the padded name: the exponent of a float */
    /* HDF5 1.10 opens this attribute and then fails to read it; 1.14 cannot list it */
    refused_as("the attribute \"array\" of \"group\" cannot be read",
               "the attributes of \"group\" are damaged");
    write_group();
    damage(find("GCOL", 4, 0)); /* the heap of texts */
    refused("\"group\": an attribute cannot be read");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_dataset_cannot_claim_what_it_does_not_store),
        cmocka_unit_test(a_dataset_of_another_file_is_not_read),
        cmocka_unit_test(a_type_without_a_tensor_is_named),
        cmocka_unit_test(an_unknown_compression_is_named),
        cmocka_unit_test(groups_have_limits),
        cmocka_unit_test(links_cannot_multiply_objects),
        cmocka_unit_test(damage_is_named),
    };
    return cmocka_run_group_tests(tests, open_folder, remove_folder);
}
