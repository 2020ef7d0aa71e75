/* ONNX files as stores (io/onnx): damaged messages and tensors, places of external data, and
 * failing allocations and file calls. Models of other programs:
 * tests/lua/files/onnx_reading_spec.lua. */
#include "core/alloc.h"
#include "device/device.h"
#include "graph/graph.h"
#include "io/store.h"
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

/* The temporary folder of the tests, the model in it, and a file of external data. */
static char folder[] = "/tmp/mgpu_test_onnx_XXXXXX";
static char path[64], data_path[64], link_path[64];

/* ---- making messages ---- */

typedef struct bytes {
    unsigned char at[100000];
    size_t n;
} bytes;

static void put(bytes *b, const void *data, size_t n) {
    assert_true(b->n + n <= sizeof b->at);
    memcpy(b->at + b->n, data, n);
    b->n += n;
}

static void put_varint(bytes *b, uint64_t v) {
    for (; v >= 128; v >>= 7) put(b, &(unsigned char){(unsigned char)(v | 128)}, 1);
    put(b, &(unsigned char){(unsigned char)v}, 1);
}

static void put_integer(bytes *b, int field, uint64_t v) {
    put_varint(b, (uint64_t)field << 3);
    put_varint(b, v);
}

static void put_bytes(bytes *b, int field, const void *data, size_t n) {
    put_varint(b, (uint64_t)field << 3 | 2);
    put_varint(b, n);
    put(b, data, n);
}

static void put_text(bytes *b, int field, const char *text) {
    put_bytes(b, field, text, strlen(text));
}

static void put_message(bytes *b, int field, const bytes *inner) {
    put_bytes(b, field, inner->at, inner->n);
}

static void write_file(const char *name, const void *data, size_t n) {
    FILE *f = fopen(name, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    fclose(f);
}

/* A model whose graph has these fields. */
static void write_graph(const bytes *graph) {
    bytes m = {.n = 0};
    put_integer(&m, 1, 8);
    put_message(&m, 7, graph);
    write_file(path, m.at, m.n);
}

static void write_tensor(const bytes *tensor) {
    bytes g = {.n = 0};
    put_message(&g, 5, tensor);
    write_graph(&g);
}

/* A tensor {count} of this type, without elements. */
static bytes tensor_of(int64_t count, int type) {
    bytes t = {.n = 0};
    put_integer(&t, 1, (uint64_t)count);
    put_integer(&t, 2, (uint64_t)type);
    put_text(&t, 8, "w");
    return t;
}

enum { FLOAT32 = 1, UINT8 = 2, INT64 = 7, BOOL = 9, FLOAT16 = 10, FLOAT64 = 11 };

static void put_entry(bytes *t, const char *key, const char *value) {
    bytes e = {.n = 0};
    put_text(&e, 1, key);
    put_text(&e, 2, value);
    put_message(t, 13, &e);
}

/* A tensor of two floats in a file of external data. */
static bytes external(const char *location, const char *offset, const char *length) {
    bytes t = tensor_of(2, FLOAT32);
    if (location) put_entry(&t, "location", location);
    if (offset) put_entry(&t, "offset", offset);
    if (length) put_entry(&t, "length", length);
    put_integer(&t, 14, 1);
    return t;
}

/* ---- checks ---- */

static void refused(mg_status code, const char *part) {
    mg_store_file *f = mg_store_open_onnx(path);
    if (f && mg_store_read(f) == MG_OK) fail_msg("read, but should be refused: %s", part);
    mg_store_close(f);
    if (!strstr(mg_error_message(), part))
        fail_msg("\"%s\" lacks \"%s\"", mg_error_message(), part);
    assert_int_equal(mg_error_code(), code);
    assert_int_equal(mg_io_open_count(), 0);
}

static void refused_tensor(const bytes *tensor, mg_status code, const char *part) {
    write_tensor(tensor);
    refused(code, part);
}

static void refused_graph(const bytes *graph, mg_status code, const char *part) {
    write_graph(graph);
    refused(code, part);
}

/* The n numbers of the only tensor. */
static void read_numbers(double *v, int n) {
    mg_store_file *f = mg_store_open_onnx(path);
    if (!f || mg_store_read(f) != MG_OK) fail_msg("%s", mg_error_message());
    mg_tensor *t = mg_store_find(f->store, "t0");
    assert_non_null(t);
    assert_int_equal(mg_shape_count(&t->shape), n);
    assert_int_equal(mg_tensor_read_double(t, v), MG_OK);
    mg_store_close(f);
}

static const char *note_of(mg_store_file *f) {
    assert_int_equal(f->store->n_notes, 1);
    assert_string_equal(f->store->notes[0].key, "model");
    return f->store->notes[0].text;
}

/* ---- tests ---- */

static void the_fields_of_a_graph_become_json(void **state) {
    bytes g = {.n = 0}, node = {.n = 0}, a = {.n = 0}, info = {.n = 0}, type = {.n = 0};
    const float floats[] = {0.5f, 1.0f / 0.0f, -1.0f / 0.0f, 0.0f / 0.0f};
    (void)state;
    put_text(&a, 1, "f");
    put_bytes(&a, 7, floats, sizeof floats);
    put_bytes(&a, 8, "\1\2", 2);
    put_integer(&a, 8, UINT64_MAX); /* -1, not packed */
    put_integer(&a, 20, 6);
    put_text(&node, 1, "x");
    put_text(&node, 1, "");
    put_text(&node, 4, "Op");
    put_message(&node, 5, &a);
    put_text(&node, 6, "a text that is left out");
    put_varint(&node, 100 << 3 | 1), put(&node, "12345678", 8); /* unknown fields */
    put_varint(&node, 101 << 3 | 5), put(&node, "1234", 4);
    put_integer(&node, 102, 300);
    put_message(&g, 1, &node);
    put_message(&type, 4, &(bytes){.n = 0});
    put_text(&info, 1, "y");
    put_message(&info, 2, &type);
    put_message(&g, 12, &info);
    write_graph(&g);
    mg_store_file *f = mg_store_open_onnx(path);
    assert_non_null(f);
    assert_string_equal(
        note_of(f),
        "{\"ir_version\":8,\"graph\":{\"node\":[{\"input\":[\"x\",\"\"],\"op_type\":\"Op\","
        "\"attribute\":[{\"name\":\"f\",\"floats\":[0.5,\"inf\",\"-inf\",\"nan\"],\"ints\":[1,2,-1]"
        ","
        "\"type\":6}]}],\"output\":[{\"name\":\"y\",\"type\":{\"sequence_type\":null}}]}}");
    mg_store_close(f);
}

static void elements_of_every_form_are_read(void **state) {
    double v[3];
    const float floats[] = {1.5f, -2};
    const double doubles[] = {0.25, 3};
    bytes t = tensor_of(2, FLOAT32);
    (void)state;
    put_text(&t, 12, "what is left out");
    put_bytes(&t, 9, floats, sizeof floats);
    write_tensor(&t), read_numbers(v, 2);
    assert_true(v[0] == 1.5 && v[1] == -2);
    t = tensor_of(2, FLOAT32);
    put_bytes(&t, 4, floats, sizeof floats);
    write_tensor(&t), read_numbers(v, 2);
    assert_true(v[0] == 1.5 && v[1] == -2);
    t = tensor_of(2, FLOAT64);
    put_bytes(&t, 10, doubles, sizeof doubles);
    write_tensor(&t), read_numbers(v, 2);
    assert_true(v[0] == 0.25 && v[1] == 3);
    t = tensor_of(2, INT64);
    put_bytes(&t, 7, "\xfb\xff\xff\xff\xff\xff\xff\xff\xff\1\254\2", 12);
    write_tensor(&t), read_numbers(v, 2);
    assert_true(v[0] == -5 && v[1] == 300);
    t = tensor_of(2, FLOAT16);
    put_bytes(&t, 5, "\200\170\200\200\3", 5); /* 0x3c00 = 1, 0xc000 = -2 */
    write_tensor(&t), read_numbers(v, 2);
    assert_true(v[0] == 1 && v[1] == -2);
    t = tensor_of(0, FLOAT32);
    write_tensor(&t), read_numbers(v, 0);
    write_file(data_path, "abcd\0\0\300\77\0\0\0\300", 12);
    t = external("w.data", "4", "8");
    put_bytes(&t, 13, "\30\1\42\1x", 5); /* fields that are not known */
    write_tensor(&t), read_numbers(v, 2);
    assert_true(v[0] == 1.5 && v[1] == -2);
}

static void damaged_messages_are_refused(void **state) {
    bytes g = {.n = 0}, deep = {.n = 0}, a;
    (void)state;
    write_file(path, "", 0);
    refused(MG_DATA, "is no ONNX model: it has no graph");
    write_file(path, "\10", 1);
    refused(MG_DATA, "a number is cut off");
    write_file(path, "\10\377\377\377\377\377\377\377\377\377\377\1", 12);
    refused(MG_DATA, "an integer has more than 64 bits");
    write_file(path, "\10\377\377\377\377\377\377\377\377\377\2", 11);
    refused(MG_DATA, "an integer has more than 64 bits");
    write_file(path, "\0", 1);
    refused(MG_DATA, "a field has no valid number");
    write_file(path, "\13", 1);
    refused(MG_DATA, "a field has an unknown wire type");
    write_file(path, "\72\377", 2); /* a length that is cut off */
    refused(MG_DATA, "a number is cut off");
    write_file(path, "\200\200\200\200\20\1", 6); /* field 2^29 */
    refused(MG_DATA, "a field has no valid number");
    write_file(path, "\72\177", 2);
    refused(MG_DATA, "damaged at byte 2: a length exceeds the message that contains it");
    write_file(path, "\10\1\10\1", 4);
    refused(MG_DATA, "a field that can be there once is there twice");
    write_file(path, "\12\1x", 3);
    refused(MG_DATA, "a field has the wrong wire type");
    write_file(path, "\15\1", 2);
    refused(MG_DATA, "a field has the wrong wire type");
    write_file(path, "\241\6\1", 3); /* field 100, 8 bytes */
    refused(MG_DATA, "a number is cut off");
    put_bytes(&g, 2, "a\377", 2);
    refused_graph(&g, MG_DATA, "a text is not UTF-8");
    g.n = 0, put_bytes(&g, 2, "a\0b", 3);
    refused_graph(&g, MG_DATA, "a text is not UTF-8 or has a zero byte");
    g.n = 0, put_bytes(&g, 15, "", 0);
    refused_graph(&g, MG_UNSUPPORTED, "a sparse tensor, which is not supported");
    for (int i = 0; i < 16; i++) { /* a graph in an attribute of a node of a graph ... */
        a = (bytes){.n = 0};
        put_message(&a, 6, &deep);
        deep.n = 0, put_message(&deep, 5, &a);
        a = deep;
        deep.n = 0, put_message(&deep, 1, &a);
    }
    refused_graph(&deep, MG_DATA, "messages are nested too deep");
}

static void long_graphs_are_refused(void **state) {
    enum { COUNT = (1 << 21) + 1, TEXT = (64 << 20) + 1 };
    bytes head = {.n = 0};
    (void)state;
    put_varint(&head, 7 << 3 | 2), put_varint(&head, TEXT + 5);
    put_varint(&head, 2 << 3 | 2), put_varint(&head, TEXT);
    write_file(path, head.at, head.n);
    assert_int_equal(truncate(path, (off_t)head.n + TEXT), 0);
    refused(MG_UNSUPPORTED, "the graph has more than 64.0 MiB of text");
    unsigned char *ints = calloc(1, COUNT + 64);
    assert_non_null(ints);
    bytes a = {.n = 0}, node = {.n = 0},
          graph = {.n = 0}; /* the lengths of what is around the list */
    put_varint(&a, 8 << 3 | 2), put_varint(&a, COUNT);
    put_varint(&node, 5 << 3 | 2), put_varint(&node, COUNT + a.n);
    put_varint(&graph, 1 << 3 | 2), put_varint(&graph, COUNT + a.n + node.n);
    head.n = 0;
    put_varint(&head, 7 << 3 | 2), put_varint(&head, COUNT + a.n + node.n + graph.n);
    put(&head, graph.at, graph.n), put(&head, node.at, node.n), put(&head, a.at, a.n);
    memcpy(ints, head.at, head.n);
    write_file(path, ints, head.n + COUNT);
    free(ints);
    refused(MG_UNSUPPORTED, "the graph has more than 2097152 fields");
}

static void damaged_tensors_are_refused(void **state) {
    bytes t = tensor_of(2, FLOAT32);
    (void)state;
    put_bytes(&t, 9, "1234567", 7);
    refused_tensor(&t, MG_DATA,
                   "\"w\" is damaged: its shape and the number of its elements differ");
    put_bytes(&t, 4, "12345678", 8);
    refused_tensor(&t, MG_DATA, "a tensor has its elements twice");
    t = tensor_of(2, FLOAT32), put_bytes(&t, 10, "12345678", 8);
    refused_tensor(&t, MG_DATA, "its elements are in the field of another type");
    t = tensor_of(2, INT64), put_bytes(&t, 7, "\1", 1);
    refused_tensor(&t, MG_DATA, "its shape and the number of its elements differ");
    t = tensor_of(1, INT64), put_bytes(&t, 7, "\200", 1);
    refused_tensor(&t, MG_DATA, "a number is cut off");
    t = tensor_of(1, INT64), put_integer(&t, 7, 1);
    refused_tensor(&t, MG_DATA, "the elements of a tensor are not packed");
    t = tensor_of(-1, FLOAT32);
    refused_tensor(&t, MG_DATA, "its shape is impossible");
    t = tensor_of((int64_t)1 << 62, FLOAT32);
    refused_tensor(&t, MG_DATA, "its shape is impossible");
    t = tensor_of(1, BOOL), put_bytes(&t, 9, "\2", 1);
    refused_tensor(&t, MG_DATA, "is not a boolean");
    t = tensor_of(1, 3), put_bytes(&t, 9, "\2", 1);
    refused_tensor(&t, MG_UNSUPPORTED, "has elements of type int8");
    t = tensor_of(1, 99);
    refused_tensor(&t, MG_UNSUPPORTED, "of type unknown to this program");
    t = tensor_of(0, FLOAT32), put_integer(&t, 14, 2);
    refused_tensor(&t, MG_DATA, "its data_location is unknown");
    t = tensor_of(0, FLOAT32), put_bytes(&t, 3, "", 0);
    refused_tensor(&t, MG_DATA, "it is a segment of one");
    t = tensor_of(0, FLOAT32), put_bytes(&t, 2, "", 0);
    refused_tensor(&t, MG_DATA, "a field has the wrong wire type");
    t = tensor_of(0, FLOAT32), put_varint(&t, 1 << 3 | 5), put(&t, "1234", 4);
    refused_tensor(&t, MG_DATA, "a field has the wrong wire type");
    t = tensor_of(0, FLOAT32), put_integer(&t, 8, 1);
    refused_tensor(&t, MG_DATA, "a field has the wrong wire type");
    t = tensor_of(0, FLOAT32), put_integer(&t, 13, 1);
    refused_tensor(&t, MG_DATA, "a field has the wrong wire type");
    t = tensor_of(0, FLOAT32), put_bytes(&t, 1, "\1\1\1\1\1\1\1\1\1", 9);
    refused_tensor(&t, MG_UNSUPPORTED, "a tensor has more than 8 axes");
    t = (bytes){.n = 0}, put_bytes(&t, 1, "\1", 1);
    refused_tensor(&t, MG_UNSUPPORTED, "the tensor \"\" has elements of type undefined");
}

static void external_data_stay_in_the_folder_of_the_model(void **state) {
    static const char *const outside[] = {"",     "/etc/passwd",  "../w.data", "a/../../w.data",
                                          "a/..", "a\\..\\w.data"};
    bytes t;
    (void)state;
    write_file(data_path, "12345678", 8);
    for (size_t i = 0; i < sizeof outside / sizeof outside[0]; i++) {
        t = external(outside[i], NULL, NULL);
        refused_tensor(&t, MG_DATA, "external data must be in the model's folder");
    }
    t = external("w.link", NULL, NULL);
    refused_tensor(&t, MG_DATA, "is a symbolic link");
    t = external("missing", NULL, NULL);
    refused_tensor(&t, MG_IO, "missing");
    t = external("sub/missing", NULL, NULL);
    refused_tensor(&t, MG_IO, "sub");
    t = external(".", NULL, NULL);
    refused_tensor(&t, MG_IO, "is not a regular file");
    t = external(NULL, NULL, NULL);
    refused_tensor(&t, MG_DATA, "its external data have no location");
    t = external("w.data", "1", NULL);
    refused_tensor(&t, MG_DATA, "its external data are beyond the end of the file");
    t = external("w.data", "9", NULL);
    refused_tensor(&t, MG_DATA, "its external data are beyond the end of the file");
    t = external("w.data", "-1", NULL);
    refused_tensor(&t, MG_DATA, "the place of its external data does not fit its shape");
    t = external("w.data", "1234567890123456789", NULL);
    refused_tensor(&t, MG_DATA, "the place of its external data does not fit its shape");
    t = external("w.data", NULL, "7");
    refused_tensor(&t, MG_DATA, "the place of its external data does not fit its shape");
    t = tensor_of(2, FLOAT32), put_bytes(&t, 13, "\12\3a\0b", 5);
    refused_tensor(&t, MG_DATA, "its place has a zero byte");
    t = tensor_of(2, FLOAT32), put_bytes(&t, 13, "\12\11a", 3);
    refused_tensor(&t, MG_DATA, "a length exceeds the message that contains it");
}

static void bytes_of_external_data_are_read_once(void **state) {
    bytes g = {.n = 0}, t = external("w.data", NULL, NULL);
    (void)state;
    write_file(data_path, "12345678", 8);
    put_entry(&t, "checksum", "ignored");
    put_message(&g, 5, &t);
    put_message(&g, 5, &t);
    refused_graph(&g, MG_DATA, "tensors share bytes of the external data");
}

/* One file by 65 names: "./w.data", ".//w.data", ... */
static void a_model_has_at_most_64_files_of_external_data(void **state) {
    bytes g = {.n = 0};
    (void)state;
    write_file(data_path, "", 0);
    for (int i = 0; i < 65; i++) {
        char location[80];
        bytes t = tensor_of(0, FLOAT32);
        snprintf(location, sizeof location, ".%.*sw.data", i + 1,
                 "/////////////////////////////////////////////////////////////////");
        put_entry(&t, "location", location);
        put_integer(&t, 14, 1);
        put_message(&g, 5, &t);
    }
    refused_graph(&g, MG_UNSUPPORTED, "the model has more than 64 files of external data");
}

static void a_file_that_becomes_shorter_is_refused(void **state) {
    bytes t = tensor_of(2, FLOAT32);
    (void)state;
    put_bytes(&t, 9, "12345678", 8);
    write_tensor(&t);
    mg_store_file *f = mg_store_open_onnx(path);
    assert_non_null(f);
    assert_int_equal(truncate(path, f->size - 1), 0);
    assert_int_equal(mg_store_read(f), MG_DATA);
    assert_non_null(strstr(mg_error_message(), "the file has become shorter"));
    mg_store_close(f);
}

/* Opens and reads; false if an allocation or a file call has failed. */
static bool survives(void) {
    mg_store_file *f = mg_store_open_onnx(path);
    const bool done = f && mg_store_read(f) == MG_OK;
    mg_store_close(f);
    return done;
}

static void every_failing_allocation_and_file_call_is_survived(void **state) {
    bytes g = {.n = 0}, t = tensor_of(2, INT64), node = {.n = 0};
    bool done = false;
    (void)state;
    write_file(data_path, "12345678", 8);
    put_bytes(&t, 7, "\1\2", 2);
    put_message(&g, 5, &t);
    t = external("w.data", "0", "8");
    put_message(&g, 5, &t);
    put_text(&node, 4, "Relu");
    put_message(&g, 1, &node);
    for (int i = 0; i < 1000; i++)
        put_text(&g, 10, "longer than the window, 64 KiB, with this text a thousand times");
    write_graph(&g);
    assert_true(survives());
    const int64_t blocks = mg_alloc_get_stats().live_blocks;
    for (int64_t n = 1; !done; n++) {
        mg_alloc_fail_after(n);
        done = survives();
        mg_alloc_fail_after(0);
        if (!done) assert_int_equal(mg_error_code(), MG_OOM);
        assert_int_equal(mg_alloc_get_stats().live_blocks, blocks);
        assert_int_equal(mg_io_open_count(), 0);
    }
    done = false;
    for (int64_t n = 1; !done; n++) {
        mg_io_fail_after(n, 5);
        done = survives();
        if (!mg_io_fail_stop()) break;
        assert_int_equal(mg_io_open_count(), 0);
    }
    assert_int_equal(mg_alloc_get_stats().live_blocks, blocks);
}

static void a_store_is_no_model(void **state) {
    mg_store *s = mg_store_new();
    (void)state;
    assert_int_equal(mg_store_save_as(s, path, "onnx"), MG_USAGE);
    mg_store_free(s);
}

static int make_folder(void **state) {
    (void)state;
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/m.onnx", folder);
    snprintf(data_path, sizeof data_path, "%s/w.data", folder);
    snprintf(link_path, sizeof link_path, "%s/w.link", folder);
    mg_device_set_default(mg_device_find("ref:0"));
    return symlink("w.data", link_path);
}

static int remove_folder(void **state) {
    (void)state;
    unlink(path), unlink(data_path), unlink(link_path);
    return rmdir(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_fields_of_a_graph_become_json),
        cmocka_unit_test(elements_of_every_form_are_read),
        cmocka_unit_test(damaged_messages_are_refused),
        cmocka_unit_test(long_graphs_are_refused),
        cmocka_unit_test(damaged_tensors_are_refused),
        cmocka_unit_test(external_data_stay_in_the_folder_of_the_model),
        cmocka_unit_test(bytes_of_external_data_are_read_once),
        cmocka_unit_test(a_model_has_at_most_64_files_of_external_data),
        cmocka_unit_test(a_file_that_becomes_shorter_is_refused),
        cmocka_unit_test(every_failing_allocation_and_file_call_is_survived),
        cmocka_unit_test(a_store_is_no_model),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
