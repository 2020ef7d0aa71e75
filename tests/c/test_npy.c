/* NumPy's files as stores (io/npy, io/npz): headers that are damaged or of another kind, byte
 * orders and orders of elements, archives, and failing allocations and file calls. Files that NumPy
 * wrote: tests/lua/files/npy_spec.lua. */
#include "core/alloc.h"
#include "device/buffer.h"
#include "device/device.h"
#include "graph/graph.h"
#include "io/store.h"
#include "io/zip.h"
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

/* The temporary folder of the tests, and the file in it that is read or written. */
static char folder[] = "/tmp/mgpu_test_npy_XXXXXX";
static char path[128];

#define DICT(descr, order, shape)                                                                  \
    "{'descr': '" descr "', 'fortran_order': " order ", 'shape': " shape ", }"
#define FLOATS(shape) DICT("<f4", "False", shape)

static void use(const char *name) {
    unlink(path);
    snprintf(path, sizeof path, "%s/%s", folder, name);
}

/* Writes a .npy file to `bytes`: its size. The header's length is `length`, right or wrong. */
static size_t make(unsigned char *bytes, int version, const char *header, size_t length,
                   const void *data, size_t n) {
    const size_t width = version == 1 ? 2 : 4, text = strlen(header);
    memcpy(bytes, "\x93NUMPY", 6);
    bytes[6] = (unsigned char)version, bytes[7] = 0;
    for (size_t i = 0; i < width; i++) bytes[8 + i] = (unsigned char)(length >> 8 * i);
    memcpy(bytes + 8 + width, header, text);
    memcpy(bytes + 8 + width + text, data, n);
    return 8 + width + text + n;
}

static void put_file(const void *bytes, size_t n) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

static void refused_file(mg_status code, const char *part) {
    mg_store *s = mg_store_load(path);
    if (s) fail_msg("read, but should be refused: %s", part);
    if (!strstr(mg_error_message(), part))
        fail_msg("\"%s\" lacks \"%s\"", mg_error_message(), part);
    assert_non_null(strstr(mg_error_message(), path));
    assert_int_equal(mg_error_code(), code);
    assert_int_equal(mg_io_open_count(), 0);
}

/* A file with this header and n zero bytes of elements is refused. */
static void refused(const char *header, size_t n, mg_status code, const char *part) {
    static const unsigned char zeros[64];
    unsigned char bytes[1024];
    put_file(bytes, make(bytes, 1, header, strlen(header), zeros, n));
    refused_file(code, part);
}

/* The numbers of the file's one array, of which there are n. */
static void read_numbers(double *v, int n) {
    mg_store *s = mg_store_load(path);
    if (!s) fail_msg("%s", mg_error_message());
    mg_tensor *t = mg_store_find(s, "arr_0");
    assert_non_null(t);
    assert_int_equal(mg_shape_count(&t->shape), n);
    assert_int_equal(mg_tensor_read_double(t, v), MG_OK);
    mg_store_free(s);
}

/* ---- .npy ---- */

static void damaged_headers_are_refused(void **state) {
    (void)state;
    const char *expected = "descr, fortran_order and shape are expected";
    use("x.npy");
    refused("[]", 4, MG_DATA, "it is not a dictionary");
    refused("", 12, MG_DATA, "it is not a dictionary");
    refused("{", 12, MG_DATA, expected);
    refused("{}", 12, MG_DATA, expected);
    refused("{'descr' '<f4'}", 4, MG_DATA, expected);
    refused("{'descr: ", 4, MG_DATA, expected);
    refused("{'a key that is far too long': 1}", 4, MG_DATA, expected);
    refused("{'key': 1}", 4, MG_DATA, expected);
    refused("{'descr': '<f4', 'descr': '<f4'}", 4, MG_DATA, expected);
    refused("{'descr': '<f4' 'shape': (1,)}", 4, MG_DATA, "a comma is missing");
    refused("{'descr': '<f4', 'shape': (1,)}", 4, MG_DATA, expected);
    refused(FLOATS("(1,)") "x", 4, MG_DATA, expected);
    refused(DICT("<f4", "Maybe", "(1,)"), 4, MG_DATA, expected);
    refused(FLOATS("1"), 4, MG_DATA, expected);
    refused(FLOATS("(-1,)"), 4, MG_DATA, expected);
    refused(FLOATS("(1 1)"), 4, MG_DATA, expected);
    refused(FLOATS("(1234567890123456789,)"), 4, MG_DATA, expected);
    refused(FLOATS("(1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1)"), 4, MG_DATA, expected);
    refused(FLOATS("(1000000000000, 1000000000000)"), 4, MG_DATA,
            "the shape has too many elements");
    refused(FLOATS("(2,)"), 4, MG_DATA, "of shape {2} needs 8 bytes, but has 4");
    refused(DICT("|b1", "False", "(1,)"), 0, MG_DATA, "needs 1 bytes, but has 0");
}

static void other_dtypes_and_versions_are_unsupported(void **state) {
    unsigned char bytes[256];
    (void)state;
    use("x.npy");
    refused(DICT("<c8", "False", "(1,)"), 8, MG_UNSUPPORTED, "has dtype \"<c8\" (complex numbers");
    refused(DICT("", "False", "(1,)"), 8, MG_UNSUPPORTED, "has dtype \"\";");
    refused(DICT("|V2", "False", "(1,)"), 2, MG_UNSUPPORTED, "has dtype \"|V2\" (bfloat16?: save");
    refused("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", 4, MG_UNSUPPORTED,
            "structured");
    for (int version = 0; version <= 4; version += 4) {
        put_file(bytes, make(bytes, version, FLOATS("(1,)"), strlen(FLOATS("(1,)")), "\0\0\0", 4));
        refused_file(MG_UNSUPPORTED, version ? "has version 4.0" : "has version 0.0");
    }
    const size_t n = make(bytes, 1, FLOATS("(1,)"), strlen(FLOATS("(1,)")), "\0\0\0", 4);
    bytes[7] = 1;
    put_file(bytes, n);
    refused_file(MG_UNSUPPORTED, "has version 1.1; 1.0 to 3.0 are known");
}

static void wrong_lengths_are_refused(void **state) {
    unsigned char bytes[256];
    const char *header = FLOATS("(1,)");
    (void)state;
    use("x.npy");
    put_file("\x93NUMPY\1", 7);
    refused_file(MG_DATA, "it is too short");
    put_file("no NumPy file", 13); /* its extension says .npy */
    refused_file(MG_DATA, "it is not a .npy file");
    put_file(bytes, make(bytes, 1, header, 60000, "", 0));
    refused_file(MG_DATA, "its length");
    put_file(bytes, make(bytes, 2, header, 1u << 30, "", 0));
    refused_file(MG_DATA, "its length");
    put_file(bytes, make(bytes, 1, header, strlen(header) + 4, "\0\0\0", 4));
    refused_file(MG_DATA, "it has a zero byte");
    /* Cut off anywhere. */
    const size_t n = make(bytes, 3, header, strlen(header), "\0\0\0", 4);
    for (size_t i = 1; i < n; i++) {
        put_file(bytes, i);
        assert_null(mg_store_load(path));
        assert_int_equal(mg_error_code(), MG_DATA);
    }
}

static void spellings_and_orders_of_elements_are_read(void **state) {
    unsigned char bytes[256];
    double v[6] = {0};
    const int32_t rows[] = {1, 2, 3, 4, 5, 6};
    const char *fortran = "{\"shape\": ( 3L , 2L ), 'fortran_order':True , \"descr\" : '<i4'} \n",
               *big = DICT(">i4", "False", "(1,)"), *scalar = DICT("<i4", "True", "()"),
               *none = DICT("=i4", "False", "(2, 0)");
    (void)state;
    use("x.npy");
    put_file(bytes, make(bytes, 2, fortran, strlen(fortran), rows, sizeof rows));
    read_numbers(v, 6);
    assert_memory_equal(v, ((double[]){1, 4, 2, 5, 3, 6}), sizeof v);
    put_file(bytes, make(bytes, 3, big, strlen(big), "\0\0\1\2", 4));
    read_numbers(v, 1);
    assert_true(v[0] == 258);
    put_file(bytes, make(bytes, 1, scalar, strlen(scalar), rows, 4));
    read_numbers(v, 1);
    assert_true(v[0] == 1);
    put_file(bytes, make(bytes, 1, none, strlen(none), rows, 0));
    read_numbers(v, 0);
}

/* ---- writing ---- */

/* A store with the tensors "b" [2, 3], "a" [2] and "c" []. Owned; NULL: an allocation has failed.
 */
static mg_store *sample(int n_tensors) {
    const float numbers[] = {1, 2, 3, 4, 5, 6};
    const mg_shape shapes[] = {MG_SHAPE(2, 3), MG_SHAPE(2), {.rank = 0}};
    mg_store *s = mg_store_new();
    for (int i = 0; s && i < n_tensors; i++) {
        mg_tensor *t = mg_tensor_from_host(numbers, MG_F32, &shapes[i], NULL);
        const bool added = t && mg_store_add(s, (const char *[]){"b", "a", "c"}[i], t) == MG_OK;
        mg_tensor_release(t);
        if (added) continue;
        mg_store_free(s);
        return NULL;
    }
    return s;
}

static void what_the_formats_cannot_hold_is_refused(void **state) {
    const mg_shape shape = MG_SHAPE(2);
    (void)state;
    for (int zipped = 0; zipped < 2; zipped++) {
        use(zipped ? "x.npz" : "x.npy");
        mg_store *s = sample(1);
        assert_non_null(s);
        assert_int_equal(mg_store_add_note(s, "key", "text"), MG_OK);
        assert_int_equal(mg_store_save(s, path), MG_USAGE);
        assert_non_null(strstr(mg_error_message(), "metadata"));
        mg_store_free(s);
        assert_non_null(s = mg_store_new());
        mg_tensor *t = mg_tensor_from_host("\0\0\0", MG_BF16, &shape, NULL);
        assert_non_null(t);
        assert_int_equal(mg_store_add(s, "half", t), MG_OK);
        mg_tensor_release(t);
        assert_int_equal(mg_store_save(s, path), MG_UNSUPPORTED);
        assert_non_null(
            strstr(mg_error_message(), "NumPy has no bfloat16, the dtype of \"half\": cast it"));
        mg_store_free(s);
        assert_int_not_equal(access(path, F_OK), 0);
    }
    use("x.npy");
    mg_store *s = sample(2);
    assert_int_equal(mg_store_save(s, path), MG_USAGE);
    assert_non_null(strstr(mg_error_message(), "holds one array and no metadata, not 2 arrays"));
    mg_store_free(s);
}

/* Saves and loads; whether both worked. A file that is written is whole. */
static bool round_trip(int n_tensors) {
    mg_store *s = sample(n_tensors);
    bool whole = s && mg_store_save(s, path) == MG_OK;
    mg_store_free(s);
    s = whole ? mg_store_load(path) : NULL;
    whole = s && s->n_tensors == (size_t)n_tensors;
    mg_store_free(s);
    return whole;
}

static void fail_file(int64_t n) {
    mg_io_fail_after(n, EIO);
}

static void survives(int n_tensors, void (*arm)(int64_t n), mg_status code) {
    bool whole = false;
    int64_t n = 1;
    for (; !whole; n++) {
        arm(n);
        whole = round_trip(n_tensors);
        arm(0);
        if (!whole) assert_int_equal(mg_error_code(), code);
        assert_int_equal(mg_io_open_count(), 0);
    }
    assert_true(n > 4);
}

static void every_failing_allocation_and_file_call_is_survived(void **state) {
    (void)state;
    for (int zipped = 0; zipped < 2; zipped++) {
        use(zipped ? "x.npz" : "x.npy");
        survives(zipped ? 3 : 1, mg_alloc_fail_after, MG_OOM);
        survives(zipped ? 3 : 1, fail_file, MG_IO);
    }
}

/* ---- .npz ---- */

static void arrays_of_an_archive_are_sorted_and_read(void **state) {
    double v[6];
    (void)state;
    use("x.npz");
    assert_true(round_trip(3));
    mg_store *s = mg_store_load(path);
    assert_non_null(s);
    assert_string_equal(s->tensors[0].name, "a");
    assert_string_equal(s->tensors[2].name, "c");
    assert_int_equal(mg_tensor_read_double(mg_store_find(s, "b"), v), MG_OK);
    assert_true(v[0] == 1 && v[5] == 6);
    mg_store_free(s);
    assert_true(round_trip(0));
}

/* An archive with one entry. */
static void put_archive(const char *name, const void *bytes, size_t n) {
    mg_zip_writer *w = mg_zip_create(path);
    assert_non_null(w);
    assert_int_equal(mg_zip_add(w, name, (int64_t)n, false), MG_OK);
    assert_int_equal(mg_zip_write(w, bytes, n), MG_OK);
    assert_int_equal(mg_zip_commit(w), MG_OK);
}

static void other_archives_are_refused(void **state) {
    unsigned char bytes[256];
    const char *header = FLOATS("(1,)");
    (void)state;
    use("x.npz");
    put_archive("readme", "text", 4);
    refused_file(MG_DATA, "is not a .npz file: it holds \"readme\", which is not an array");
    put_archive(".npy", "text", 4);
    refused_file(MG_DATA, "it holds \".npy\", which is not an array");
    put_archive("a.npy", "text", 4);
    refused_file(MG_DATA, "array \"a.npy\" is damaged: it is too short");
    put_archive("a.npy", bytes, make(bytes, 1, header, strlen(header), "\0\0", 3));
    refused_file(MG_DATA, "needs 4 bytes, but has 3");
    put_file("no archive", 10);
    refused_file(MG_DATA, "zip");
}

static int make_folder(void **state) {
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state) {
    (void)state;
    unlink(path);
    return rmdir(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damaged_headers_are_refused),
        cmocka_unit_test(other_dtypes_and_versions_are_unsupported),
        cmocka_unit_test(wrong_lengths_are_refused),
        cmocka_unit_test(spellings_and_orders_of_elements_are_read),
        cmocka_unit_test(what_the_formats_cannot_hold_is_refused),
        cmocka_unit_test(every_failing_allocation_and_file_call_is_survived),
        cmocka_unit_test(arrays_of_an_archive_are_sorted_and_read),
        cmocka_unit_test(other_archives_are_refused),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
