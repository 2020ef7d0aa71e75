/* Checkpoints (io/checkpoint): whatever fails, and wherever the process dies, every checkpoint in
 * the folder is complete, and the newest is the last one that was reported as saved or a later one.
 * Every flipped bit is found. */
#include "checkpoints.h"

/* Numbers, `latest`, and how many stay. */
static void the_newest_are_kept_and_named(void **state) {
    (void)state;
    bool saved;
    int64_t latest;
    begin();
    for (int64_t i = 2; i < 6; i++) assert_int_equal(save(i, &saved), MG_OK);
    assert_int_equal(newest(), 5);
    assert_int_equal(count(), KEEP);
    assert_int_equal(mg_checkpoint_latest(folder, &latest), MG_OK);
    assert_int_equal(latest, 5);
    assert_int_equal(mg_checkpoint_drop(folder, &spare), MG_OK);
    /* Without a folder there is nothing, which is no error. */
    assert_int_equal(mg_checkpoint_remove_all(folder), MG_OK);
    assert_false(mg_io_folder_exists(folder));
    assert_int_equal(count(), 0);
    assert_int_equal(mg_checkpoint_latest(folder, &latest), MG_OK);
    assert_int_equal(latest, -1);
}

/* Other files in the folder stay when the checkpoints are removed. */
static void only_checkpoints_are_removed(void **state) {
    (void)state;
    char path[256];
    begin();
    snprintf(path, sizeof path, "%s/notes.txt", folder);
    mg_file *f = mg_io_create(path);
    assert_int_equal(mg_io_commit(f), MG_OK);
    assert_int_equal(mg_checkpoint_remove_all(folder), MG_OK);
    assert_true(mg_io_exists(path));
    assert_int_equal(mg_io_remove(path), MG_OK);
}

/* ---- failures ---- */

/* The number of memory blocks that the spare checkpoint holds: two for its lock. */
static int64_t held(void) {
    return spare.lock ? 2 : 0;
}

/* Makes the n-th file call of the save after save number `before` fail, for each n, in the way of
 * `arm`. RETURNS the last n at which the save failed. */
static int64_t fail_each_call(int before, void (*arm)(int64_t n, int error), int error) {
    int64_t last = 0;
    bool came = true;
    for (int64_t n = 1; came && n < CALLS; n++) {
        bool saved;
        begin_with(before);
        const int64_t blocks = mg_alloc_get_stats().live_blocks - held();
        arm(n, error);
        const mg_status status = save(before + 1, &saved);
        came = mg_io_fail_stop();
        if (status != MG_OK) {
            last = n;
            assert_int_equal(status, MG_IO);
            assert_non_null(strstr(mg_error_message(), "cannot "));
        }
        /* The old checkpoints are whole, and so is the new one if it is there. */
        assert_true(newest() == before + 1 || (newest() == before && !saved));
        assert_true(count() >= (size_t)(before < KEEP ? before : KEEP));
        assert_int_equal(mg_alloc_get_stats().live_blocks - held(), blocks);
        assert_int_equal(mg_io_open_count(), spare.lock != NULL);
        /* After the leftovers have been removed, the next saves work. */
        assert_int_equal(mg_checkpoint_clean(folder), MG_OK);
        for (int i = 2; i < 4; i++) assert_int_equal(save(before + i, &saved), MG_OK);
        assert_int_equal(newest(), before + 3);
    }
    return last;
}

static void failing_calls_leave_whole_checkpoints(void **state) {
    (void)state;
    const int errors[] = {EIO, ENOSPC}, before[] = {1, REUSING};
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < 2; i++) {
            const int64_t once = fail_each_call(before[k], mg_io_fail_after, errors[i]);
            assert_in_range(once, 10, CALLS - 2); /* all calls of a save were tried */
            const int64_t always = fail_each_call(before[k], mg_io_fail_from, errors[i]);
            assert_int_equal(always, once);
        }
        fail_each_call(before[k], mg_io_fail_after, EINTR);
        /* A short write is continued. */
        assert_int_equal(fail_each_call(before[k], mg_io_fail_after, MG_IO_SHORT), 0);
        assert_int_equal(fail_each_call(before[k], mg_io_fail_from, MG_IO_SHORT), 0);
    }
}

/* Failing allocations of a save. */
static void failing_memory_leaves_whole_checkpoints(void **state) {
    (void)state;
    const int before[] = {1, REUSING};
    for (int k = 0; k < 2; k++) {
        bool saved = false;
        for (int64_t n = 1; !saved; n++) {
            begin_with(before[k]);
            mg_store *s = state_of(before[k] + 1);
            mg_alloc_fail_after(n);
            const mg_status status =
                mg_checkpoint_write(folder, before[k] + 1, s, KEEP, &spare, &saved);
            mg_alloc_fail_after(0);
            mg_store_free(s);
            assert_true(status == MG_OK || status == MG_OOM);
            assert_true(newest() == before[k] + saved);
        }
    }
}

/* A child that dies at its n-th file call. It writes the number of each checkpoint that was
 * reported as saved to the pipe. */
static void save_and_die(int out, int64_t n) {
    mg_io_fail_after(n, MG_IO_KILL);
    for (int64_t number = 2; number < REUSING + 3; number++) {
        bool saved;
        const mg_status status = save(number, &saved);
        if (status != MG_OK || write(out, &number, sizeof number) != sizeof number) _exit(1);
    }
    mg_io_fail_after(0, 0);
    _exit(0);
}

static void a_killed_process_leaves_whole_checkpoints(void **state) {
    (void)state;
    int killed = 0, status = SIGKILL;
    for (int64_t n = 1; WIFSIGNALED(status); n++) {
        int ends[2];
        begin();
        assert_int_equal(pipe(ends), 0);
        const pid_t child = fork();
        if (child == 0) save_and_die(ends[1], n);
        close(ends[1]);
        int64_t number, acknowledged = 1;
        while (read(ends[0], &number, sizeof number) == sizeof number) acknowledged = number;
        close(ends[0]);
        assert_int_equal(waitpid(child, &status, 0), child);
        killed += WIFSIGNALED(status) != 0;
        /* The next process finds whole checkpoints and can go on. */
        assert_true(newest() >= acknowledged);
        assert_true(count() >= (size_t)(acknowledged < KEEP ? acknowledged : KEEP));
        mg_checkpoint_writer *w = mg_checkpoint_writer_new(folder, KEEP);
        mg_checkpoint_result result;
        assert_non_null(w);
        const int64_t before = newest();
        assert_int_equal(mg_checkpoint_writer_start(w, state_of((double)before + 1)), MG_OK);
        assert_true(mg_checkpoint_writer_wait(w, &result));
        assert_int_equal(result.status, MG_OK);
        mg_checkpoint_writer_free(w);
        assert_int_equal(newest(), before + 1);
    }
    assert_int_equal(status, 0);
    assert_in_range(killed, 5 * 10, 5 * CALLS); /* all calls of five saves */
}

/* ---- the first version ---- */

/* Gives checkpoint 1 the manifest of version 1: size and hash of the whole file. */
static void make_version_1(void) {
    char bytes[4096], text[512];
    const size_t n = read_file(path_of(1, "", STATE), bytes, sizeof bytes);
    int m =
        snprintf(text, sizeof text, "mgpulua checkpoint 1\nstate.safetensors %zu %016" PRIx64 "\n",
                 n, (uint64_t)XXH3_64bits(bytes, n));
    m += snprintf(text + m, sizeof text - (size_t)m, "xxh3 %016" PRIx64 "\n",
                  (uint64_t)XXH3_64bits(text, (size_t)m));
    write_file(path_of(1, "", "manifest"), text, (size_t)m);
}

static void checkpoints_of_version_1_are_read(void **state) {
    (void)state;
    begin();
    make_version_1();
    assert_int_equal(mg_checkpoint_verify(folder, 1), MG_OK);
    assert_int_equal(newest(), 1);
}

/* ---- damage ---- */

/* Asserts that the damage is found: in `latest`, or else in the checkpoint. */
static void assert_found(bool of_latest) {
    int64_t number;
    const mg_status status =
        of_latest ? mg_checkpoint_latest(folder, &number) : mg_checkpoint_verify(folder, 1);
    assert_int_equal(status, MG_DATA);
    assert_non_null(strstr(mg_error_message(), "is damaged"));
    if (of_latest) return;
    assert_null(mg_checkpoint_load(folder, 1));
    assert_int_equal(mg_error_code(), MG_DATA);
    assert_non_null(strstr(mg_error_message(), "is damaged"));
}

/* In checkpoint 1, and in `latest`. */
static void flip_every_bit(void) {
    static const char *const files[] = {"checkpoint-000001/state.safetensors",
                                        "checkpoint-000001/manifest", "latest"};
    for (int i = 0; i < 3; i++) {
        char path[256], bytes[2048];
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        const size_t n = read_file(path, bytes, sizeof bytes - 1);
        for (size_t bit = 0; bit < 8 * n; bit++) {
            bytes[bit / 8] ^= (char)(1 << bit % 8);
            write_file(path, bytes, n);
            assert_found(i == 2);
            bytes[bit / 8] ^= (char)(1 << bit % 8);
        }
        /* A byte less, a byte more, nothing at all. */
        write_file(path, bytes, n - 1);
        assert_found(i == 2);
        bytes[n] = '\n';
        write_file(path, bytes, n + 1);
        assert_found(i == 2);
        write_file(path, bytes, 0);
        assert_found(i == 2);
        write_file(path, bytes, n);
    }
    assert_int_equal(newest(), 1);
}

static void every_flipped_bit_is_found(void **state) {
    (void)state;
    begin();
    flip_every_bit();
    make_version_1();
    flip_every_bit();
}

/* A checkpoint with a file missing is an error, not a crash. */
static void a_missing_file_is_an_error(void **state) {
    (void)state;
    static const char *const files[] = {"state.safetensors", "manifest"};
    for (int i = 0; i < 2; i++) {
        char path[256];
        begin();
        snprintf(path, sizeof path, "%s/checkpoint-000001/%s", folder, files[i]);
        assert_int_equal(mg_io_remove(path), MG_OK);
        assert_int_equal(mg_checkpoint_verify(folder, 1), MG_IO);
        assert_null(mg_checkpoint_load(folder, 1));
    }
}

/* ---- the thread ---- */

static void a_writer_saves_in_order_and_tells_once(void **state) {
    (void)state;
    mg_checkpoint_result result;
    begin();
    mg_checkpoint_writer *w = mg_checkpoint_writer_new(folder, KEEP);
    assert_false(mg_checkpoint_writer_wait(w, &result));
    /* The second start waits for the first save. */
    for (int i = 2; i < 4; i++) assert_int_equal(mg_checkpoint_writer_start(w, state_of(i)), MG_OK);
    assert_true(mg_checkpoint_writer_wait(w, &result));
    assert_int_equal(result.number, 3);
    assert_true(result.saved);
    assert_false(mg_checkpoint_writer_busy(w));
    assert_false(mg_checkpoint_writer_wait(w, &result));
    assert_int_equal(newest(), 3);
    mg_checkpoint_writer_free(w);
    mg_checkpoint_writer_free(NULL);
}

static void a_writer_reports_failures_and_goes_on(void **state) {
    (void)state;
    mg_checkpoint_result result;
    begin();
    mg_checkpoint_writer *w = mg_checkpoint_writer_new(folder, KEEP);
    mg_io_fail_after(5, ENOSPC);
    assert_int_equal(mg_checkpoint_writer_start(w, state_of(2)), MG_OK);
    assert_true(mg_checkpoint_writer_wait(w, &result));
    mg_io_fail_after(0, 0);
    assert_int_equal(result.status, MG_IO);
    assert_false(result.saved);
    assert_non_null(strstr(result.message, strerror(ENOSPC)));
    assert_int_equal(newest(), 1);
    assert_int_equal(mg_checkpoint_writer_start(w, state_of(3)), MG_OK);
    mg_checkpoint_writer_free(w); /* waits */
    assert_int_equal(newest(), 3);
}

/* A file that has the folder's name, and a folder that cannot be made. */
static void a_writer_needs_its_folder(void **state) {
    (void)state;
    assert_null(mg_checkpoint_writer_new("/dev/null", KEEP));
    assert_int_equal(mg_error_code(), MG_IO);
    assert_null(mg_checkpoint_writer_new("/proc/no/such", KEEP));
    assert_int_equal(mg_error_code(), MG_IO);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_newest_are_kept_and_named),
        cmocka_unit_test(only_checkpoints_are_removed),
        cmocka_unit_test(failing_calls_leave_whole_checkpoints),
        cmocka_unit_test(failing_memory_leaves_whole_checkpoints),
        cmocka_unit_test(a_killed_process_leaves_whole_checkpoints),
        cmocka_unit_test(checkpoints_of_version_1_are_read),
        cmocka_unit_test(every_flipped_bit_is_found),
        cmocka_unit_test(a_missing_file_is_an_error),
        cmocka_unit_test(a_writer_saves_in_order_and_tells_once),
        cmocka_unit_test(a_writer_reports_failures_and_goes_on),
        cmocka_unit_test(a_writer_needs_its_folder),
    };
    return cmocka_run_group_tests(tests, open_ref, close_all);
}
