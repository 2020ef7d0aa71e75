/* Checkpoints (io/checkpoint): whatever fails, and wherever the process dies, all checkpoints that
 * are there are whole, and the newest is at least the last one that was reported as saved. Every
 * flipped bit is found. */
#include "core/alloc.h"
#include "device/buffer.h"
#include "device/device.h"
#include "graph/graph.h"
#include "io/checkpoint.h"
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

/* More file calls than a save makes. */
enum { CALLS = 100, KEEP = 2 };

/* The temporary folder of the tests, and the folder of the checkpoints in it. */
static char root[] = "/tmp/mgpu_test_checkpoint_XXXXXX";
static char folder[128];

/* A state whose only tensor holds `value`. Owned. */
static mg_store *state_of(double value) {
    const float numbers[3] = {(float)value, 2, 3};
    const mg_shape shape = MG_SHAPE(3);
    mg_tensor *t = mg_tensor_from_host(numbers, MG_F32, &shape, NULL);
    mg_store *s = mg_store_new();
    assert_non_null(t), assert_non_null(s);
    assert_int_equal(mg_store_add(s, "a", t), MG_OK);
    assert_int_equal(mg_store_add_note(s, "fit", "{\"epoch\": 1}"), MG_OK);
    mg_tensor_release(t);
    return s;
}

/* Saves the number as checkpoint of that number. */
static mg_status save(int64_t number, bool *saved) {
    mg_store *s = state_of((double)number);
    const mg_status status = mg_checkpoint_write(folder, number, s, KEEP, saved);
    mg_store_free(s);
    return status;
}

/* The number that the checkpoint holds. */
static int64_t contents_of(int64_t number) {
    double v[3] = {0};
    mg_store *s = mg_checkpoint_load(folder, number);
    if (!s) fail_msg("%s", mg_error_message());
    assert_int_equal(mg_tensor_read_double(mg_store_find(s, "a"), v), MG_OK);
    mg_store_free(s);
    return (int64_t)v[0];
}

/* Asserts that all checkpoints are whole; returns the number of the newest. */
static int64_t newest(void) {
    size_t n;
    int64_t *numbers = mg_checkpoint_list(folder, &n);
    assert_non_null(numbers);
    for (size_t i = 0; i < n; i++) assert_int_equal(contents_of(numbers[i]), numbers[i]);
    const int64_t first = n ? numbers[0] : 0;
    mg_free(numbers);
    return first;
}

/* How many checkpoints there are. */
static size_t count(void) {
    size_t n;
    mg_free(mg_checkpoint_list(folder, &n));
    return n;
}

/* Begins again with one checkpoint, of number 1. */
static void begin(void) {
    bool saved;
    if (mg_io_folder_exists(folder)) assert_int_equal(mg_checkpoint_remove_all(folder), MG_OK);
    assert_int_equal(save(1, &saved), MG_OK);
    assert_true(saved);
}

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

/* Makes the n-th file call of a save fail, for each n, in the way of `arm`. RETURNS the last n at
 * which the save failed. */
static int64_t fail_each_call(void (*arm)(int64_t n, int error), int error) {
    int64_t last = 0;
    for (int64_t n = 1; n < CALLS; n++) {
        bool saved;
        begin();
        const int64_t blocks = mg_alloc_get_stats().live_blocks;
        arm(n, error);
        const mg_status status = save(2, &saved);
        mg_io_fail_after(0, 0);
        if (status != MG_OK) {
            last = n;
            assert_int_equal(status, MG_IO);
            assert_non_null(strstr(mg_error_message(), "cannot "));
        }
        /* The old checkpoint is whole, and so is the new one if it is there. */
        assert_true(newest() == 2 || (newest() == 1 && !saved));
        assert_int_equal(mg_alloc_get_stats().live_blocks, blocks);
        assert_int_equal(mg_io_open_count(), 0);
        /* The next save works, after what is left has been removed. */
        assert_int_equal(mg_checkpoint_clean(folder), MG_OK);
        assert_int_equal(save(3, &saved), MG_OK);
        assert_int_equal(newest(), 3);
    }
    return last;
}

static void failing_calls_leave_whole_checkpoints(void **state) {
    (void)state;
    const int errors[] = {EIO, ENOSPC};
    for (int i = 0; i < 2; i++) {
        const int64_t once = fail_each_call(mg_io_fail_after, errors[i]);
        assert_in_range(once, 10, CALLS - 2); /* all calls of a save were tried */
        assert_int_equal(fail_each_call(mg_io_fail_from, errors[i]), once);
    }
    fail_each_call(mg_io_fail_after, EINTR);
    /* A short write is continued. */
    assert_int_equal(fail_each_call(mg_io_fail_after, MG_IO_SHORT), 0);
    assert_int_equal(fail_each_call(mg_io_fail_from, MG_IO_SHORT), 0);
}

/* Failing allocations of a save. */
static void failing_memory_leaves_whole_checkpoints(void **state) {
    (void)state;
    mg_store *s = state_of(2);
    bool saved = false;
    for (int64_t n = 1; !saved; n++) {
        begin();
        mg_alloc_fail_after(n);
        const mg_status status = mg_checkpoint_write(folder, 2, s, KEEP, &saved);
        mg_alloc_fail_after(0);
        assert_true(status == MG_OK || status == MG_OOM);
        assert_true(newest() == (saved ? 2 : 1));
    }
    mg_store_free(s);
}

/* A child that dies at its n-th file call. It writes the number of each checkpoint that was
 * reported as saved to the pipe. */
static void save_and_die(int out, int64_t n) {
    mg_io_fail_after(n, MG_IO_KILL);
    for (int64_t number = 2; number < 5; number++) {
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
        /* The next process finds a whole checkpoint and can go on. */
        assert_true(newest() >= acknowledged);
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
    assert_in_range(killed, 3 * 10, 3 * CALLS); /* all calls of three saves */
}

/* ---- damage ---- */

/* Reads a file of less than `room` bytes. */
static size_t read_file(const char *path, char *bytes, size_t room) {
    size_t n = 0;
    mg_file *f = mg_io_open(path);
    assert_non_null(f);
    assert_int_equal(mg_io_read(f, bytes, room, &n), MG_OK);
    mg_io_close(f);
    return n;
}

static void write_file(const char *path, const char *bytes, size_t n) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

/* Asserts that the damage is found: in `latest`, or else in the checkpoint. */
static void assert_found(bool of_latest) {
    int64_t number;
    const mg_status status =
        of_latest ? mg_checkpoint_latest(folder, &number) : mg_checkpoint_verify(folder, 1);
    assert_int_equal(status, MG_DATA);
    assert_non_null(strstr(mg_error_message(), "is damaged"));
}

static void every_flipped_bit_is_found(void **state) {
    (void)state;
    static const char *const files[] = {"checkpoint-000001/state.safetensors",
                                        "checkpoint-000001/manifest", "latest"};
    begin();
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

/* Setup of the group: ref:0 as the default device and a temporary folder. */
static int open_ref(void **state) {
    (void)state;
    mg_device *ref = mg_device_find("ref:0");
    if (ref) mg_device_set_default(ref);
    if (!mkdtemp(root)) return -1;
    snprintf(folder, sizeof folder, "%s/run", root);
    return ref ? 0 : -1;
}

/* Teardown: fails if a block of memory or a tensor is left. */
static int close_all(void **state) {
    (void)state;
    if (mg_io_folder_exists(folder)) mg_checkpoint_remove_all(folder);
    rmdir(root);
    mg_devices_close();
    return mg_alloc_get_stats().live_blocks == 0 && mg_tensor_live_count() == 0 ? 0 : -1;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_newest_are_kept_and_named),
        cmocka_unit_test(only_checkpoints_are_removed),
        cmocka_unit_test(failing_calls_leave_whole_checkpoints),
        cmocka_unit_test(failing_memory_leaves_whole_checkpoints),
        cmocka_unit_test(a_killed_process_leaves_whole_checkpoints),
        cmocka_unit_test(every_flipped_bit_is_found),
        cmocka_unit_test(a_missing_file_is_an_error),
        cmocka_unit_test(a_writer_saves_in_order_and_tells_once),
        cmocka_unit_test(a_writer_reports_failures_and_goes_on),
        cmocka_unit_test(a_writer_needs_its_folder),
    };
    return cmocka_run_group_tests(tests, open_ref, close_all);
}
