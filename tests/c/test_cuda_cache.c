/* The disk cache of the cuda device: only an intact entry for the very key is ever read. */
#include "core/alloc.h"
#include "core/io.h"
#include "device/cuda/codegen/codegen.h"
#include <dirent.h>
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

static const char key[] = "a kernel for sm_90, with\na source";
static const char data[] = "an image\0of a module";

static char folder[64];

/* The path of the only entry in the folder, of which there must be exactly one. */
static const char *only_entry(char *path, size_t room) {
    int n = 0;
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (struct dirent *e = readdir(d); e; e = readdir(d)) {
        if (e->d_name[0] == '.') continue;
        snprintf(path, room, "%s/%s", folder, e->d_name);
        n++;
    }
    closedir(d);
    assert_int_equal(n, 1);
    return path;
}

static size_t load(const char *path, char *bytes, size_t room) {
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    const size_t n = fread(bytes, 1, room, f);
    fclose(f);
    return n;
}

static void store(const char *path, const char *bytes, size_t n) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

static void write_it(void) {
    mg_cuda_cache_write("kernel", key, data, sizeof data);
}

static int is_there(void) {
    size_t n = 0;
    char *got = mg_cuda_cache_read("kernel", key, &n);
    if (!got) return 0;
    assert_int_equal(n, sizeof data);
    assert_memory_equal(got, data, sizeof data);
    mg_free(got);
    return 1;
}

static void a_written_entry_is_read_back(void **state) {
    (void)state;
    char path[512];
    size_t n;
    assert_false(is_there());
    write_it();
    assert_true(is_there());
    assert_null(mg_cuda_cache_read("kernel", "another key", &n));
    assert_null(mg_cuda_cache_read("plan", key, &n));
    assert_non_null(strstr(only_entry(path, sizeof path), "/kernel-"));
    mg_cuda_cache_write("kernel", key, "", 0);
    void *nothing = mg_cuda_cache_read("kernel", key, &n);
    assert_non_null(nothing);
    assert_int_equal(n, 0);
    mg_free(nothing);
}

static void an_entry_cut_off_anywhere_is_replaced(void **state) {
    (void)state;
    char path[512], bytes[512];
    write_it();
    const size_t n = load(only_entry(path, sizeof path), bytes, sizeof bytes);
    assert_in_range(n, sizeof key + sizeof data, sizeof bytes - 1);
    for (size_t cut = 0; cut < n; cut++) {
        store(path, bytes, cut);
        assert_false(is_there());
        write_it();
        assert_true(is_there());
    }
    store(path, bytes, n + 1);
    assert_false(is_there());
}

static void an_entry_with_any_bit_flipped_is_ignored(void **state) {
    (void)state;
    char path[512], bytes[512];
    write_it();
    const size_t n = load(only_entry(path, sizeof path), bytes, sizeof bytes);
    for (size_t bit = 0; bit < 8 * n; bit++) {
        bytes[bit / 8] = (char)(bytes[bit / 8] ^ 1 << bit % 8);
        store(path, bytes, n);
        assert_false(is_there());
        bytes[bit / 8] = (char)(bytes[bit / 8] ^ 1 << bit % 8);
    }
    store(path, bytes, n);
    assert_true(is_there());
}

/* Two keys may have the same hash. This imitates it by an entry under the file name of another key.
 */
static void an_entry_of_another_key_is_ignored(void **state) {
    (void)state;
    char path[512], bytes[512];
    mg_cuda_cache_write("kernel", "another key", data, sizeof data);
    const size_t n = load(only_entry(path, sizeof path), bytes, sizeof bytes);
    unlink(path);
    write_it();
    store(only_entry(path, sizeof path), bytes, n);
    assert_false(is_there());
}

enum { WRITERS = 8, ROUNDS = 40 };

/* A thread that writes blocks of one letter and reads the entry back. Each block that it reads must
 * be one writer's complete block: a single letter, and that writer's length. Returns NULL on
 * success, else any other pointer. */
static void *writer(void *number) {
    static const char which[WRITERS] = "abcdefgh";
    char block[4096];
    memset(block, which[(intptr_t)number], sizeof block);
    for (int i = 0; i < ROUNDS; i++) {
        size_t n = 0;
        mg_cuda_cache_write("kernel", key, block, sizeof block - (size_t)(intptr_t)number * 100);
        char *got = mg_cuda_cache_read("kernel", key, &n);
        int good = got && n > 0 && n == sizeof block - (size_t)(got[0] - 'a') * 100;
        for (size_t k = 1; good && k < n; k++) good = got[k] == got[0];
        mg_free(got);
        if (!good) return "wrong";
    }
    return NULL;
}

static void concurrent_writers_leave_whole_entries(void **state) {
    (void)state;
    pthread_t threads[WRITERS];
    for (intptr_t i = 0; i < WRITERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, writer, (void *)i), 0);
    for (int i = 0; i < WRITERS; i++) {
        void *wrong = "not joined";
        assert_int_equal(pthread_join(threads[i], &wrong), 0);
        assert_null(wrong);
    }
    char path[512];
    only_entry(path, sizeof path); /* and so no temporary file is left */
}

static void a_folder_that_cannot_be_made_means_no_cache(void **state) {
    (void)state;
    char path[512];
    write_it();
    setenv("MGPU_CACHE", only_entry(path, sizeof path),
           1); /* a file stands where the folder should be */
    write_it();
    assert_false(is_there());
    setenv("MGPU_CACHE", "", 1);
    unsetenv("HOME");
    write_it();
    assert_false(is_there());
    assert_string_equal(mg_error_message(), "");
}

static void it_survives_every_failing_call(void **state) {
    (void)state;
    for (int n = 1; n < 12; n++) {
        mg_io_fail_after(n, ENOSPC);
        write_it();
        mg_io_fail_after(0, 0);
        mg_alloc_fail_after(n);
        write_it();
        mg_alloc_fail_after(n);
        is_there();
        mg_alloc_fail_after(0);
        mg_io_fail_after(n, EIO);
        is_there();
        mg_io_fail_after(0, 0);
    }
    write_it();
    assert_true(is_there());
}

static void the_oldest_entries_go_when_there_are_too_many(void **state) {
    (void)state;
    char path[512], block[1000] = "";
    const char *const names[] = {"one", "two", "three", "four"};
    size_t n = 0;
    snprintf(path, sizeof path, "%s/mine-0123456789abcdef", folder);
    store(path, "a file of the user", 18);
    for (int i = 0; i < 4; i++) {
        mg_cuda_cache_write("kernel", names[i], block, sizeof block);
        usleep(20000); /* file times are coarse */
    }
    mg_cuda_cache_trim(2500);
    for (int i = 0; i < 4; i++) {
        void *got = mg_cuda_cache_read("kernel", names[i], &n);
        assert_int_equal(got != NULL, i >= 2);
        mg_free(got);
    }
    mg_cuda_cache_trim(0);
    assert_null(mg_cuda_cache_read("kernel", "four", &n));
    assert_true(mg_io_exists(path));
}

static int new_folder(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/mgpu-test-cache-XXXXXX");
    return mkdtemp(folder) ? setenv("MGPU_CACHE", folder, 1) : -1;
}

static int remove_folder(void **state) {
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", folder);
    if (system(command) != 0) return -1;
    return mg_alloc_get_stats().live_blocks == 0 && mg_io_open_count() == 0 ? 0 : -1;
}

#define IN_NEW_FOLDER(test) cmocka_unit_test_setup_teardown(test, new_folder, remove_folder)

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_NEW_FOLDER(a_written_entry_is_read_back),
        IN_NEW_FOLDER(an_entry_cut_off_anywhere_is_replaced),
        IN_NEW_FOLDER(an_entry_with_any_bit_flipped_is_ignored),
        IN_NEW_FOLDER(an_entry_of_another_key_is_ignored),
        IN_NEW_FOLDER(concurrent_writers_leave_whole_entries),
        IN_NEW_FOLDER(it_survives_every_failing_call),
        IN_NEW_FOLDER(the_oldest_entries_go_when_there_are_too_many),
        IN_NEW_FOLDER(a_folder_that_cannot_be_made_means_no_cache),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
