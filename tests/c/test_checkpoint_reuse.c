/* A save writes over the state of a checkpoint that is no longer needed (io/checkpoint), unless
 * another process can see that file. */
#include "checkpoints.h"

static uint64_t inode_of(const char *path) {
    mg_io_identity identity;
    assert_int_equal(mg_io_identify(path, &identity), MG_OK);
    return identity.file;
}

/* Whether the system can tell that no other process has a file open; network file systems
 * cannot. */
static bool can_reuse(void) {
    begin();
    mg_file *f = mg_io_reuse(path_of(1, "", STATE));
    mg_io_close(f);
    return f != NULL;
}

static void a_save_writes_over_a_checkpoint_that_is_not_needed(void **state) {
    (void)state;
    bool saved;
    if (!can_reuse()) skip();
    begin();
    const uint64_t file = inode_of(path_of(1, "", STATE));
    for (int i = 2; i <= REUSING; i++) assert_int_equal(save(i, &saved), MG_OK);
    assert_int_equal(inode_of(path_of(1, PART, STATE)), file);
    assert_false(mg_io_exists(path_of(1, PART, "manifest")));
    assert_int_equal(count(), KEEP);
    assert_int_equal(save(REUSING + 1, &saved), MG_OK);
    assert_int_equal(inode_of(path_of(REUSING + 1, "", STATE)), file);
    assert_int_equal(newest(), REUSING + 1);
}

/* The file is cut and extended. */
static void states_of_other_sizes_are_written_over(void **state) {
    (void)state;
    bool saved;
    const int sizes[] = {1000, 3, 2, 900, 1000, 1, 500, 3};
    begin();
    for (int i = 0; i < 8; i++) {
        assert_int_equal(save_of_size(i + 2, sizes[i], &saved), MG_OK);
        assert_int_equal(newest(), i + 2);
        assert_int_equal(mg_checkpoint_verify(folder, i + 2), MG_OK);
    }
}

/* Asserts that the file has these bytes still, after two saves. */
static void assert_untouched_by_saves(mg_file *f, int64_t number) {
    char before[4096], after[4096];
    size_t n, m;
    bool saved;
    assert_int_equal(mg_io_read_at(f, before, sizeof before, 0, &n), MG_OK);
    for (int i = 0; i < 2; i++) assert_int_equal(save(number + i, &saved), MG_OK);
    assert_int_equal(mg_io_read_at(f, after, sizeof after, 0, &m), MG_OK);
    assert_int_equal(n, m);
    assert_memory_equal(before, after, n);
    mg_io_close(f);
    assert_int_equal(newest(), number + 1);
    assert_int_equal(count(), KEEP);
}

static void what_others_read_is_not_written_over(void **state) {
    (void)state;
    /* Opened before the checkpoint is set aside, and after. */
    begin_with(KEEP);
    assert_untouched_by_saves(mg_io_open(path_of(1, "", STATE)), REUSING);
    begin_with(REUSING);
    assert_untouched_by_saves(mg_io_open(path_of(1, PART, STATE)), REUSING + 1);
    /* Mapped, and closed. */
    const void *mapped;
    begin_with(REUSING);
    mg_file *f = mg_io_open(path_of(1, PART, STATE));
    assert_int_equal(mg_io_map(f, 8, &mapped), MG_OK);
    mg_io_close(f);
    bool saved;
    const uint64_t file = inode_of(path_of(1, PART, STATE));
    assert_int_equal(save(REUSING + 1, &saved), MG_OK);
    assert_int_not_equal(inode_of(path_of(REUSING + 1, "", STATE)), file);
    mg_io_unmap(mapped, 8);
}

/* Another name of the state, and links in its place. */
static void links_are_not_written_through(void **state) {
    (void)state;
    char victim[80];
    snprintf(victim, sizeof victim, "%s/victim", root);
    for (int kind = 0; kind < 3; kind++) {
        bool saved;
        begin_with(REUSING);
        write_file(victim, "untouched", 9);
        const char *path = path_of(1, PART, STATE);
        if (kind == 0) assert_int_equal(unlink(victim) || link(path, victim), 0);
        if (kind == 1) assert_int_equal(unlink(path) || symlink(victim, path), 0);
        if (kind == 2) assert_int_equal(unlink(path) || link(victim, path), 0);
        char before[4096], after[4096];
        const size_t n = read_file(victim, before, sizeof before);
        assert_int_equal(save(REUSING + 1, &saved), MG_OK);
        assert_int_equal(newest(), REUSING + 1);
        assert_int_equal(read_file(victim, after, sizeof after), n);
        assert_memory_equal(before, after, n);
        assert_int_equal(mg_io_remove(victim), MG_OK);
        assert_false(mg_io_folder_exists(path_of(1, PART, "")));
    }
}

/* A new writer keeps the part folder of a living writer, and removes it once that writer has
 * ended. */
static void parts_of_living_writers_stay(void **state) {
    (void)state;
    mg_checkpoint_result result;
    bool saved;
    begin_with(REUSING);
    mg_checkpoint_writer *other = mg_checkpoint_writer_new(folder, KEEP);
    assert_true(mg_io_exists(path_of(1, PART, STATE)));
    assert_int_equal(mg_checkpoint_clean(folder), MG_OK);
    assert_true(mg_io_exists(path_of(1, PART, STATE)));
    /* Both save under the same number: one of them fails, and no checkpoint is damaged. */
    assert_int_equal(save(REUSING + 1, &saved), MG_OK);
    assert_int_equal(mg_checkpoint_writer_start(other, state_of(REUSING + 1)), MG_OK);
    assert_true(mg_checkpoint_writer_wait(other, &result));
    assert_int_equal(result.status, MG_IO);
    assert_false(result.saved);
    assert_int_equal(newest(), REUSING + 1);
    assert_int_equal(count(), KEEP);
    mg_checkpoint_writer_free(other);
    /* The process ends without removing its part. */
    mg_io_close(spare.lock);
    spare.lock = NULL;
    assert_int_equal(mg_checkpoint_clean(folder), MG_OK);
    assert_false(mg_io_folder_exists(path_of(2, PART, "")));
}

static void two_processes_do_not_write_one_part(void **state) {
    (void)state;
    bool saved;
    mg_file *lock, *second;
    begin();
    assert_int_equal(mg_io_make_folder(path_of(2, PART, "")), MG_OK);
    assert_int_equal(mg_io_lock_folder(path_of(2, PART, ""), &lock), MG_OK);
    assert_int_equal(mg_io_lock_folder(path_of(2, PART, ""), &second), MG_OK);
    assert_non_null(lock);
    assert_null(second);
    assert_int_equal(save(2, &saved), MG_IO);
    assert_non_null(strstr(mg_error_message(), "another process"));
    assert_true(mg_io_folder_exists(path_of(2, PART, "")));
    mg_io_close(lock);
    assert_int_equal(save(2, &saved), MG_OK);
    assert_int_equal(newest(), 2);
}

/* The folder, and with it the spare checkpoint, is removed between two saves. */
static void a_folder_that_was_removed_is_made_again(void **state) {
    (void)state;
    bool saved;
    begin_with(REUSING);
    mg_io_close(spare.lock);
    spare.lock = NULL;
    assert_int_equal(mg_checkpoint_remove_all(folder), MG_OK);
    assert_int_equal(mg_io_make_folder(folder), MG_OK);
    assert_int_equal(mg_io_lock_folder(folder, &spare.lock), MG_OK);
    assert_int_equal(save(REUSING + 1, &saved), MG_OK);
    assert_null(spare.lock);
    assert_int_equal(newest(), REUSING + 1);
}

/* The spare checkpoint is removed when the writer ends. */
static void a_writer_leaves_no_part(void **state) {
    (void)state;
    begin();
    mg_checkpoint_writer *w = mg_checkpoint_writer_new(folder, KEEP);
    for (int i = 2; i <= REUSING; i++)
        assert_int_equal(mg_checkpoint_writer_start(w, state_of(i)), MG_OK);
    mg_checkpoint_result result;
    assert_true(mg_checkpoint_writer_wait(w, &result));
    assert_true(mg_io_exists(path_of(1, PART, STATE)));
    mg_checkpoint_writer_free(w);
    assert_false(mg_io_folder_exists(path_of(1, PART, "")));
    assert_int_equal(newest(), REUSING);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_save_writes_over_a_checkpoint_that_is_not_needed),
        cmocka_unit_test(states_of_other_sizes_are_written_over),
        cmocka_unit_test(what_others_read_is_not_written_over),
        cmocka_unit_test(links_are_not_written_through),
        cmocka_unit_test(parts_of_living_writers_stay),
        cmocka_unit_test(two_processes_do_not_write_one_part),
        cmocka_unit_test(a_folder_that_was_removed_is_made_again),
        cmocka_unit_test(a_writer_leaves_no_part),
    };
    return cmocka_run_group_tests(tests, open_ref, close_all);
}
