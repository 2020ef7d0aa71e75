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
#include "h5_folder.h"
#include "io/h5.h"
#include "io/h5_protocol.h"
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

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

/* Limits of this process on what it opens and writes. */
static void set_limit(__rlimit_resource_t what, rlim_t n) {
    struct rlimit limit;
    assert_int_equal(getrlimit(what, &limit), 0);
    limit.rlim_cur = n;
    assert_int_equal(setrlimit(what, &limit), 0);
}

/* Whichever file in memory cannot be made, and wherever one is full: MG_OOM. */
static void no_room_for_files_in_memory_is_an_error(void **state) {
    (void)state;
    need_program();
    struct rlimit open_files, bytes;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &open_files), 0);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &bytes), 0);
    mg_h5_tree *tree = make_tree(), *again = NULL;
    const int first = memfd_create("first", 0); /* the descriptors from here on are free */
    close(first);
    mg_status status = MG_OOM;
    for (rlim_t n = (rlim_t)first; status != MG_OK; n++) {
        set_limit(RLIMIT_NOFILE, n);
        status = mg_h5_save(tree, path);
        set_limit(RLIMIT_NOFILE, open_files.rlim_cur);
        assert_true(status == MG_OK || status == MG_OOM || status == MG_IO);
    }
    for (rlim_t n = (rlim_t)first; !again; n++) {
        set_limit(RLIMIT_NOFILE, n);
        again = mg_h5_load(path);
        set_limit(RLIMIT_NOFILE, open_files.rlim_cur);
        if (!again) assert_true(mg_error_code() == MG_OOM || mg_error_code() == MG_IO);
    }
    check_tree(again);
    mg_h5_free(again);
    const int fd = memfd_create("records", 0);
    status = MG_OOM;
    int64_t n = 0;
    for (; status != MG_OK; n++) {
        assert_int_equal(ftruncate(fd, 0), 0);
        lseek(fd, 0, SEEK_SET);
        set_limit(RLIMIT_FSIZE, (rlim_t)n);
        status = mg_h5_write_records(tree, fd);
        set_limit(RLIMIT_FSIZE, bytes.rlim_cur);
        if (status == MG_OK) break;
        assert_int_equal(status, MG_IO);
        assert_non_null(strstr(mg_error_message(),
                               "no room for the contents of an HDF5 file in memory: File too large "
                               "(limited to "));
    }
    assert_int_equal(n, lseek(fd, 0, SEEK_END));
    close(fd);
    mg_h5_free(tree);
}

/* A host program may ignore its children; the loader may need its path. */
static void the_host_s_settings_do_not_matter(void **state) {
    (void)state;
    need_program();
    mg_h5_tree *tree = make_tree();
    assert_int_equal(mg_h5_save(tree, path), MG_OK);
    mg_h5_free(tree);
    signal(SIGCHLD, SIG_IGN);
    setenv("LD_LIBRARY_PATH", "/nowhere", 1);
    tree = mg_h5_load(path);
    signal(SIGCHLD, SIG_DFL);
    unsetenv("LD_LIBRARY_PATH");
    assert_non_null(tree);
    check_tree(tree);
    mg_h5_free(tree);
}

/* Puts the file at `path` into an archive beside it, as entry "a", with a byte of it changed where
 * `damaged`. */
static void archive_file(const char *archive, bool damaged) {
    static unsigned char bytes[1 << 16];
    FILE *f = fopen(path, "rb");
    const size_t n = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    mg_zip_writer *w = mg_zip_create(archive);
    assert_non_null(w);
    assert_int_equal(mg_zip_add(w, "a", (int64_t)n, false), MG_OK);
    assert_int_equal(mg_zip_write(w, bytes, n), MG_OK);
    assert_int_equal(mg_zip_commit(w), MG_OK);
    if (!damaged) return;
    f = fopen(archive, "r+b");
    fseek(f, 200, SEEK_SET);
    const int byte = fgetc(f);
    fseek(f, 200, SEEK_SET);
    fputc(byte ^ 1, f);
    fclose(f);
}

/* Reads the archive's file. NULL: it failed. */
static mg_h5_tree *load_archived(const char *archive) {
    mg_zip *zip = mg_zip_open(archive);
    const mg_zip_entry *entry = zip ? mg_zip_find(zip, "a") : NULL;
    mg_h5_tree *tree = entry ? mg_h5_load_zipped(zip, entry, "a.h5") : NULL;
    mg_zip_close(zip);
    return tree;
}

static void an_archived_file_is_read_or_refused(void **state) {
    (void)state;
    need_program();
    char archive[80];
    mg_h5_tree *tree = make_tree();
    assert_int_equal(mg_h5_save(tree, path), MG_OK);
    mg_h5_free(tree);
    snprintf(archive, sizeof archive, "%s.zip", path);
    archive_file(archive, false);
    for (int memory = 0; memory < 2; memory++) {
        tree = NULL;
        for (int64_t n = 1; !tree; n++) {
            if (memory)
                mg_alloc_fail_after(n);
            else
                mg_io_fail_after(n, EIO);
            tree = load_archived(archive);
            mg_alloc_fail_after(0);
            mg_io_fail_stop();
            if (!tree) assert_int_equal(mg_error_code(), memory ? MG_OOM : MG_IO);
        }
        check_tree(tree);
        mg_h5_free(tree);
    }
    struct rlimit bytes, files; /* no file in memory for it, or none that holds it */
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &bytes), 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    set_limit(RLIMIT_FSIZE, 10);
    assert_null(load_archived(archive));
    set_limit(RLIMIT_FSIZE, bytes.rlim_cur);
    assert_int_equal(mg_error_code(), MG_IO);
    assert_string_equal(mg_error_message(),
                        "a.h5: no room for the contents of an HDF5 file in memory: File too large "
                        "(limited to 10 bytes in a file: raise it with ulimit -f)");
    mg_zip *zip = mg_zip_open(archive);
    const mg_zip_entry *entry = mg_zip_find(zip, "a");
    set_limit(RLIMIT_NOFILE, 3);
    assert_null(mg_h5_load_zipped(zip, entry, "a.h5"));
    set_limit(RLIMIT_NOFILE, files.rlim_cur);
    assert_int_equal(mg_error_code(), MG_OOM);
    mg_zip_close(zip);
    archive_file(archive, true);
    assert_null(load_archived(archive));
    assert_int_equal(mg_error_code(), MG_DATA);
    unlink(archive);
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
        if (field >= offsetof(mg_h5_header, shape) + 8) continue;
        memset(bytes + at + field, 0xff, 4);
        refuse_records(bytes, n);
        memcpy(bytes + at, &kept, sizeof kept);
    }
    free(bytes);
}

/* A record and the end after it; without the end where `ended` is false. */
static mg_h5_tree *parse_record(mg_h5_header h, const char *path_and_name, const void *payload,
                                bool ended) {
    unsigned char bytes[512];
    const mg_h5_header end = {.kind = MG_H5_END};
    size_t n = sizeof h;
    memcpy(bytes, &h, n);
    memcpy(bytes + n, path_and_name, h.path_length + h.name_length);
    n += h.path_length + h.name_length;
    memcpy(bytes + n, payload, h.bytes);
    n += h.bytes;
    if (ended) memcpy(bytes + n, &end, sizeof end);
    return mg_h5_parse_records(bytes, n + (ended ? sizeof end : 0), "x.h5");
}

/* Whole records that mgpu-h5 would not write. */
static void records_that_lie_are_refused(void **state) {
    (void)state;
    static const struct {
        mg_h5_header h;
        const char *names, *payload;
    } cases[] = {
        {{.kind = 9}, "", ""},
        {{.kind = MG_H5_GROUP, .path_length = 3}, "a\0b", ""},
        {{.kind = MG_H5_ATTRIBUTE, .type = MG_H5_U8, .name_length = 3, .bytes = 1}, "a\0b", "x"},
        {{.kind = MG_H5_DATASET, .type = MG_H5_TEXT, .path_length = 1}, "a", ""},
        {{.kind = MG_H5_DATASET, .type = MG_H5_BOOL, .path_length = 1, .bytes = 1}, "a", "\2"},
        {{.kind = MG_H5_DATASET, .type = MG_H5_F32, .path_length = 1, .bytes = 3}, "a", "abc"},
        {{.kind = MG_H5_DATASET, .rank = 1, .path_length = 1, .shape = {UINT64_MAX}}, "a", ""},
        {{.kind = MG_H5_DATASET, .rank = 2, .path_length = 1, .shape = {1ull << 62, 4}}, "a", ""},
        {{.kind = MG_H5_ATTRIBUTE, .type = MG_H5_TEXT, .name_length = 1, .bytes = 3}, "a", "\0\0"},
        {{.kind = MG_H5_ATTRIBUTE, .type = MG_H5_TEXT, .name_length = 1, .bytes = 5},
         "a",
         "\2\0\0\0x"},
        {{.kind = MG_H5_ATTRIBUTE, .type = MG_H5_TEXT, .name_length = 1}, "a", ""},
        {{.kind = MG_H5_ATTRIBUTE, .type = MG_H5_TEXT, .name_length = 1, .bytes = 10},
         "a",
         "\1\0\0\0x\1\0\0\0y"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_null(parse_record(cases[i].h, cases[i].names, cases[i].payload, true));
        assert_int_equal(mg_error_code(), MG_DATA);
        assert_non_null(strstr(mg_error_message(), "x.h5"));
    }
    const mg_h5_header good = {
        .kind = MG_H5_DATASET, .type = MG_H5_BOOL, .path_length = 1, .bytes = 1};
    assert_null(parse_record(good, "a", "\1", false)); /* no end */
    mg_h5_tree *tree = parse_record(good, "a", "\1", true);
    assert_non_null(tree);
    mg_h5_free(tree);
}

/* A tree may have many entries, but none with a name that HDF5 cannot hold. */
static void trees_grow_and_names_have_a_limit(void **state) {
    (void)state;
    char name[MG_H5_MAX_NAME + 2];
    memset(name, 'x', sizeof name);
    name[sizeof name - 1] = 0;
    mg_h5_tree *tree = mg_h5_new();
    for (int i = 0; i < 100; i++) assert_non_null(mg_h5_add(tree, "a", NULL, NULL));
    assert_null(mg_h5_add(tree, name, NULL, NULL));
    assert_int_equal(mg_error_code(), MG_USAGE);
    assert_null(mg_h5_add(tree, "a", name, NULL));
    assert_int_equal(mg_error_code(), MG_USAGE);
    assert_int_equal(tree->n, 100);
    for (int64_t n = 1; n < 3; n++) { /* the copies of the path and of the name */
        mg_alloc_fail_after(n);
        assert_null(mg_h5_add(tree, "a", "b", NULL));
        mg_alloc_fail_after(0);
    }
    mg_h5_free(tree);
    mg_h5_free(NULL);
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
    unsigned char *large = calloc(1, sizeof h + 5000); /* of a long one, the beginning */
    memcpy(large, &(mg_h5_header){.kind = MG_H5_ERROR, .bytes = 5000}, sizeof h);
    memset(large + sizeof h, 'e', 5000);
    refuse_records(large, sizeof h + 5000);
    assert_in_range(strlen(mg_error_message()), 100, 1010);
    free(large);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_is_written_and_read),
        cmocka_unit_test(a_failing_file_call_leaves_the_old_file),
        cmocka_unit_test(a_failing_allocation_is_an_error),
        cmocka_unit_test(no_room_for_files_in_memory_is_an_error),
        cmocka_unit_test(the_host_s_settings_do_not_matter),
        cmocka_unit_test(an_archived_file_is_read_or_refused),
        cmocka_unit_test(damaged_records_are_refused),
        cmocka_unit_test(records_that_lie_are_refused),
        cmocka_unit_test(trees_grow_and_names_have_a_limit),
        cmocka_unit_test(an_error_record_is_the_error),
    };
    return cmocka_run_group_tests(tests, open_folder, remove_folder);
}
