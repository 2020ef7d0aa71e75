/* Folders of checkpoints (io/checkpoint): which names are checkpoints, paths that are too long, and
 * every call that may fail while they are listed, read and removed. What saving guarantees is in
 * test_checkpoint.c. */
#define _GNU_SOURCE /* pthread_setattr_default_np */
#include "core/alloc.h"
#include "device/buffer.h"
#include "device/device.h"
#include "graph/graph.h"
#include "io/checkpoint.h"
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { KEEP = 3, LONGEST = 4096 };

/* The temporary folder of the tests, in memory where that is possible, since saving syncs; and the
 * folder of the checkpoints in it. */
static char root[64], folder[128];

/* A state of one number. Owned. */
static mg_store *state_of(float value) {
    const mg_shape none = MG_SHAPE();
    mg_tensor *t = mg_tensor_from_host(&value, MG_F32, &none, NULL);
    mg_store *s = mg_store_new();
    assert_non_null(s);
    assert_int_equal(mg_store_add(s, "a", t), MG_OK);
    mg_tensor_release(t);
    return s;
}

/* Makes the folder with the checkpoints 1 to n, and nothing else. */
static void begin(int n) {
    mg_checkpoint_result result;
    if (mg_io_folder_exists(folder)) assert_int_equal(mg_checkpoint_remove_all(folder), MG_OK);
    mg_checkpoint_writer *w = mg_checkpoint_writer_new(folder, KEEP);
    assert_non_null(w);
    for (int i = 1; i <= n; i++) {
        assert_int_equal(mg_checkpoint_writer_start(w, state_of((float)i)), MG_OK);
        assert_true(mg_checkpoint_writer_wait(w, &result));
        assert_int_equal(result.status, MG_OK);
    }
    mg_checkpoint_writer_free(w);
}

/* The numbers in the folder, each followed by a space. */
static const char *list(const char *where) {
    static char text[128];
    size_t n, at = 0;
    int64_t *numbers = mg_checkpoint_list(where, &n);
    assert_non_null(numbers);
    text[0] = 0;
    for (size_t i = 0; i < n; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%lld ", (long long)numbers[i]);
    mg_free(numbers);
    return text;
}

/* ---- names ---- */

static void only_folders_with_the_name_of_one_are_checkpoints(void **state) {
    (void)state;
    static const char *const names[] = {"checkpoint-000007",          "checkpoint-1234567",
                                        "checkpoint-999999999999999", "checkpoint-9999999999999999",
                                        "checkpoint-00009",           "checkpoint-",
                                        "checkpoint-000009x",         "checkpoint-000009.part.part",
                                        "checkpoint--00009",          "Checkpoint-000009",
                                        "acheckpoint-000009"};
    enum { N = sizeof names / sizeof names[0] };
    char path[256];
    begin(2);
    for (int i = 0; i < N; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        assert_int_equal(mkdir(path, 0700), 0);
    }
    snprintf(path, sizeof path, "%s/checkpoint-000008", folder);
    mg_file *f = mg_io_create(path); /* a file is not a checkpoint */
    assert_int_equal(mg_io_commit(f), MG_OK);
    assert_string_equal(list(folder), "999999999999999 1234567 7 2 1 ");
    assert_int_equal(mg_checkpoint_verify(folder, 7), MG_IO); /* it is empty */
    assert_int_equal(mg_checkpoint_clean(folder), MG_OK);
    assert_int_equal(mg_checkpoint_remove_all(folder), MG_OK);
    assert_string_equal(list(folder), "");
    assert_int_equal(mg_io_remove(path), MG_OK);
    for (int i = 3; i < N; i++) { /* the others are still there */
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        assert_int_equal(rmdir(path), 0);
    }
    assert_int_equal(rmdir(folder), 0);
}

/* A new checkpoint takes the number after the newest, with more than six digits if needed. */
static void numbers_may_have_more_digits(void **state) {
    (void)state;
    char path[256];
    mg_checkpoint_result result;
    int64_t latest;
    begin(0);
    snprintf(path, sizeof path, "%s/checkpoint-999999", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    mg_checkpoint_writer *w = mg_checkpoint_writer_new(folder, KEEP);
    assert_int_equal(mg_checkpoint_writer_start(w, state_of(1)), MG_OK);
    assert_true(mg_checkpoint_writer_wait(w, &result));
    mg_checkpoint_writer_free(w);
    assert_int_equal(result.number, 1000000);
    assert_int_equal(mg_checkpoint_verify(folder, 1000000), MG_OK);
    assert_int_equal(mg_checkpoint_latest(folder, &latest), MG_OK);
    assert_int_equal(latest, 1000000);
}

/* ---- long paths ---- */

/* Makes folders in `root` until the path has n bytes; each name has at most 200. */
static void make_deep_folder(char path[LONGEST + 1], size_t n) {
    size_t at = (size_t)snprintf(path, LONGEST, "%s", root);
    while (at < n) {
        size_t part = n - at - 1 > 200 ? 200 : n - at - 1;
        if (n - at - 1 - part == 1) part--; /* a slash needs a name */
        path[at] = '/';
        memset(path + at + 1, 'd', part);
        at += part + 1;
        path[at] = 0;
        assert_int_equal(mkdir(path, 0700), 0);
    }
    assert_int_equal(strlen(path), n);
}

static void remove_deep_folder(char path[LONGEST + 1]) {
    for (; strcmp(path, root) != 0; *strrchr(path, '/') = 0) assert_int_equal(rmdir(path), 0);
}

static void assert_too_long(mg_status status) {
    assert_int_equal(status, MG_USAGE);
    assert_string_equal(mg_error_message(),
                        "the path of the checkpoints is longer than 4096 bytes");
}

/* The folder's path has every length at which one of the paths inside becomes too long: the whole
 * checkpoint is read and removed, or an error says why not. */
static void a_path_that_is_too_long_is_an_error(void **state) {
    (void)state;
    char deep[LONGEST + 1], from[256], to[LONGEST + 64];
    const size_t whole = sizeof "/checkpoint-000001/state.safetensors"; /* with its end */
    for (size_t n = LONGEST - whole - 1; n < LONGEST - 8; n++) {
        const size_t room = LONGEST - 1 - n; /* for the rest of the path */
        int64_t number;
        begin(1);
        make_deep_folder(deep, n);
        snprintf(from, sizeof from, "%s/checkpoint-000001", folder);
        snprintf(to, sizeof to, "%s/checkpoint-000001", deep);
        const bool moved = rename(from, to) == 0;
        assert_int_equal(moved, room >= sizeof "/checkpoint-000001" - 1);
        if (room >= whole - 1) {
            assert_int_equal(mg_checkpoint_verify(deep, 1), MG_OK);
        } else if (moved) {
            assert_too_long(mg_checkpoint_verify(deep, 1));
            assert_null(mg_checkpoint_load(deep, 1));
            assert_too_long(mg_error_code());
        }
        if (room >= sizeof "/latest" - 1)
            assert_int_equal(mg_checkpoint_latest(deep, &number), MG_OK);
        if (moved) assert_string_equal(list(deep), "1 ");
        if (moved && mg_checkpoint_remove(deep, 1) != MG_OK) {
            assert_too_long(mg_error_code());
            if (rename(to, from) == 0) {
                assert_int_equal(mg_checkpoint_verify(folder, 1), MG_OK); /* it is still whole */
            } else {                                                      /* or has lost its name */
                strcat(to, ".part");
                assert_int_equal(rename(to, from), 0);
            }
        }
        remove_deep_folder(deep);
    }
    memset(to, 'd', LONGEST), to[LONGEST] = 0; /* no such folder can be */
    int64_t number;
    assert_too_long(mg_checkpoint_latest(to, &number));
    assert_too_long(mg_checkpoint_remove_all(to));
    assert_too_long(mg_checkpoint_remove(to, 1));
    assert_string_equal(list(to), "");
}

/* ---- failing calls ---- */

/* The calls below, on a folder with checkpoints and with what a killed process has left. */
static mg_status list_them(void) {
    size_t n;
    int64_t *numbers = mg_checkpoint_list(folder, &n);
    if (numbers) assert_int_equal(n, 2);
    mg_free(numbers);
    return numbers ? MG_OK : mg_error_code();
}

static mg_status load_newest(void) {
    mg_store *s = mg_checkpoint_load(folder, 2);
    mg_store_free(s);
    return s ? MG_OK : mg_error_code();
}

static mg_status ask_latest(void) {
    int64_t number = 0;
    const mg_status status = mg_checkpoint_latest(folder, &number);
    if (status == MG_OK && mg_io_exists(folder)) assert_int_equal(number, 2);
    return status;
}

static mg_status open_writer(void) {
    mg_checkpoint_writer *w = mg_checkpoint_writer_new(folder, KEEP);
    mg_checkpoint_writer_free(w);
    return w ? MG_OK : mg_error_code();
}

static mg_status clean(void) {
    return mg_checkpoint_clean(folder);
}

static mg_status remove_newest(void) {
    return mg_checkpoint_remove(folder, 2);
}

static mg_status remove_them_all(void) {
    return mg_checkpoint_remove_all(folder);
}

/* Adds a folder as a process leaves it that was killed while it saved. */
static void add_part(void) {
    char path[256];
    snprintf(path, sizeof path, "%s/checkpoint-000003.part", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    strcat(path, "/state.safetensors");
    mg_file *f = mg_io_create(path);
    assert_int_equal(mg_io_commit(f), MG_OK);
}

/* Whatever fails, each checkpoint that is still listed is complete, no file stays open, and the
 * call can be repeated. */
static void failing_calls_damage_nothing(void **state) {
    (void)state;
    static mg_status (*const calls[])(void) = {
        list_them, load_newest, ask_latest, open_writer, clean, remove_newest, remove_them_all};
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++)
        for (int memory = 0; memory < 2; memory++) {
            bool failed = true;
            for (int64_t n = 1; failed; n++) {
                begin(2), add_part();
                const mg_alloc_stats before = mg_alloc_get_stats();
                if (memory)
                    mg_alloc_fail_after(n);
                else
                    mg_io_fail_after(n, EIO);
                const mg_status status = calls[i]();
                mg_alloc_fail_after(0);
                const mg_alloc_stats after = mg_alloc_get_stats();
                failed =
                    mg_io_fail_stop() || (memory && after.total_calls - before.total_calls >= n);
                if (status != MG_OK) assert_int_equal(status, memory ? MG_OOM : MG_IO);
                if (!failed) assert_int_equal(status, MG_OK);
                assert_int_equal(after.live_blocks, before.live_blocks);
                assert_int_equal(mg_io_open_count(), 0);
                const char *left = list(folder);
                if (i < 5) assert_string_equal(left, "2 1 ");
                if (strstr(left, "2 ")) assert_int_equal(mg_checkpoint_verify(folder, 2), MG_OK);
                if (strstr(left, "1 ")) assert_int_equal(mg_checkpoint_verify(folder, 1), MG_OK);
                if (status == MG_OK) continue;
                assert_int_equal(mg_checkpoint_clean(folder), MG_OK);
                if (i != 5 || strstr(left, "2 ")) assert_int_equal(calls[i](), MG_OK);
            }
        }
}

/* Without a thread the save fails, and the next one has the next number. */
static void a_thread_that_cannot_start_is_an_error(void **state) {
    (void)state;
    pthread_attr_t before, huge;
    mg_checkpoint_result result;
    begin(1);
    mg_checkpoint_writer *w = mg_checkpoint_writer_new(folder, KEEP);
    assert_false(mg_checkpoint_writer_busy(w));
    assert_int_equal(pthread_getattr_default_np(&before), 0);
    pthread_attr_init(&huge);
    pthread_attr_setstacksize(&huge, (size_t)1 << 50); /* more than there are addresses */
    assert_int_equal(pthread_setattr_default_np(&huge), 0);
    const mg_status status = mg_checkpoint_writer_start(w, state_of(2));
    assert_int_equal(pthread_setattr_default_np(&before), 0);
    pthread_attr_destroy(&huge), pthread_attr_destroy(&before);
    assert_int_equal(status, MG_OOM);
    assert_non_null(strstr(mg_error_message(),
                           "cannot start the thread that writes checkpoints: Resource temporarily "
                           "unavailable"));
    assert_false(mg_checkpoint_writer_busy(w));
    assert_false(mg_checkpoint_writer_wait(w, &result));
    assert_int_equal(mg_checkpoint_writer_start(w, state_of(2)), MG_OK);
    assert_true(mg_checkpoint_writer_wait(w, &result));
    assert_int_equal(result.status, MG_OK);
    mg_checkpoint_writer_free(w);
    assert_string_equal(list(folder), "3 1 ");
}

/* A second writer for a folder is refused, even if it names the folder by another path, and damages
 * nothing. */
static void a_folder_has_one_writer(void **state) {
    (void)state;
    char link[160];
    mg_checkpoint_result result;
    begin(1);
    snprintf(link, sizeof link, "%s/link", root);
    assert_int_equal(symlink(folder, link), 0);
    mg_checkpoint_writer *w = mg_checkpoint_writer_new(link, KEEP);
    assert_non_null(w);
    assert_int_equal(mg_checkpoint_writer_start(w, state_of(2)), MG_OK);
    assert_null(mg_checkpoint_writer_new(folder, KEEP));
    assert_int_equal(mg_error_code(), MG_IO);
    assert_non_null(strstr(mg_error_message(), folder));
    assert_true(mg_checkpoint_writer_wait(w, &result));
    assert_int_equal(result.status, MG_OK);
    mg_checkpoint_writer_free(w);
    w = mg_checkpoint_writer_new(folder, KEEP);
    assert_non_null(w);
    mg_checkpoint_writer_free(w);
    assert_string_equal(list(folder), "2 1 ");
    unlink(link);
}

/* Setup of the group: ref:0 as the default device and a temporary folder. */
static int open_ref(void **state) {
    (void)state;
    mg_device *ref = mg_device_find("ref:0");
    if (ref) mg_device_set_default(ref);
    strcpy(root, "/dev/shm/mgpu_test_folder_XXXXXX");
    if (!mkdtemp(root) && !mkdtemp(strcpy(root, "/tmp/mgpu_test_folder_XXXXXX"))) return -1;
    snprintf(folder, sizeof folder, "%s/run", root);
    return ref ? 0 : -1;
}

/* Teardown: fails if a block of memory, a tensor or a file is left. */
static int close_all(void **state) {
    (void)state;
    if (mg_io_folder_exists(folder)) mg_checkpoint_remove_all(folder);
    if (rmdir(root) != 0) return -1;
    mg_devices_close();
    return mg_alloc_get_stats().live_blocks == 0 && mg_tensor_live_count() == 0 ? 0 : -1;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_folders_with_the_name_of_one_are_checkpoints),
        cmocka_unit_test(numbers_may_have_more_digits),
        cmocka_unit_test(a_path_that_is_too_long_is_an_error),
        cmocka_unit_test(failing_calls_damage_nothing),
        cmocka_unit_test(a_thread_that_cannot_start_is_an_error),
        cmocka_unit_test(a_folder_has_one_writer),
    };
    return cmocka_run_group_tests(tests, open_ref, close_all);
}
