/* HDF5 files: records, failing allocations and file calls, and what mgpu-h5 may not do. The files
 * of other programs are tested in tests/lua/files/h5_spec.lua. */
#define _GNU_SOURCE
#include "core/alloc.h"
#include "core/io.h"
#include "core/plugin.h"
#include "core/status.h"
#include "device/buffer.h"
#include "device/device.h"
#include "graph/graph.h"
#include "io/h5.h"
#include "io/h5_protocol.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/mgpu-h5-XXXXXX";
static char path[64];

/* A group with a dataset and an attribute of each sort. Owned. NULL: an allocation has failed. */
static mg_h5_tree *make_tree(void) {
    const float numbers[] = {1, 2, 3};
    const mg_shape shape = {.rank = 1, .dim = {3}};
    mg_tensor *t = mg_tensor_from_host(numbers, MG_F32, &shape, NULL);
    mg_h5_tree *tree = mg_h5_new();
    bool made = t && tree && mg_h5_add(tree, "", NULL, NULL) && mg_h5_add(tree, "a", NULL, NULL) &&
                mg_h5_add(tree, "a/0", NULL, t) && mg_h5_add(tree, "a", "numbers", t);
    mg_h5_entry *e = made ? mg_h5_add(tree, "a", "names", NULL) : NULL;
    made = e && mg_h5_add_text(e, "x", 1) == MG_OK && mg_h5_add_text(e, "yz", 2) == MG_OK;
    mg_tensor_release(t);
    if (made) return tree;
    mg_h5_free(tree);
    return NULL;
}

/* The tree that make_tree makes. */
static void check_tree(const mg_h5_tree *tree) {
    float numbers[3] = {0};
    assert_int_equal(tree->n, 5);
    assert_string_equal(tree->entries[1].path, "a");
    /* attributes come with their object, sorted */
    assert_string_equal(tree->entries[2].attribute, "names");
    assert_int_equal(tree->entries[2].n_texts, 2);
    assert_string_equal(tree->entries[2].texts[1], "yz");
    assert_string_equal(tree->entries[4].path, "a/0");
    assert_int_equal(mg_tensor_read(tree->entries[4].tensor, numbers), MG_OK);
    assert_true(numbers[0] == 1 && numbers[2] == 3);
}

/* Without libhdf5 there is no mgpu-h5: these tests are skipped. */
static void need_program(void) {
    char program[4200];
    if (!mg_plugin_program("h5", program, sizeof program)) skip();
}

static void a_file_is_written_and_read(void **state) {
    (void)state;
    need_program();
    mg_h5_tree *tree = make_tree();
    assert_int_equal(mg_h5_save(tree, path), MG_OK);
    mg_h5_free(tree);
    tree = mg_h5_load(path);
    assert_non_null(tree);
    check_tree(tree);
    mg_h5_free(tree);
}

/* The old file survives every failing file call, and nothing else is left beside it. */
static void a_failing_file_call_leaves_the_old_file(void **state) {
    (void)state;
    need_program();
    const int errors[] = {ENOSPC, EIO};
    mg_h5_tree *tree = make_tree(), *again;
    assert_int_equal(mg_h5_save(tree, path), MG_OK);
    for (int i = 0; i < 2; i++) {
        mg_status status = MG_IO;
        int64_t n = 1;
        for (; status != MG_OK; n++) {
            mg_io_fail_after(n, errors[i]);
            status = mg_h5_save(tree, path);
            mg_io_fail_after(0, 0);
            assert_true(status == MG_OK || status == MG_IO);
            again = mg_h5_load(path);
            assert_non_null(again);
            check_tree(again);
            mg_h5_free(again);
        }
        assert_true(n > 3);
    }
    for (int64_t n = 1; n < 3; n++) { /* opening, and asking for the size */
        mg_io_fail_after(n, EIO);
        assert_null(mg_h5_load(path));
        assert_int_equal(mg_error_code(), MG_IO);
        mg_io_fail_after(0, 0);
    }
    mg_h5_free(tree);
}

/* Every allocation of saving and loading fails once: MG_OOM, and no memory is lost. */
static void a_failing_allocation_is_an_error(void **state) {
    (void)state;
    need_program();
    mg_h5_tree *tree = NULL;
    for (int64_t n = 1; !tree; n++) {
        mg_alloc_fail_after(n);
        tree = make_tree();
        mg_alloc_fail_after(0);
    }
    mg_status status = MG_OOM;
    for (int64_t n = 1; status != MG_OK; n++) {
        mg_alloc_fail_after(n);
        status = mg_h5_save(tree, path);
        mg_alloc_fail_after(0);
        assert_true(status == MG_OK || status == MG_OOM);
    }
    mg_h5_free(tree);
    tree = NULL;
    for (int64_t n = 1; !tree; n++) {
        mg_alloc_fail_after(n);
        tree = mg_h5_load(path);
        mg_alloc_fail_after(0);
        if (!tree) assert_int_equal(mg_error_code(), MG_OOM);
    }
    check_tree(tree);
    mg_h5_free(tree);
}

/* ---- records ---- */

/* The records of the tree in a block of *n bytes. Owned (free). */
static unsigned char *records_of(const mg_h5_tree *tree, size_t *n) {
    const int fd = memfd_create("records", 0);
    assert_int_equal(mg_h5_write_records(tree, fd), MG_OK);
    *n = (size_t)lseek(fd, 0, SEEK_END);
    unsigned char *bytes = malloc(*n);
    assert_int_equal(pread(fd, bytes, *n, 0), (ssize_t)*n);
    close(fd);
    return bytes;
}

/* Fails with MG_DATA. */
static void refuse_records(const unsigned char *bytes, size_t n) {
    assert_null(mg_h5_parse_records(bytes, n, "x.h5"));
    assert_int_equal(mg_error_code(), MG_DATA);
    assert_non_null(strstr(mg_error_message(), "x.h5: "));
}

static void damaged_records_are_refused(void **state) {
    (void)state;
    size_t n;
    mg_h5_tree *tree = make_tree();
    unsigned char *bytes = records_of(tree, &n);
    mg_h5_free(tree);
    tree = mg_h5_parse_records(bytes, n, "x.h5");
    assert_int_equal(tree->n, 5);
    mg_h5_free(tree);
    for (size_t cut = 0; cut < n; cut++) refuse_records(bytes, cut);
    /* each field of the first dataset's header made huge */
    mg_h5_header h;
    size_t at = 0;
    for (memcpy(&h, bytes, sizeof h); h.kind != MG_H5_DATASET; memcpy(&h, bytes + at, sizeof h))
        at += sizeof h + h.path_length + h.name_length + h.bytes;
    for (size_t field = 0; field < sizeof h; field += 4) {
        const mg_h5_header kept = h;
        if (field == offsetof(mg_h5_header, reserved) || field >= offsetof(mg_h5_header, shape) + 8)
            continue;
        memset(bytes + at + field, 0xff, 4);
        refuse_records(bytes, n);
        memcpy(bytes + at, &kept, sizeof kept);
    }
    free(bytes);
}

static void an_error_record_is_the_error(void **state) {
    (void)state;
    const char text[] = "something is wrong";
    unsigned char bytes[sizeof(mg_h5_header) + sizeof text - 1];
    const mg_h5_header h = {.kind = MG_H5_ERROR, .type = MG_H5_TEXT, .bytes = sizeof text - 1};
    memcpy(bytes, &h, sizeof h);
    memcpy(bytes + sizeof h, text, sizeof text - 1);
    refuse_records(bytes, sizeof bytes);
    assert_string_equal(mg_error_message(), "x.h5: something is wrong");
}

static int open_folder(void **state) {
    (void)state;
    mg_device_set_default(mg_device_find("ref:0"));
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/a.h5", folder);
    return 0;
}

static int remove_folder(void **state) {
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "test \"$(ls %s | wc -l)\" -le 1 && rm -r %s", folder,
             folder);
    if (system(command) != 0) return -1;
    return mg_io_open_count() == 0 && mg_tensor_live_count() == 0 ? 0 : -1;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_is_written_and_read),
        cmocka_unit_test(a_failing_file_call_leaves_the_old_file),
        cmocka_unit_test(a_failing_allocation_is_an_error),
        cmocka_unit_test(damaged_records_are_refused),
        cmocka_unit_test(an_error_record_is_the_error),
    };
    return cmocka_run_group_tests(tests, open_folder, remove_folder);
}
