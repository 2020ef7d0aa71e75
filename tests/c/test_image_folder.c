/* Folders of images: the walk through folders (io/folder), image headers (data/image_header), and
 * the source (data/sources/image_folder). Links in circles end; every allocation and file call
 * fails once. */
#include "core/alloc.h"
#include "core/io.h"
#include "core/plugin.h"
#include "core/threads.h"
#include "data/image.h"
#include "data/sources/image_folder.h"
#include <errno.h>
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
#include "free_cells.h"

#define IMAGES "tests/golden/images/"
static char top[] = "/tmp/mgpu_test_folder_XXXXXX";

/* "TOP/name", in one of four buffers that are used in turn. */
static const char *in_top(const char *name) {
    static char paths[4][512];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", top, name);
    return path;
}

static void write_file(const char *name, const void *bytes, size_t n) {
    FILE *f = fopen(in_top(name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

/* Copies one of the golden images. */
static void copy_image(const char *from, const char *to) {
    static char bytes[1 << 16];
    char path[256];
    snprintf(path, sizeof path, IMAGES "%s", from);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    const size_t n = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    write_file(to, bytes, n);
}

static void make_folder(const char *name) {
    assert_int_equal(mg_io_make_folder(in_top(name)), MG_OK);
}

/* Removes all that is in TOP. */
static int clear_top(void **state) {
    char command[600];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s && mkdir %s", top, top);
    return system(command);
}

static bool is_wanted(void *context, const char *name) {
    return !strstr(name, context);
}

/* Asserts the paths below TOP/folder, relative to TOP and separated by spaces. */
static void files_are(const char *folder, bool follow_links, const char *expected) {
    char found[2048] = "", unwanted[] = ".txt";
    mg_path_list l = {0};
    if (mg_folder_files(in_top(folder), follow_links, is_wanted, unwanted, &l) != MG_OK)
        fail_msg("%s", mg_error_message());
    for (int64_t i = 0; i < l.n; i++) {
        if (i) strcat(found, " ");
        strcat(found, mg_path_list_get(&l, i) + strlen(top) + 1);
    }
    mg_path_list_clear(&l);
    assert_string_equal(found, expected);
}

static void files_come_sorted_by_folder_and_name(void **state) {
    static const char *const names[] = {"c/b/2", "c/b/10", "c/z",     "c/a.b/1", "c/a/9",
                                        "c/Z",   "c/.h",   "c/x.txt", "c/a/n/0", "c/.d/1"};
    (void)state;
    make_folder("c/a/n"), make_folder("c/a.b"), make_folder("c/b"), make_folder("c/.d");
    make_folder("empty");
    for (int i = 0; i < 10; i++) write_file(names[i], "", 0);
    files_are("c", false, "c/Z c/z c/a/9 c/a.b/1 c/a/n/0 c/b/10 c/b/2");
    files_are("empty", false, "");
    mg_path_list l = {0};
    assert_int_equal(mg_folder_folders(in_top("c"), &l), MG_OK);
    assert_int_equal(l.n, 3);
    assert_string_equal(mg_path_list_get(&l, 1), "a.b");
    mg_path_list_clear(&l);
    assert_int_equal(mg_folder_folders(in_top("none"), &l), MG_IO);
    assert_non_null(strstr(mg_error_message(), "/none"));
}

static void links_in_circles_end(void **state) {
    (void)state;
    make_folder("c/sub"), make_folder("other/deep");
    write_file("c/1", "", 0), write_file("c/sub/2", "", 0), write_file("other/deep/3", "", 0);
    assert_int_equal(symlink("..", in_top("c/sub/up")), 0);
    assert_int_equal(symlink("../../other", in_top("c/sub/over")), 0);
    assert_int_equal(symlink("../c", in_top("other/back")), 0);
    assert_int_equal(symlink("deep", in_top("other/again")), 0);
    assert_int_equal(symlink("../other/deep/3", in_top("c/link")), 0);
    assert_int_equal(symlink("nowhere", in_top("c/dangling")), 0);
    assert_int_equal(symlink("c", in_top("top_link")), 0);
    files_are("c", false, "c/1 c/link c/sub/2");
    files_are("top_link", false, "top_link/1 top_link/link top_link/sub/2");
    files_are("c", true, "c/1 c/link c/sub/2 c/sub/over/again/3");
}

/* ---- headers ---- */

static void headers_agree_with_the_images(void **state) {
    static const char *const names[] = {"gray.png",       "rgb.png",     "rgba.png",
                                        "palette.png",    "rgb.jpg",     "gray_alpha.png",
                                        "gray.jpg",       "one_bit.png", "progressive.jpg",
                                        "interlaced.png", "gray16.png"};
    const char *why;
    (void)state;
    if (!mg_plugin_symbol("image", MG_IMAGE_SYMBOL, &why)) skip();
    for (int i = 0; i < 11; i++) {
        char path[256];
        mg_image header, image;
        snprintf(path, sizeof path, IMAGES "%s", names[i]);
        assert_int_equal(mg_image_probe(path, &header), MG_OK);
        assert_int_equal(mg_image_load(path, (mg_image_form){.channels = 0}, NULL, &image), MG_OK);
        mg_free(image.pixels);
        assert_int_equal(header.height, image.height);
        assert_int_equal(header.width, image.width);
        assert_int_equal(header.channels, image.channels);
        assert_null(header.pixels);
    }
}

/* The headers of the other formats tell the size, and WebP's whether there is alpha. */
static void headers_of_other_formats(void **state) {
    static const struct {
        const char *name;
        int channels;
    } files[] = {{"rgb.bmp", 3},         {"core.bmp", 3},         {"top_down.bmp", 3},
                 {"rle8.bmp", 3},        {"palette.gif", 3},      {"part.gif", 3},
                 {"transparent.gif", 3}, {"lossy.webp", 3},       {"lossless.webp", 3},
                 {"alpha.webp", 4},      {"lossy_alpha.webp", 4}, {"cmyk.jpg", 3}};
    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char path[256];
        mg_image header;
        snprintf(path, sizeof path, "tests/golden/image_formats/%s", files[i].name);
        assert_int_equal(mg_image_probe(path, &header), MG_OK);
        assert_int_equal(header.height, 7);
        assert_int_equal(header.width, 9);
        assert_int_equal(header.channels, files[i].channels);
    }
}

static void refuses_header(const void *bytes, size_t n, mg_status code, const char *message) {
    mg_image image;
    write_file("x", bytes, n);
    assert_int_equal(mg_image_probe(in_top("x"), &image), code);
    assert_non_null(strstr(mg_error_message(), in_top("x")));
    if (!strstr(mg_error_message(), message)) fail_msg("%s", mg_error_message());
}

static void damaged_headers_are_refused(void **state) {
    unsigned char bytes[1 << 15];
    mg_image image;
    (void)state;
    refuses_header("", 0, MG_DATA, "not a PNG, JPEG, BMP, GIF or WebP");
    refuses_header("GIF89a..", 8, MG_DATA, "ends within the header");
    refuses_header("GIF89a\1\0\0\0", 10, MG_DATA, "0 x 1 pixels");
    refuses_header("BM0123456789\x28\0\0\0\0\0", 18, MG_DATA,
                   "not a PNG, JPEG, BMP, GIF or WebP"); /* the size of the header is elsewhere */
    refuses_header("BM0123\0\0\0\0\0\0\0\0\x28\0\0\0\1\0\0\0\1\0\0", 25, MG_DATA,
                   "ends within the header");
    refuses_header("RIFF\x16\0\0\0WEBPVP8 \x0a\0\0\0xxxxxxxxxx", 30, MG_DATA,
                   "WebP: the header is damaged");
    refuses_header("RIFF\x16\0\0\0WEBPVP8L\x0a\0\0\0xxxxxxxxxx", 30, MG_DATA,
                   "WebP: the header is damaged");
    refuses_header("RIFF\x16\0\0\0WEBPxxxx\x0a\0\0\0xxxxxxxxxx", 30, MG_DATA,
                   "WebP: the header is damaged");
    refuses_header("RIFF\x16\0\0\0WEBPVP8 ", 16, MG_DATA, "ends within the header");
    FILE *f = fopen(IMAGES "rgb.png", "rb");
    assert_true(fread(bytes, 1, 33, f) == 33);
    fclose(f);
    refuses_header(bytes, 32, MG_DATA, "ends within the header");
    for (int i = 8; i < 33; i++) { /* every byte of the header has an effect */
        bytes[i] ^= 1;
        refuses_header(bytes, 33, MG_DATA, "damaged");
        bytes[i] ^= 1;
    }
    refuses_header("\xff\xd8\xff\xe0\0\x10", 6, MG_DATA, "ends within the header");
    refuses_header("\xff\xd8\xff\xd9\0\0", 6, MG_DATA, "there is no image");
    refuses_header("\xff\xd8\xff\xe0\0\2xxxx", 10, MG_DATA, "JPEG: the header is damaged");
    refuses_header("\xff\xd8\xff\xc0\0\x0b\x08\0\0\0\1\1", 12, MG_DATA, "0 x 1 pixels");
    refuses_header("\xff\xd8\xff\xc0\0\x0b\x08\xff\xff\0\1\1", 12, MG_DATA, "65535 x 1 pixels");
    memset(bytes, 0xff, sizeof bytes); /* fill bytes without end */
    bytes[1] = 0xd8;
    refuses_header(bytes, sizeof bytes, MG_DATA, "JPEG: the header is damaged");
    assert_int_equal(mg_image_probe(in_top("none"), &image), MG_IO);
    assert_int_equal(mg_image_probe(top, &image), MG_IO);
}

/* ---- the source ---- */

static const char *const EXTENSIONS[] = {"png", "jpg"};

static mg_image_folder all_of(const char *path) {
    return (mg_image_folder){
        .path = path, .labels = MG_LABELS_INT, .extensions = EXTENSIONS, .n_extensions = 2};
}

/* Three classes: a with two images, b with none, c with three, one of them damaged. */
static void make_classes(void) {
    make_folder("set/a"), make_folder("set/b"), make_folder("set/c");
    copy_image("rgb.png", "set/a/2.PNG");
    copy_image("gray.jpg", "set/a/1.jpg");
    copy_image("rgb.jpg", "set/c/1.jpg");
    copy_image("rgba.png", "set/c/3.png");
    write_file("set/c/2.png", "GIF88a", 6);
    write_file("set/c/readme", "", 0);
    write_file("set/0.png", "", 0); /* in no class */
}

static const mg_image_split ALL = {0};

static void images_are_read_with_their_labels(void **state) {
    const char *why;
    (void)state;
    if (!mg_plugin_symbol("image", MG_IMAGE_SYMBOL, &why)) skip();
    make_classes();
    mg_image_folder f = all_of(in_top("set"));
    mg_image_list *l = mg_image_list_new(&f);
    assert_non_null(l);
    assert_int_equal(mg_image_list_classes(l)->n, 3);
    mg_source *s = mg_image_folder_source(l, (mg_image_form){.channels = 3}, &ALL);
    mg_image_list_release(l);
    assert_int_equal(s->n_rows, 5);
    assert_true(mg_field_varies(&s->field[0]) && !mg_field_varies(&s->field[1]));
    static const int ids[] = {0, 0, 2, 2, 2};
    for (int64_t row = 0; row < 5; row++) {
        int32_t id = -1;
        mg_cell cell[2] = {{{0}, NULL}, {{0}, &id}};
        const mg_status status = mg_source_read(s, (mg_row_key){0, row}, cell);
        if (row == 3) {
            assert_int_equal(status, MG_DATA);
            assert_non_null(strstr(mg_error_message(), "image_folder: /tmp/"));
            assert_non_null(strstr(mg_error_message(), "set/c/2.png: not a PNG"));
        } else {
            assert_int_equal(status, MG_OK);
            assert_int_equal(cell[0].shape.dim[0], 11);
            assert_int_equal(cell[0].shape.dim[1], 13);
            assert_int_equal(cell[0].shape.dim[2], 3);
            assert_int_equal(id, ids[row]);
        }
        free_cells(s, cell);
    }
    mg_source_release(s);
}

static void bad_files_can_be_skipped(void **state) {
    (void)state;
    make_classes();
    mg_image_folder f = all_of(in_top("set"));
    f.skip_bad = true;
    mg_image_list *l = mg_image_list_new(&f);
    assert_int_equal(mg_image_list_skipped(l)->n, 1);
    assert_non_null(strstr(mg_path_list_get(mg_image_list_skipped(l), 0), "set/c/2.png"));
    mg_source *s = mg_image_folder_source(l, (mg_image_form){.channels = 3}, &ALL);
    assert_int_equal(s->n_rows, 4);
    char where[300];
    mg_source_describe(s, 3, where, sizeof where);
    assert_non_null(strstr(where, "set/c/3.png"));
    mg_source_release(s);
    mg_image_list_release(l);
}

/* Labels of the rows of class c, as categories, and of two classes. */
static void labels_have_other_forms(void **state) {
    const char *why;
    (void)state;
    if (!mg_plugin_symbol("image", MG_IMAGE_SYMBOL, &why)) skip();
    make_classes();
    mg_image_folder f = all_of(in_top("set"));
    f.labels = MG_LABELS_CATEGORICAL;
    mg_image_list *l = mg_image_list_new(&f);
    mg_source *s = mg_image_folder_source(l, (mg_image_form){.channels = 1}, &ALL);
    float y[3] = {-1, -1, -1};
    mg_cell cell[2] = {{{0}, NULL}, {{0}, y}};
    assert_int_equal(mg_source_read(s, (mg_row_key){0, 4}, cell), MG_OK);
    free_cells(s, cell);
    assert_true(y[0] == 0 && y[1] == 0 && y[2] == 1);
    mg_source_release(s);
    mg_image_list_release(l);

    static const char *const two[] = {"c", "a"};
    f.labels = MG_LABELS_BINARY;
    l = mg_image_list_new(&f);
    assert_null(mg_image_folder_source(l, (mg_image_form){.channels = 3}, &ALL));
    assert_int_equal(mg_error_code(), MG_USAGE);
    mg_image_list_release(l);
    f.classes = two, f.n_classes = 2;
    l = mg_image_list_new(&f);
    s = mg_image_folder_source(l, (mg_image_form){.channels = 1}, &ALL);
    for (int64_t row = 0; row < 4; row += 3) {
        mg_cell one[2] = {{{0}, NULL}, {{0}, y}};
        assert_int_equal(mg_source_read(s, (mg_row_key){0, row}, one), MG_OK);
        free_cells(s, one);
        assert_true(y[0] == (row == 3));
    }
    mg_source_release(s);
    mg_image_list_release(l);

    f = all_of(in_top("set"));
    f.labels = MG_LABELS_NONE;
    l = mg_image_list_new(&f);
    s = mg_image_folder_source(l, (mg_image_form){.channels = 1}, &ALL);
    assert_int_equal(s->n_rows, 6);
    assert_int_equal(s->n_fields, 1);
    mg_source_release(s);
    mg_image_list_release(l);
}

/* The first file of each row, by the label: files are told apart by their classes here. */
static void a_split_has_every_file_once(void **state) {
    enum { N = 40 };
    bool in_training[N];
    (void)state;
    for (int i = 0; i < N; i++) {
        char name[64];
        snprintf(name, sizeof name, "set/%02d", i);
        make_folder(name);
        strcat(name, "/x.png");
        copy_image("gray.png", name);
    }
    const char *why;
    if (!mg_plugin_symbol("image", MG_IMAGE_SYMBOL, &why)) skip();
    const mg_image_folder f = all_of(in_top("set"));
    mg_image_list *l = mg_image_list_new(&f);
    int32_t seen[2][N] = {{0}};
    for (int seed = 0; seed < 2; seed++)
        for (int part = 1; part <= 2; part++) {
            const mg_image_split split = {(mg_subset)part, 0.3, (uint64_t)seed};
            mg_source *s = mg_image_folder_source(l, (mg_image_form){.channels = 1}, &split);
            assert_int_equal(s->n_rows, part == MG_SUBSET_VALIDATION ? 12 : 28);
            for (int64_t row = 0, before = -1; row < s->n_rows; row++) {
                int32_t id;
                mg_cell cell[2] = {{{0}, NULL}, {{0}, &id}};
                assert_int_equal(mg_source_read(s, (mg_row_key){0, row}, cell), MG_OK);
                free_cells(s, cell);
                assert_true(id > before);
                before = id;
                seen[seed][id] += part;
            }
            mg_source_release(s);
        }
    mg_image_list_release(l);
    for (int i = 0; i < N; i++) {
        assert_true(seen[0][i] == 1 || seen[0][i] == 2);
        in_training[i] = seen[0][i] == 1;
    }
    assert_memory_not_equal(seen[0], seen[1], sizeof seen[0]);
    bool shuffled = false; /* not simply the last files */
    for (int i = 28; i < N; i++) shuffled |= in_training[i];
    assert_true(shuffled);
}

static void empty_folders_are_refused(void **state) {
    (void)state;
    make_folder("set/a");
    mg_image_folder f = all_of(in_top("set/a"));
    assert_null(mg_image_list_new(&f));
    assert_non_null(strstr(mg_error_message(), "set/a has no folders: each class is one"));
    f = all_of(in_top("set"));
    assert_null(mg_image_list_new(&f));
    assert_non_null(strstr(mg_error_message(), "there are no images in the folders of"));
    f.classes = (const char *const[]){"a", "z"}, f.n_classes = 2;
    assert_null(mg_image_list_new(&f));
    assert_non_null(strstr(mg_error_message(), "there is no folder"));
    f = all_of(in_top("none"));
    assert_null(mg_image_list_new(&f));
    assert_int_equal(mg_error_code(), MG_IO);
    copy_image("gray.png", "set/a/1.png");
    copy_image("gray.png", "set/a/2.png");
    f = all_of(in_top("set"));
    mg_image_list *l = mg_image_list_new(&f);
    const mg_image_split split = {MG_SUBSET_VALIDATION, 0.4, 0};
    assert_null(mg_image_folder_source(l, (mg_image_form){.channels = 3}, &split));
    assert_non_null(strstr(mg_error_message(), "of 2 images leaves none for validation"));
    mg_image_list_release(l);
}

/* ---- failures ---- */

static void arm_file(int64_t n) {
    mg_io_fail_after(n, EIO);
}

/* A file that cannot be read is no bad image, so skip_bad does not leave it out. */
static void survives(void (*arm)(int64_t n), mg_status code) {
    mg_image_folder f = all_of(in_top("set"));
    f.skip_bad = true;
    f.follow_links = true;
    const mg_image_split split = {MG_SUBSET_TRAINING, 0.4, 0};
    const int64_t blocks = mg_alloc_get_stats().live_blocks;
    mg_source *s = NULL;
    int64_t n = 1;
    for (; !s; n++) {
        arm(n);
        mg_image_list *l = mg_image_list_new(&f);
        s = l ? mg_image_folder_source(l, (mg_image_form){.channels = 3}, &split) : NULL;
        arm(0);
        if (l) assert_int_equal(mg_image_list_skipped(l)->n, 1);
        mg_image_list_release(l);
        assert_int_equal(mg_io_open_count(), 0);
        if (s) break;
        assert_int_equal(mg_error_code(), code);
        assert_int_equal(mg_alloc_get_stats().live_blocks, blocks);
    }
    assert_true(n > 15);
    mg_source_release(s);
}

static void every_failing_allocation_and_file_call_is_survived(void **state) {
    (void)state;
    make_classes();
    survives(mg_alloc_fail_after, MG_OOM);
    survives(arm_file, MG_IO);
    const mg_image_folder f = all_of(in_top("set"));
    mg_interrupt();
    assert_null(mg_image_list_new(&f));
    assert_int_equal(mg_error_code(), MG_INTERRUPTED);
}

static int make_top(void **state) {
    (void)state;
    return mkdtemp(top) ? 0 : -1;
}

static int check_all_freed(void **state) {
    if (clear_top(state) != 0 || rmdir(top) != 0) return -1;
    return mg_alloc_get_stats().live_blocks || mg_io_open_count() ? -1 : 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(files_come_sorted_by_folder_and_name, clear_top),
        cmocka_unit_test_setup(links_in_circles_end, clear_top),
        cmocka_unit_test_setup(headers_agree_with_the_images, clear_top),
        cmocka_unit_test(headers_of_other_formats),
        cmocka_unit_test_setup(damaged_headers_are_refused, clear_top),
        cmocka_unit_test_setup(images_are_read_with_their_labels, clear_top),
        cmocka_unit_test_setup(bad_files_can_be_skipped, clear_top),
        cmocka_unit_test_setup(labels_have_other_forms, clear_top),
        cmocka_unit_test_setup(a_split_has_every_file_once, clear_top),
        cmocka_unit_test_setup(empty_folders_are_refused, clear_top),
        cmocka_unit_test_setup(every_failing_allocation_and_file_call_is_survived, clear_top),
    };
    return cmocka_run_group_tests(tests, make_top, check_all_freed);
}
