/* The safetensors format (io/safetensors, io/store): round trips, damaged headers, a full disk, and
 * failing memory. A header is untrusted, so everything in it is checked before memory is
 * allocated. */
#include "core/alloc.h"
#include "device/buffer.h"
#include "device/device.h"
#include "graph/graph.h"
#include "io/hash.h"
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

/* The temporary folder of the tests, and the one file in it. */
static char folder[] = "/tmp/mgpu_test_safetensors_XXXXXX";
static char path[128];

/* A vector of n numbers in the dtype, of at most 256 bytes. Owned. */
static mg_tensor *vector(mg_dtype dtype, int n, const double *v) {
    unsigned char raw[256];
    const mg_shape shape = MG_SHAPE(n);
    mg_from_double(raw, v, dtype, (size_t)n);
    return mg_tensor_from_host(raw, dtype, &shape, NULL);
}

/* Adds a tensor to the store and releases it. */
static void add(mg_store *s, const char *name, mg_tensor *owned) {
    assert_non_null(owned);
    assert_int_equal(mg_store_add(s, name, owned), MG_OK);
    mg_tensor_release(owned);
}

/* A store with two tensors and a note; `first` is the first number of the tensor "a". Owned. */
static mg_store *sample(double first) {
    mg_store *s = mg_store_new();
    assert_non_null(s);
    add(s, "a", vector(MG_F32, 3, (double[]){first, 2, 3}));
    add(s, "b/bias", vector(MG_U8, 5, (double[]){1, 2, 3, 4, 255}));
    assert_int_equal(mg_store_add_note(s, "format", "test"), MG_OK);
    return s;
}

/* Loads the file; returns the first number of the tensor `name`. */
static double first_of(const char *name) {
    double v[8] = {0};
    mg_store *s = mg_store_load(path);
    if (!s) fail_msg("%s", mg_error_message());
    assert_non_null(mg_store_find(s, name));
    assert_int_equal(mg_tensor_read_double(mg_store_find(s, name), v), MG_OK);
    mg_store_free(s);
    return v[0];
}

/* Writes a file by hand: the header's length, which may be a lie, the header, and n zeros as data.
 */
static void write_file(const char *header, size_t length, int n) {
    const unsigned char zeros[64] = {0};
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    /* The length as 64 bits, little-endian. */
    for (int i = 0; i < 8; i++) fputc((int)((uint64_t)length >> 8 * i & 255), f);
    fwrite(header, 1, strlen(header), f);
    fwrite(zeros, 1, (size_t)n, f);
    fclose(f);
}

/* Asserts that a file with this header and n bytes of data is refused with the code and a message
 * that names the file and contains `part`. */
static void refused(const char *header, int n, mg_status code, const char *part) {
    write_file(header, strlen(header), n);
    assert_null(mg_store_load(path));
    if (!strstr(mg_error_message(), part)) fail_msg("%s", mg_error_message());
    assert_non_null(strstr(mg_error_message(), path));
    assert_int_equal(mg_error_code(), code);
}

/* Every dtype is written and read back with its values. */
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
    /* Loaded, each tensor has its dtype and values: 1 and 0 exist in every dtype. */
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

/* Notes are kept as __metadata__; tensors without elements or axes keep their shapes. */
static void metadata_and_empty_tensors_survive(void **state) {
    (void)state;
    mg_store *s = sample(1);
    /* A size of 0, and no axes. */
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

/* The file has the layout of the specification: 8 bytes of header length, a header padded to 8
 * bytes, little-endian data. Other programs can read it. */
static void the_bytes_are_those_of_the_format(void **state) {
    (void)state;
    /* Two int32 numbers, 1 and 258 = 0x102, whose bytes are easy to recognise. */
    mg_store *s = mg_store_new();
    unsigned char bytes[512];
    add(s, "w", vector(MG_I32, 2, (double[]){1, 258}));
    assert_int_equal(mg_store_save(s, path), MG_OK);
    mg_store_free(s);
    FILE *f = fopen(path, "rb");
    const size_t n = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    /* The expected header, before its padding with spaces; the hashes were computed with Python's
     * xxhash. */
    const char *header = "{\"__metadata__\":{\"mgpulua.checksum\":\"xxh3-64:"
                         "eb6287e35afb7b39:7a4f0e581b43f10d\"},"
                         "\"w\":{\"dtype\":\"I32\",\"shape\":[2],\"data_offsets\":[0,8]}}";
    assert_int_equal(bytes[0] % 8, 0);
    /* Header length, header and two numbers of four bytes. */
    assert_int_equal(n, 8 + (size_t)bytes[0] + 8);
    assert_memory_equal(bytes + 8, header, strlen(header));
    assert_memory_equal(bytes + n - 8, "\1\0\0\0\2\1\0\0", 8);
}

/* Wrong types of JSON values, missing fields, unknown dtypes, impossible shapes, and data that
 * belongs to no tensor. */
static void damaged_headers_are_refused(void **state) {
    (void)state;
    /* JSON that is no object, damaged JSON, an entry that is no object. */
    refused("[]", 0, MG_DATA, "not a JSON object");
    refused("{\"a\":", 0, MG_DATA, "the JSON is damaged");
    refused("{\"a\":1}", 0, MG_DATA, "not an object");
    /* Missing and unknown fields, sizes that are negative, no integers or too large. */
    refused("{\"a\":{}}", 0, MG_DATA, "no dtype");
    refused("{\"a\":{\"dtype\":\"F8\"}}", 0, MG_UNSUPPORTED, "F8");
    refused("{\"a\":{\"dtype\":\"U8\"}}", 0, MG_DATA, "no shape");
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[-1]}}", 0, MG_DATA, "not a size");
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[1.5]}}", 0, MG_DATA, "not a size");
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1]}}", 0, MG_UNSUPPORTED,
            "9 axes");
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[4294967296,4294967296]}}", 0, MG_DATA, "too many");
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, MG_DATA, "data_offsets");
    /* Metadata must be a map of strings. */
    refused("{\"__metadata__\":{\"a\":1}}", 0, MG_DATA, "not a string");
    refused("{\"__metadata__\":[]}", 0, MG_DATA, "not a map");
    refused("{\"__metadata__\":{\"a\":\"x\\u0000y\"}}", 0, MG_DATA, "\"a\" contains a zero byte");
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"size\":1}}", 1,
            MG_DATA, "the entry of tensor \"a\" has unknown fields");
    refused("{\"__metadata__\":7}", 0, MG_DATA, "not a map");
    refused("{\"__metadata__\":null}", 0, MG_DATA, "not a map");
    refused("{\"__metadata__\":{\"a\":null}}", 0, MG_DATA, "not a string");
    /* Of other types altogether. */
    refused("7", 0, MG_DATA, "not a JSON object");
    refused("{\"a\":null}", 0, MG_DATA, "not an object");
    refused("{\"a\":{\"dtype\":7}}", 0, MG_DATA, "no dtype");
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":{}}}", 0, MG_DATA, "no shape");
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[null]}}", 0, MG_DATA, "not a size");
    static const char *const offsets[] = {"[]",       "[0]", "[0,1,2]", "[\"\",1]",
                                          "[0,null]", "{}",  "[0,1.0]"};
    for (size_t i = 0; i < sizeof offsets / sizeof offsets[0]; i++) {
        char header[128];
        snprintf(header, sizeof header,
                 "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":%s}}", offsets[i]);
        refused(header, 1, MG_DATA, "has no data_offsets");
    }
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"more\":1}}", 1,
            MG_DATA, "has unknown fields");
    /* The key of a checksum, in another form than it is written. */
    refused("{\"__metadata__\":{\"mgpulua.checksum\": \"xxh3:0\"}}", 0, MG_DATA,
            "the header is damaged");
    refused("{}", 1, MG_DATA, "belong to no tensor");
}

/* The header entry of a tensor of n uint8 elements at the bytes begin to end. */
#define ENTRY(name, n, begin, end)                                                                 \
    "\"" name "\":{\"dtype\":\"U8\",\"shape\":[" #n "],\"data_offsets\":[" #begin "," #end "]}"

/* Tensors outside the file, of another length than their shape needs, with gaps before them,
 * overlapping, or of the same name. */
static void wrong_places_are_refused(void **state) {
    (void)state;
    refused("{" ENTRY("a", 4, 0, 4) "}", 3, MG_DATA, "truncated");
    refused("{" ENTRY("a", 4, 0, 5) "}", 5, MG_DATA, "takes 4 bytes, not 5");
    refused("{" ENTRY("a", 4, 4, 0) "}", 5, MG_DATA, "lies at bytes 4 to 0");
    refused("{" ENTRY("a", 4, -4, 0) "}", 5, MG_DATA, "lies at bytes -4");
    /* A gap before a tensor, tensors that overlap, a duplicate, and a gap at the end. */
    refused("{" ENTRY("a", 4, 1, 5) "}", 5, MG_DATA, "after a hole");
    refused("{" ENTRY("a", 4, 0, 4) "," ENTRY("b", 4, 2, 6) "}", 6, MG_DATA, "inside another");
    refused("{" ENTRY("a", 4, 0, 4) "," ENTRY("b", 2, 1, 3) "}", 4, MG_DATA, "inside another");
    refused("{" ENTRY("a", 4, 0, 4) "," ENTRY("a", 4, 4, 8) "}", 8, MG_DATA, "duplicate");
    refused("{" ENTRY("a", 4, 0, 4) "}", 8, MG_DATA, "last 4 bytes");
}

/* A header length beyond the file, an absurd one, a header that nests too deep for the parser, and
 * files too short for the length itself. */
static void wrong_lengths_are_refused(void **state) {
    (void)state;
    /* A length that is one byte, and one that is far, behind the end of the file. */
    write_file("{}", 3, 0);
    assert_null(mg_store_load(path));
    assert_non_null(strstr(mg_error_message(), "its header alone needs"));
    write_file("{}", (size_t)1 << 62, 0);
    assert_null(mg_store_load(path));
    assert_non_null(strstr(mg_error_message(), "too long"));
    /* 100,000 opening brackets. */
    char *deep = malloc(100001);
    memset(deep, '[', 100000);
    deep[0] = '{', deep[100000] = 0;
    refused(deep, 0, MG_DATA, "nests deeper");
    free(deep);
    /* Files of 0 to 7 bytes. */
    for (int n = 0; n < 8; n++) {
        FILE *f = fopen(path, "wb");
        for (int i = 0; i < n; i++) fputc(0, f);
        fclose(f);
        assert_null(mg_store_load(path));
        assert_int_equal(mg_error_code(), MG_DATA);
    }
}

/* Another byte than 0 and 1 in a boolean tensor is refused, because kernels rely on that. */
static void a_boolean_is_zero_or_one(void **state) {
    (void)state;
    const char *header = "{\"a\":{\"dtype\":\"BOOL\",\"shape\":[1],\"data_offsets\":[0,1]}}";
    /* A header for one byte of data, which is appended below. */
    write_file(header, strlen(header), 0);
    FILE *f = fopen(path, "ab");
    /* The data of the tensor: one byte that is neither 0 nor 1. */
    fputc(2, f);
    fclose(f);
    assert_null(mg_store_load(path));
    assert_non_null(strstr(mg_error_message(), "not a boolean"));
}

/* The whole file in memory; *n is its size. Freed by the caller. */
static unsigned char *read_file(size_t *n) {
    unsigned char *bytes = malloc(1 << 16);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    *n = fread(bytes, 1, 1 << 16, f);
    fclose(f);
    return bytes;
}

/* Replaces the file by these bytes, and loads it. */
static mg_status load_bytes(const unsigned char *bytes, size_t n) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
    mg_store *s = mg_store_load(path);
    mg_store_free(s);
    return s ? MG_OK : mg_error_code();
}

/* Each bit of a file of ours, flipped alone, makes it damaged: header, padding, checksum, data. */
static void every_flipped_bit_is_detected(void **state) {
    (void)state;
    size_t n;
    mg_store *s = sample(1);
    assert_int_equal(mg_store_save(s, path), MG_OK);
    mg_store_free(s);
    unsigned char *bytes = read_file(&n);
    assert_int_equal(load_bytes(bytes, n), MG_OK);
    for (size_t bit = 0; bit < 8 * n; bit++) {
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
        const mg_status status = load_bytes(bytes, n);
        if (status == MG_OK) fail_msg("bit %zu of byte %zu", bit % 8, bit / 8);
        assert_true(status == MG_DATA || status == MG_UNSUPPORTED);
        assert_non_null(strstr(mg_error_message(), path));
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    free(bytes);
}

/* The checksum is found as text: an escaped key does not count, and what looks like a checksum at
 * the end of the header must not be read beyond it. */
static void a_checksum_in_disguise_is_refused(void **state) {
    (void)state;
    refused("{\"__metadata__\":{\"mgpulua\\u002echecksum\":\"xxh3-64:0000000000000000:"
            "0000000000000000\"},\"a\":{\"mgpulua.checksum\":\"xxh3-64:\"}}",
            0, MG_DATA, "its checksum is wrong");
    refused("{\"__metadata__\":{\"mgpulua.checksum\":\"none\"}}", 0, MG_DATA,
            "its checksum is wrong");
    refused("{\"__metadata__\":{\"mgpulua.checksum\":\"xxh3-64:\"}}", 0, MG_DATA,
            "its checksum is wrong");
}

/* Tensors and notes added in another order give the same file. */
static void equal_stores_give_equal_bytes(void **state) {
    (void)state;
    size_t n = 0, m = 0;
    unsigned char *files[2];
    for (int i = 0; i < 2; i++) {
        mg_store *s = mg_store_new();
        for (int k = 0; k < 3; k++) {
            const char name[] = {(char)('a' + (i ? 2 - k : k)), 0};
            add(s, name, vector(MG_F32, 2, (double[]){name[0], 1}));
            assert_int_equal(mg_store_add_note(s, name, name), MG_OK);
        }
        assert_int_equal(mg_store_save(s, path), MG_OK);
        mg_store_free(s);
        files[i] = read_file(i ? &m : &n);
    }
    assert_int_equal(n, m);
    assert_memory_equal(files[0], files[1], n);
    free(files[0]), free(files[1]);
}

/* An open file tells names, shapes and dtypes before it is read, and afterwards which tensors have
 * a NaN or an infinity. */
static void a_file_cut_while_open_is_refused(void **state) {
    (void)state;
    mg_store *s = sample(1);
    assert_int_equal(mg_store_save(s, path), MG_OK);
    mg_store_free(s);
    mg_store_file *f = mg_store_open(path, false);
    assert_non_null(f);
    assert_int_equal(truncate(path, 100), 0);
    assert_int_equal(mg_store_read(f), MG_DATA);
    assert_non_null(strstr(mg_error_message(), "the file ends within "));
    mg_store_close(f);
}

static void an_open_file_tells_what_is_in_it(void **state) {
    (void)state;
    const double nan = strtod("nan", NULL), inf = strtod("inf", NULL);
    mg_store *s = sample(1);
    add(s, "f16", vector(MG_F16, 2, (double[]){65504, inf}));
    add(s, "bf16", vector(MG_BF16, 2, (double[]){3e38, nan}));
    add(s, "f64", vector(MG_F64, 2, (double[]){-inf, 1}));
    add(s, "i64", vector(MG_I64, 1, (double[]){0x7ff00000}));
    assert_int_equal(mg_store_save(s, path), MG_OK);
    mg_store_free(s);
    mg_store_file *f = mg_store_open(path, false);
    assert_non_null(f);
    assert_int_equal(f->n_entries, 6);
    assert_int_equal(f->store->n_notes, 1);
    assert_int_equal(f->store->n_tensors, 0);
    assert_string_equal(f->entries[0].name, "f64"); /* wide ones first */
    assert_int_equal(f->entries[0].dtype, MG_F64);
    assert_int_equal(f->entries[0].shape.dim[0], 2);
    assert_int_equal(mg_store_read(f), MG_OK);
    assert_int_equal(f->store->n_tensors, 6);
    for (int i = 0; i < 6; i++)
        assert_int_equal(f->entries[i].nonfinite, strchr("fb", f->entries[i].name[0]) &&
                                                      strcmp(f->entries[i].name, "b/bias") != 0);
    mg_store_close(f);
}

/* A header may have 2 MiB, or an eighth of the data: parsing one takes many times its size. */
static void headers_that_are_too_long_are_refused(void **state) {
    (void)state;
    const size_t size = (2 << 20) + 8;
    char *header = malloc(size + 1);
    memset(header, ' ', size);
    memcpy(header, "{}", 2);
    header[size] = 0;
    refused(header, 0, MG_UNSUPPORTED, "too long for 0 bytes of data");
    header[size - 8] = 0;
    write_file(header, strlen(header), 0);
    mg_store *s = mg_store_load(path);
    assert_non_null(s);
    mg_store_free(s);
    free(header);
}

/* A name that is already taken, the reserved one, and one that is not UTF-8 cannot be saved;
 * neither can a file with an unknown extension. */
static void names_that_cannot_be_kept_are_refused(void **state) {
    (void)state;
    /* "a" is the name of a tensor of the sample. */
    static const char *const names[] = {"a", "__metadata__", "\xff"};
    for (int i = 0; i < 3; i++) {
        mg_store *s = sample(1);
        add(s, names[i], vector(MG_F32, 1, (double[]){1}));
        assert_int_equal(mg_store_save(s, path), MG_USAGE);
        mg_store_free(s);
    }
    /* Metadata: a key given twice, a text that looks like a checksum. */
    static const char *const notes[][2] = {{"format", "x"}, {"other", "xxh3-64:"}, {"x", "\xff"}};
    for (int i = 0; i < 3; i++) {
        mg_store *bad = sample(1);
        assert_int_equal(mg_store_add_note(bad, notes[i][0], notes[i][1]), MG_OK);
        assert_int_equal(mg_store_save(bad, path), MG_USAGE);
        mg_store_free(bad);
    }
    /* The message lists the known extensions. */
    mg_store *s = sample(1);
    assert_int_equal(mg_store_save(s, "/tmp/model.unknown"), MG_USAGE);
    assert_non_null(strstr(mg_error_message(), ".safetensors"));
    mg_store_free(s);
}

/* Makes the n-th file call from now on fail, as on a full disk. */
static void arm_disk(int64_t n) {
    mg_io_fail_after(n, ENOSPC);
}

/* Saves again and again; in the n-th round `arm` makes the n-th call fail. The file holds the old
 * numbers until a save reports success, and no memory, open file or temporary file is left. */
static void saves_or_leaves_the_old(void (*arm)(int64_t n), mg_status code) {
    /* The file holds 1 as its first number, and is to hold 100. */
    mg_store *old = sample(1), *new = sample(100);
    assert_int_equal(mg_store_save(old, path), MG_OK);
    const int64_t blocks = mg_alloc_get_stats().live_blocks;
    bool done = false;
    for (int64_t n = 1; !done; n++) {
        arm(n);
        /* The attempt to replace the file, with the n-th call failing. */
        const mg_status status = mg_store_save(new, path);
        arm(0);
        done = status == MG_OK;
        if (!done) assert_int_equal(status, code);
        assert_int_equal(mg_alloc_get_stats().live_blocks, blocks);
        assert_int_equal(mg_io_open_count(), 0);
        /* The file is old or new as a whole; only a folder that cannot be synced fails after the
         * file is replaced. */
        const bool written = done || strstr(mg_error_message(), "is written");
        assert_true(first_of("a") == (written ? 100 : 1));
        assert_int_equal(mg_store_save(old, path), MG_OK);
    }
    mg_store_free(old), mg_store_free(new);
}

/* Failing file calls, then failing allocations, of a save. */
static void a_failed_save_leaves_the_old_file(void **state) {
    (void)state;
    saves_or_leaves_the_old(arm_disk, MG_IO);
    saves_or_leaves_the_old(mg_alloc_fail_after, MG_OOM);
}

/* Loads again and again in the same way: a failed load leaves no memory and no open file. */
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

/* Failing file calls, then failing allocations, of a load. */
static void a_failed_load_leaves_nothing(void **state) {
    (void)state;
    mg_store *s = sample(1);
    assert_int_equal(mg_store_save(s, path), MG_OK);
    mg_store_free(s);
    loads_or_leaves_nothing(arm_disk, MG_IO);
    loads_or_leaves_nothing(mg_alloc_fail_after, MG_OOM);
}

/* The ending of the file's own name tells its format, in any case; folders may have endings, too.
 */
static void the_ending_of_the_name_tells_the_format(void **state) {
    (void)state;
    static const char *const unknown[] = {
        "name", "/nowhere.safetensors/name", "name.", "name.safetensor", "safetensors", ".npy/x.y"};
    mg_store *s = mg_store_new();
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
        assert_int_equal(mg_store_save(s, unknown[i]), MG_USAGE);
        assert_non_null(strstr(mg_error_message(), ": cannot tell the file format: give the name "
                                                   "one of the endings .safetensors, "));
    }
    assert_int_equal(mg_store_save(s, "/nowhere.x/name.SafeTensors"), MG_IO); /* known */
    assert_int_equal(mg_store_save_as(s, "/nowhere/name", "safetensors"), MG_IO);
    assert_int_equal(mg_store_save_as(s, "name", "no such format"), MG_USAGE);
    assert_string_equal(mg_error_message(), "name: there is no format \"no such format\"");
    assert_null(mg_store_find(s, "a tensor that is not there"));
    mg_store_free(s);
}

/* For every instruction set, and however the bytes are divided into pieces. */
static void the_hash_is_xxh3_of_all_bytes(void **state) {
    (void)state;
    static unsigned char bytes[5000];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)(i * i >> 3);
    for (size_t piece = 1; piece < sizeof bytes; piece = piece * 3 + 1) {
        for (size_t n = 0; n < sizeof bytes; n = n * 2 + 1) {
            mg_hash h;
            mg_hash_begin(&h);
            for (size_t at = 0; at < n; at += piece)
                mg_hash_add(&h, bytes + at, n - at < piece ? n - at : piece);
            assert_true(mg_hash_end(&h) == XXH3_64bits(bytes, n));
        }
    }
}

/* Setup of the group: ref:0 as the default device and a temporary folder. */
static int open_ref(void **state) {
    (void)state;
    mg_device *ref = mg_device_find("ref:0");
    if (ref) mg_device_set_default(ref);
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/t.safetensors", folder);
    return ref ? 0 : -1;
}

/* Teardown: fails if a file, a block of memory or a tensor is left. */
static int close_all(void **state) {
    (void)state;
    unlink(path);
    if (rmdir(folder) != 0) return -1;
    mg_devices_close();
    return mg_alloc_get_stats().live_blocks == 0 && mg_tensor_live_count() == 0 ? 0 : -1;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_hash_is_xxh3_of_all_bytes),
        cmocka_unit_test(every_dtype_survives),
        cmocka_unit_test(metadata_and_empty_tensors_survive),
        cmocka_unit_test(the_bytes_are_those_of_the_format),
        cmocka_unit_test(damaged_headers_are_refused),
        cmocka_unit_test(wrong_places_are_refused),
        cmocka_unit_test(wrong_lengths_are_refused),
        cmocka_unit_test(a_boolean_is_zero_or_one),
        cmocka_unit_test(every_flipped_bit_is_detected),
        cmocka_unit_test(a_checksum_in_disguise_is_refused),
        cmocka_unit_test(equal_stores_give_equal_bytes),
        cmocka_unit_test(a_file_cut_while_open_is_refused),
        cmocka_unit_test(an_open_file_tells_what_is_in_it),
        cmocka_unit_test(headers_that_are_too_long_are_refused),
        cmocka_unit_test(names_that_cannot_be_kept_are_refused),
        cmocka_unit_test(a_failed_save_leaves_the_old_file),
        cmocka_unit_test(a_failed_load_leaves_nothing),
        cmocka_unit_test(the_ending_of_the_name_tells_the_format),
    };
    return cmocka_run_group_tests(tests, open_ref, close_all);
}
