/* Reading safetensors files that are large enough for several threads (io/safetensors_data). */
#define _GNU_SOURCE /* pthread_setattr_default_np */
#include "core/alloc.h"
#include "device/buffer.h"
#include "device/device.h"
#include "io/store.h"
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static char path[] = "/tmp/mgpu_test_large_XXXXXX.safetensors";

/* Adds a vector of n elements to the store. */
static void add(mg_store *s, const char *name, mg_dtype dtype, int n, const void *elements) {
    const mg_shape shape = MG_SHAPE(n);
    mg_tensor *t = mg_tensor_from_host(elements, dtype, &shape, NULL);
    assert_non_null(t);
    assert_int_equal(mg_store_add(s, name, t), MG_OK);
    mg_tensor_release(t);
}

/* A store of 20 MB, which is read in pieces, by several threads if there are cores: element i of
 * the tensor "a" is i; "z" follows it. Owned. */
enum { LARGE = 5 << 20 };
static mg_store *large(void) {
    mg_store *s = mg_store_new();
    int32_t *numbers = malloc(LARGE * sizeof *numbers);
    assert_non_null(s);
    assert_non_null(numbers);
    for (int i = 0; i < LARGE; i++) numbers[i] = i;
    add(s, "a", MG_I32, LARGE, numbers);
    free(numbers);
    add(s, "z", MG_F32, 3, (float[]){1, 2, 3});
    return s;
}

/* Whether the store has the tensors of large(). */
static bool is_large(const mg_store *s) {
    const mg_tensor *a = mg_store_find(s, "a"), *z = mg_store_find(s, "z");
    if (!a || !z || a->shape.dim[0] != LARGE) return false;
    const int32_t *numbers = a->buffer->data;
    for (int i = 0; i < LARGE; i++)
        if (numbers[i] != i) return false;
    return memcmp(z->buffer->data, (float[]){1, 2, 3}, 12) == 0;
}

/* Make the n-th file call from now fail, or every one from there on, in whichever thread. */
static void arm_disk(int64_t n) {
    mg_io_fail_after(n, EIO);
}

static void arm_disk_for_good(int64_t n) {
    mg_io_fail_from(n, EIO);
}

/* Loads again and again; in the n-th round `arm` makes the n-th call fail. That gives one error,
 * and leaves no memory and no open file. */
static void loads_or_leaves_nothing(void (*arm)(int64_t n), mg_status code) {
    const int64_t blocks = mg_alloc_get_stats().live_blocks;
    mg_store *s = NULL;
    for (int64_t n = 1; !s; n++) {
        arm(n);
        s = mg_store_load(path);
        arm(0);
        assert_int_equal(mg_io_open_count(), 0);
        if (s) break;
        assert_int_equal(mg_error_code(), code);
        assert_true(*mg_error_message());
        assert_int_equal(mg_alloc_get_stats().live_blocks, blocks);
    }
    assert_true(is_large(s));
    mg_store_free(s);
}

/* Calls that fail, and short reads, which are repeated. */
static void every_call_may_fail(void **state) {
    (void)state;
    mg_store *s = large();
    assert_int_equal(mg_store_save(s, path), MG_OK);
    mg_store_free(s);
    loads_or_leaves_nothing(arm_disk, MG_IO);
    loads_or_leaves_nothing(arm_disk_for_good, MG_IO);
    loads_or_leaves_nothing(mg_alloc_fail_after, MG_OOM);
    for (int64_t n = 1; n < 16; n++) {
        mg_io_fail_after(n, MG_IO_SHORT);
        s = mg_store_load(path);
        mg_io_fail_stop();
        if (!s) fail_msg("%s", mg_error_message());
        assert_true(is_large(s));
        mg_store_free(s);
    }
}

/* Flips a bit of the byte `at` of the file. */
static void flip(long at) {
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    fseek(f, at, SEEK_SET);
    const int byte = fgetc(f);
    fseek(f, at, SEEK_SET);
    fputc(byte ^ 16, f);
    fclose(f);
}

/* A bit in each piece, flipped alone. */
static void a_flipped_bit_is_detected_in_every_piece(void **state) {
    (void)state;
    mg_store *s = large();
    assert_int_equal(mg_store_save(s, path), MG_OK);
    mg_store_free(s);
    for (long at = 4096; at < LARGE * 4L; at += 700001) {
        flip(at);
        assert_null(mg_store_load(path));
        assert_int_equal(mg_error_code(), MG_DATA);
        assert_non_null(strstr(mg_error_message(), "the data is damaged"));
        flip(at);
    }
    s = mg_store_load(path);
    assert_true(s && is_large(s));
    mg_store_free(s);
}

/* Only the tensors that have a NaN or an infinity are marked, wherever it is in them. */
static void values_that_are_not_finite_are_found_in_every_piece(void **state) {
    (void)state;
    float *numbers = calloc(LARGE, sizeof *numbers);
    assert_non_null(numbers);
    for (int at = 0; at < LARGE; at += 1000003) {
        mg_store *s = mg_store_new();
        add(s, "a", MG_F32, 1, (float[]){1});
        numbers[at] = HUGE_VALF;
        add(s, "b", MG_F32, LARGE, numbers);
        numbers[at] = 0;
        add(s, "c", MG_F32, LARGE, numbers);
        assert_int_equal(mg_store_save(s, path), MG_OK);
        mg_store_free(s);
        mg_store_file *f = mg_store_open(path, false);
        assert_non_null(f);
        assert_int_equal(mg_store_read(f), MG_OK);
        for (int i = 0; i < 3; i++) assert_int_equal(f->entries[i].nonfinite, i == 1);
        mg_store_close(f);
    }
    free(numbers);
}

/* Lets no thread start, because its stack would be larger than all addresses, or ends that. */
static void stop_threads(bool stop) {
    static pthread_attr_t before;
    if (!stop) {
        assert_int_equal(pthread_setattr_default_np(&before), 0);
        return;
    }
    pthread_attr_t huge;
    assert_int_equal(pthread_getattr_default_np(&before), 0);
    pthread_attr_init(&huge);
    pthread_attr_setstacksize(&huge, (size_t)1 << 50);
    assert_int_equal(pthread_setattr_default_np(&huge), 0);
    pthread_attr_destroy(&huge);
}

/* The file's bytes. Owned (free). */
static unsigned char *read_file(size_t *n) {
    FILE *f = fopen(path, "rb");
    unsigned char *bytes = malloc(LARGE * 4 + 4096);
    *n = fread(bytes, 1, LARGE * 4 + 4096, f);
    fclose(f);
    return bytes;
}

/* Where threads cannot start, one does the work of all: the same file, the same tensors. */
static void threads_make_no_difference(void **state) {
    (void)state;
    size_t n, m;
    mg_store *s = large();
    assert_int_equal(mg_store_save(s, path), MG_OK);
    unsigned char *with = read_file(&n);
    stop_threads(true);
    assert_int_equal(mg_store_save(s, path), MG_OK);
    mg_store_free(s);
    s = mg_store_load(path);
    stop_threads(false);
    assert_true(s && is_large(s));
    mg_store_free(s);
    unsigned char *without = read_file(&m);
    assert_int_equal(m, n);
    assert_memory_equal(without, with, n);
    free(with), free(without);
}

/* Setup of the group: ref:0 as the default device and a temporary file. */
static int open_ref(void **state) {
    (void)state;
    mg_device *ref = mg_device_find("ref:0");
    const int fd = mkstemps(path, (int)strlen(".safetensors"));
    if (ref) mg_device_set_default(ref);
    return ref && fd >= 0 ? close(fd) : -1;
}

/* Teardown: fails if a block of memory or a tensor is left. */
static int close_all(void **state) {
    (void)state;
    unlink(path);
    mg_devices_close();
    return mg_alloc_get_stats().live_blocks == 0 && mg_tensor_live_count() == 0 ? 0 : -1;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call_may_fail),
        cmocka_unit_test(a_flipped_bit_is_detected_in_every_piece),
        cmocka_unit_test(threads_make_no_difference),
        cmocka_unit_test(values_that_are_not_finite_are_found_in_every_piece),
    };
    return cmocka_run_group_tests(tests, open_ref, close_all);
}
