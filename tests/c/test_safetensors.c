/* safetensors files: round trips, damaged headers, full disks, failing memory. */
#include "core/alloc.h"
#include "device/device.h"
#include "io/store.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static char folder[] = "/tmp/mgpu_test_safetensors_XXXXXX";
static char path[128];

static mg_tensor *vector(mg_dtype dtype, int n, const double *v) {
    unsigned char raw[256];
    const mg_shape shape = MG_SHAPE(n);
    mg_from_double(raw, v, dtype, (size_t)n);
    return mg_tensor_from_host(raw, dtype, &shape, NULL);
}

static void add(mg_store *s, const char *name, mg_tensor *owned) {
    assert_non_null(owned);
    assert_int_equal(mg_store_add(s, name, owned), MG_OK);
    mg_tensor_release(owned);
}

static mg_store *sample(double first) {
    mg_store *s = mg_store_new();
    assert_non_null(s);
    add(s, "a", vector(MG_F32, 3, (double[]){first, 2, 3}));
    add(s, "b/bias", vector(MG_U8, 5, (double[]){1, 2, 3, 4, 255}));
    assert_int_equal(mg_store_add_note(s, "format", "test"), MG_OK);
    return s;
}

static double first_of(const char *name) {
    double v[8] = {0};
    mg_store *s = mg_store_load(path);
    if (!s) fail_msg("%s", mg_error_message());
    assert_non_null(mg_store_find(s, name));
    assert_int_equal(mg_tensor_read_double(mg_store_find(s, name), v), MG_OK);
    mg_store_free(s);
    return v[0];
}

/* A file with this header (its length before it) and n bytes of zeros behind. */
static void write_file(const char *header, size_t length, int n) {
    const unsigned char zeros[64] = {0};
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    for (int i = 0; i < 8; i++) fputc((int)((uint64_t)length >> 8 * i & 255), f);
    fwrite(header, 1, strlen(header), f);
    fwrite(zeros, 1, (size_t)n, f);
    fclose(f);
}

static void refused(const char *header, int n, mg_status code, const char *part) {
    write_file(header, strlen(header), n);
    assert_null(mg_store_load(path));
    if (!strstr(mg_error_message(), part)) fail_msg("%s", mg_error_message());
    assert_non_null(strstr(mg_error_message(), path));
    assert_int_equal(mg_error_code(), code);
}

static void every_dtype_survives(void **state) {
    (void)state;
    mg_store *s = mg_store_new();
    char name[8];
    for (int t = 0; t < MG_N_DTYPES; t++) {
        snprintf(name, sizeof name, "t%d", t);
        add(s, name, vector((mg_dtype)t, 3, (double[]){1, 0, 1}));
    }
    assert_int_equal(mg_store_save(s, path), MG_OK);
    mg_store_free(s);
    s = mg_store_load(path);
    assert_non_null(s);
    assert_int_equal(s->n_tensors, MG_N_DTYPES);
    for (int t = 0; t < MG_N_DTYPES; t++) {
        double v[3];
        snprintf(name, sizeof name, "t%d", t);
        mg_tensor *read = mg_store_find(s, name);
        assert_non_null(read);
        assert_int_equal(read->dtype, t);
        assert_int_equal(mg_tensor_read_double(read, v), MG_OK);
        assert_true(v[0] == 1 && v[1] == 0 && v[2] == 1);
    }
    mg_store_free(s);
}

static void metadata_and_empty_tensors_survive(void **state) {
    (void)state;
    mg_store *s = sample(1);
    const mg_shape empty = MG_SHAPE(0, 7), scalar = MG_SHAPE();
    add(s, "empty", mg_tensor_from_host("", MG_F64, &empty, NULL));
    add(s, "scalar", mg_tensor_from_host(&(double){4}, MG_F64, &scalar, NULL));
    assert_int_equal(mg_store_save(s, path), MG_OK);
    mg_store_free(s);
    s = mg_store_load(path);
    assert_non_null(s);
    assert_int_equal(s->n_notes, 1);
    assert_string_equal(s->notes[0].key, "format");
    assert_string_equal(s->notes[0].text, "test");
    assert_true(mg_shape_equal(&mg_store_find(s, "empty")->shape, &empty));
    assert_true(mg_shape_equal(&mg_store_find(s, "scalar")->shape, &scalar));
    mg_store_free(s);
}

static void the_bytes_are_those_of_the_format(void **state) {
    (void)state;
    mg_store *s = mg_store_new();
    unsigned char bytes[256];
    add(s, "w", vector(MG_I32, 2, (double[]){1, 258}));
    assert_int_equal(mg_store_save(s, path), MG_OK);
    mg_store_free(s);
    FILE *f = fopen(path, "rb");
    const size_t n = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    const char *header = "{\"w\":{\"dtype\":\"I32\",\"shape\":[2],\"data_offsets\":[0,8]}}";
    assert_int_equal(bytes[0] % 8, 0);
    assert_int_equal(n, 8 + (size_t)bytes[0] + 8);
    assert_memory_equal(bytes + 8, header, strlen(header));
    assert_memory_equal(bytes + n - 8, "\1\0\0\0\2\1\0\0", 8);
}

static void damaged_headers_are_refused(void **state) {
    (void)state;
    refused("[]", 0, MG_DATA, "not a JSON object");
    refused("{\"a\":", 0, MG_DATA, "the JSON is damaged");
    refused("{\"a\":1}", 0, MG_DATA, "not an object");
    refused("{\"a\":{}}", 0, MG_DATA, "no dtype");
    refused("{\"a\":{\"dtype\":\"F8\"}}", 0, MG_UNSUPPORTED, "F8");
    refused("{\"a\":{\"dtype\":\"U8\"}}", 0, MG_DATA, "no shape");
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[-1]}}", 0, MG_DATA, "not a size");
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[1.5]}}", 0, MG_DATA, "not a size");
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1]}}", 0, MG_UNSUPPORTED,
            "9 axes");
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[4294967296,4294967296]}}", 0, MG_DATA, "too many");
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, MG_DATA, "data_offsets");
    refused("{\"__metadata__\":{\"a\":1}}", 0, MG_DATA, "not a string");
    refused("{\"__metadata__\":[]}", 0, MG_DATA, "not a map");
    refused("{}", 1, MG_DATA, "belong to no tensor");
}

#define ENTRY(name, n, begin, end)                                                                 \
    "\"" name "\":{\"dtype\":\"U8\",\"shape\":[" #n "],\"data_offsets\":[" #begin "," #end "]}"

static void wrong_places_are_refused(void **state) {
    (void)state;
    refused("{" ENTRY("a", 4, 0, 4) "}", 3, MG_DATA, "truncated");
    refused("{" ENTRY("a", 4, 0, 5) "}", 5, MG_DATA, "takes 4 bytes, not 5");
    refused("{" ENTRY("a", 4, 4, 0) "}", 5, MG_DATA, "lies at bytes 4 to 0");
    refused("{" ENTRY("a", 4, -4, 0) "}", 5, MG_DATA, "lies at bytes -4");
    refused("{" ENTRY("a", 4, 1, 5) "}", 5, MG_DATA, "after a hole");
    refused("{" ENTRY("a", 4, 0, 4) "," ENTRY("b", 4, 2, 6) "}", 6, MG_DATA, "inside another");
    refused("{" ENTRY("a", 4, 0, 4) "," ENTRY("b", 2, 1, 3) "}", 4, MG_DATA, "inside another");
    refused("{" ENTRY("a", 4, 0, 4) "," ENTRY("a", 4, 4, 8) "}", 8, MG_DATA, "duplicate");
    refused("{" ENTRY("a", 4, 0, 4) "}", 8, MG_DATA, "last 4 bytes");
}

static void wrong_lengths_are_refused(void **state) {
    (void)state;
    write_file("{}", 3, 0);
    assert_null(mg_store_load(path));
    assert_non_null(strstr(mg_error_message(), "its header alone needs"));
    write_file("{}", (size_t)1 << 62, 0);
    assert_null(mg_store_load(path));
    assert_non_null(strstr(mg_error_message(), "too long"));
    char *deep = malloc(100001);
    memset(deep, '[', 100000);
    deep[0] = '{', deep[100000] = 0;
    refused(deep, 0, MG_DATA, "nests deeper");
    free(deep);
    for (int n = 0; n < 8; n++) {
        FILE *f = fopen(path, "wb");
        for (int i = 0; i < n; i++) fputc(0, f);
        fclose(f);
        assert_null(mg_store_load(path));
        assert_int_equal(mg_error_code(), MG_DATA);
    }
}

static void a_boolean_is_zero_or_one(void **state) {
    (void)state;
    const char *header = "{\"a\":{\"dtype\":\"BOOL\",\"shape\":[1],\"data_offsets\":[0,1]}}";
    write_file(header, strlen(header), 0);
    FILE *f = fopen(path, "ab");
    fputc(2, f);
    fclose(f);
    assert_null(mg_store_load(path));
    assert_non_null(strstr(mg_error_message(), "not a boolean"));
}

static void names_that_cannot_be_kept_are_refused(void **state) {
    (void)state;
    static const char *const names[] = {"a", "__metadata__", "\xff"};
    for (int i = 0; i < 3; i++) {
        mg_store *s = sample(1);
        add(s, names[i], vector(MG_F32, 1, (double[]){1}));
        assert_int_equal(mg_store_save(s, path), MG_USAGE);
        mg_store_free(s);
    }
    mg_store *s = sample(1);
    assert_int_equal(mg_store_save(s, "/tmp/model.unknown"), MG_USAGE);
    assert_non_null(strstr(mg_error_message(), ".safetensors"));
    mg_store_free(s);
}

static void arm_disk(int64_t n) {
    mg_io_fail_after(n, ENOSPC);
}

/* Whatever fails, the file holds the old values or, once the save reports success, the new ones. */
static void saves_or_leaves_the_old(void (*arm)(int64_t n), mg_status code) {
    mg_store *old = sample(1), *new = sample(100);
    assert_int_equal(mg_store_save(old, path), MG_OK);
    const int64_t blocks = mg_alloc_get_stats().live_blocks;
    char temporary[160];
    snprintf(temporary, sizeof temporary, "%s.tmp.%ld", path, (long)getpid());
    bool done = false;
    for (int64_t n = 1; !done; n++) {
        arm(n);
        const mg_status status = mg_store_save(new, path);
        arm(0);
        done = status == MG_OK;
        if (!done) assert_int_equal(status, code);
        assert_int_equal(mg_alloc_get_stats().live_blocks, blocks);
        assert_int_equal(mg_io_open_count(), 0);
        assert_false(mg_io_exists(temporary));
        assert_true(first_of("a") == (done ? 100 : 1));
    }
    mg_store_free(old), mg_store_free(new);
}

static void a_failed_save_leaves_the_old_file(void **state) {
    (void)state;
    saves_or_leaves_the_old(arm_disk, MG_IO);
    saves_or_leaves_the_old(mg_alloc_fail_after, MG_OOM);
}

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
        assert_int_equal(mg_alloc_get_stats().live_blocks, blocks);
    }
    mg_store_free(s);
}

static void a_failed_load_leaves_nothing(void **state) {
    (void)state;
    mg_store *s = sample(1);
    assert_int_equal(mg_store_save(s, path), MG_OK);
    mg_store_free(s);
    loads_or_leaves_nothing(arm_disk, MG_IO);
    loads_or_leaves_nothing(mg_alloc_fail_after, MG_OOM);
}

static int open_ref(void **state) {
    (void)state;
    mg_device *ref = mg_device_find("ref:0");
    if (ref) mg_device_set_default(ref);
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/t.safetensors", folder);
    return ref ? 0 : -1;
}

static int close_all(void **state) {
    (void)state;
    unlink(path);
    rmdir(folder);
    mg_devices_close();
    return mg_alloc_get_stats().live_blocks == 0 && mg_tensor_live_count() == 0 ? 0 : -1;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_dtype_survives),
        cmocka_unit_test(metadata_and_empty_tensors_survive),
        cmocka_unit_test(the_bytes_are_those_of_the_format),
        cmocka_unit_test(damaged_headers_are_refused),
        cmocka_unit_test(wrong_places_are_refused),
        cmocka_unit_test(wrong_lengths_are_refused),
        cmocka_unit_test(a_boolean_is_zero_or_one),
        cmocka_unit_test(names_that_cannot_be_kept_are_refused),
        cmocka_unit_test(a_failed_save_leaves_the_old_file),
        cmocka_unit_test(a_failed_load_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, open_ref, close_all);
}
