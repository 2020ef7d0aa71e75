/* Shared by the tests of checkpoints: saves a few numbers, in a temporary folder. */
#ifndef TESTS_C_CHECKPOINTS_H
#define TESTS_C_CHECKPOINTS_H

#include "core/alloc.h"
#include "device/buffer.h"
#include "device/device.h"
#include "graph/graph.h"
#include "io/checkpoint.h"
#include <errno.h>
#include <inttypes.h>
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
#define XXH_INLINE_ALL
#include <xxhash.h>

/* More file calls than a save makes. After save number REUSING, the next one writes over the state
 * of a checkpoint that is no longer needed. */
enum { CALLS = 100, KEEP = 2, REUSING = KEEP + 1 };

/* The temporary folder of the tests, in memory if possible: a disk would take minutes to sync
 * thousands of saves. And the folder of the checkpoints in it. */
static char root[64];
static char folder[128];
/* What the saves of this process have set aside. */
static mg_checkpoint_part spare;

/* A state whose only tensor has n elements, the first of which is `value`. Owned. */
static inline mg_store *state_of_size(double value, int n) {
    float numbers[1000] = {(float)value, 2, 3};
    const mg_shape shape = MG_SHAPE(n);
    mg_tensor *t = mg_tensor_from_host(numbers, MG_F32, &shape, NULL);
    mg_store *s = mg_store_new();
    assert_non_null(t), assert_non_null(s);
    assert_int_equal(mg_store_add(s, "a", t), MG_OK);
    assert_int_equal(mg_store_add_note(s, "fit", "{\"epoch\": 1}"), MG_OK);
    mg_tensor_release(t);
    return s;
}

static inline mg_store *state_of(double value) {
    return state_of_size(value, 3);
}

/* Saves the number as checkpoint of that number, in a state of n elements. */
static inline mg_status save_of_size(int64_t number, int n, bool *saved) {
    mg_store *s = state_of_size((double)number, n);
    const mg_status status = mg_checkpoint_write(folder, number, s, KEEP, &spare, saved);
    mg_store_free(s);
    return status;
}

static inline mg_status save(int64_t number, bool *saved) {
    return save_of_size(number, 3, saved);
}

/* The number that the checkpoint holds. */
static inline int64_t contents_of(int64_t number) {
    double v[1000] = {0};
    mg_store *s = mg_checkpoint_load(folder, number);
    if (!s) fail_msg("%s", mg_error_message());
    assert_int_equal(mg_tensor_read_double(mg_store_find(s, "a"), v), MG_OK);
    mg_store_free(s);
    return (int64_t)v[0];
}

/* Asserts that all checkpoints are whole; returns the number of the newest. */
static inline int64_t newest(void) {
    size_t n;
    int64_t *numbers = mg_checkpoint_list(folder, &n);
    assert_non_null(numbers);
    for (size_t i = 0; i < n; i++) assert_int_equal(contents_of(numbers[i]), numbers[i]);
    const int64_t first = n ? numbers[0] : 0;
    mg_free(numbers);
    return first;
}

/* How many checkpoints there are. */
static inline size_t count(void) {
    size_t n;
    mg_free(mg_checkpoint_list(folder, &n));
    return n;
}

/* Begins again with an empty folder, and saves checkpoints 1 to n. */
static inline void begin_with(int n) {
    bool saved;
    assert_int_equal(mg_checkpoint_drop(folder, &spare), MG_OK);
    if (mg_io_folder_exists(folder)) assert_int_equal(mg_checkpoint_remove_all(folder), MG_OK);
    for (int i = 1; i <= n; i++) {
        assert_int_equal(save(i, &saved), MG_OK);
        assert_true(saved);
    }
}

static inline void begin(void) {
    begin_with(1);
}

/* The path of a file of a checkpoint, whose folder has the ending `suffix`. */
static inline const char *path_of(int64_t number, const char *suffix, const char *file) {
    static char path[256];
    snprintf(path, sizeof path, "%s/checkpoint-%06d%s/%s", folder, (int)number, suffix, file);
    return path;
}

static const char STATE[] = "state.safetensors", PART[] = ".part";

/* Reads a file of less than `room` bytes. */
static inline size_t read_file(const char *path, char *bytes, size_t room) {
    size_t n = 0;
    mg_file *f = mg_io_open(path);
    assert_non_null(f);
    assert_int_equal(mg_io_read(f, bytes, room, &n), MG_OK);
    mg_io_close(f);
    return n;
}

static inline void write_file(const char *path, const char *bytes, size_t n) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

/* Setup of the group: ref:0 as the default device and a temporary folder. */
static inline int open_ref(void **state) {
    (void)state;
    mg_device *ref = mg_device_find("ref:0");
    if (ref) mg_device_set_default(ref);
    snprintf(root, sizeof root, "%s/mgpu_test_checkpoint_XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    if (!mkdtemp(root)) return -1;
    snprintf(folder, sizeof folder, "%s/run", root);
    return ref ? 0 : -1;
}

/* Teardown: fails if a block of memory or a tensor is left. */
static inline int close_all(void **state) {
    (void)state;
    mg_checkpoint_drop(folder, &spare);
    if (mg_io_folder_exists(folder)) mg_checkpoint_remove_all(folder);
    rmdir(root);
    mg_devices_close();
    return mg_alloc_get_stats().live_blocks == 0 && mg_tensor_live_count() == 0 ? 0 : -1;
}

#endif
