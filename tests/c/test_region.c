/* What of an image is wanted (data/region.h), from a transform to the source: a source that makes
 * nothing else gives the same rows, through every kind of source between the two. */
#include "core/alloc.h"
#include "data/sources/sources.h"
#include "data/transforms/augment.h"
#include "free_cells.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

enum { ROWS = 12, FIELDS = 2, CHANNELS = 3 };

/* Images of different sizes in both fields. */
typedef struct image_source {
    mg_source base;
    bool whole; /* makes whole images; else pixels outside the wanted region are poisoned */
    int64_t wanted, made; /* pixels */
} image_source;

static uint8_t pixel_byte(int64_t row, int field, int64_t at) {
    return (uint8_t)((uint32_t)(row * 31 + field * 17 + at) * 2654435761u >> 24);
}

static mg_status make_image(image_source *s, int64_t row, int field, const mg_wanted *wanted,
                            mg_cell *cell) {
    const int64_t height = 20 + row * 3 % 11, width = 25 + row * 5 % 13;
    mg_region r = {.height = height, .width = width};
    if (wanted && !s->whole) {
        MG_TRY(wanted->region(wanted, height, width, &r));
        assert_true(r.row >= 0 && r.height >= 1 && r.row + r.height <= height);
        assert_true(r.column >= 0 && r.width >= 1 && r.column + r.width <= width);
    }
    s->wanted += r.height * r.width;
    s->made += height * width;
    uint8_t *p = mg_alloc((size_t)(height * width * CHANNELS));
    if (!p) return MG_OOM;
    *cell = (mg_cell){MG_SHAPE(height, width, CHANNELS), p};
    for (int64_t i = 0; i < height; i++)
        for (int64_t k = 0; k < width * CHANNELS; k++, p++) {
            const int64_t j = k / CHANNELS;
            const bool inside =
                i >= r.row && i < r.row + r.height && j >= r.column && j < r.column + r.width;
            *p = inside ? pixel_byte(row, field, i * width * CHANNELS + k) : 0xee;
        }
    return MG_OK;
}

static mg_status read_images(mg_source *base, mg_row_key key, const mg_wanted *const wanted[],
                             mg_cell cell[]) {
    for (int k = 0; k < FIELDS; k++)
        MG_TRY(make_image((image_source *)base, key.row, k, wanted ? wanted[k] : NULL, &cell[k]));
    return MG_OK;
}

static void free_images(mg_source *s) {
    mg_free(s);
}

static const mg_source_api image_api = {
    .name = "images", .read_wanted = read_images, .free = free_images};

static mg_source *images(bool whole) {
    image_source *s = mg_source_alloc(&image_api, sizeof *s, FIELDS);
    assert_non_null(s);
    s->whole = whole;
    s->base.n_rows = ROWS;
    for (int k = 0; k < FIELDS; k++)
        s->base.field[k] = (mg_field){.dtype = MG_U8, .shape = MG_SHAPE(-1, -1, CHANNELS)};
    return &s->base;
}

/* Takes the reference to the source. */
static mg_source *augmented(mg_source *s, int field, const mg_augment_spec *spec) {
    mg_transform *t = mg_augment_new(spec);
    assert_non_null(t);
    mg_source *made = mg_transformed_source(s, field, t);
    assert_non_null(made);
    mg_transform_release(t);
    mg_source_release(s);
    return made;
}

/* Compares the rows of two epochs; takes the references to the sources. */
static void assert_same_rows(mg_source *a, mg_source *b) {
    for (mg_row_key key = {0}; key.epoch < 2; key.epoch++)
        for (key.row = 0; key.row < a->n_rows; key.row++) {
            char room[2][FIELDS * 2][4096];
            mg_cell cell[2][FIELDS * 2];
            mg_source *const sources[] = {a, b};
            for (int i = 0; i < 2; i++) {
                for (int k = 0; k < a->n_fields; k++)
                    cell[i][k] = mg_field_varies(&a->field[k])
                                     ? (mg_cell){0}
                                     : (mg_cell){a->field[k].shape, room[i][k]};
                assert_int_equal(mg_source_read(sources[i], key, cell[i]), MG_OK);
            }
            for (int k = 0; k < a->n_fields; k++) {
                const size_t n = mg_cell_bytes(&a->field[k], &cell[0][k].shape);
                assert_true(mg_shape_equal(&cell[0][k].shape, &cell[1][k].shape));
                assert_memory_equal(cell[0][k].data, cell[1][k].data, n);
            }
            for (int i = 0; i < 2; i++) free_cells(a, cell[i]);
        }
    mg_source_release(a);
    mg_source_release(b);
}

#define AREA                                                                                       \
    { true, 0.1, 0.6 }
#define ASPECT                                                                                     \
    { true, 0.5, 2 }

/* ---- each transform ---- */

/* The share of the pixels that the transform wants, in 100. */
static int share_wanted(const mg_augment_spec *spec) {
    mg_source *all = augmented(images(true), 0, spec), *part = images(false);
    image_source *s = (image_source *)mg_source_retain(part);
    assert_same_rows(all, augmented(part, 0, spec));
    s->wanted -= s->made / 2; /* the other field */
    const int share = (int)(200 * s->wanted / s->made);
    mg_source_release(&s->base);
    return share;
}

/* Transforms of the first field, and whether they need all of its images. */
static const struct {
    mg_augment_spec spec;
    bool all;
} cases[] = {
    {{.dtype = -1, .crop_height = 9, .crop_width = 8}, false},
    {{.dtype = -1, .crop_height = 9, .crop_width = 8, .horizontal_flip = 0.5}, false},
    {{.dtype = MG_F32, .center_height = 7, .center_width = 10, .vertical_flip = 0.5}, false},
    {{.dtype = -1, .center_height = 15, .center_width = 16, .crop_height = 5, .crop_width = 6},
     false},
    {{.dtype = -1,
      .crop_height = 18,
      .crop_width = 18,
      .padding_rows = 4,
      .padding_columns = 9,
      .padding_fill = MG_FILL_CONSTANT},
     false},
    {{.dtype = -1,
      .crop_height = 18,
      .crop_width = 18,
      .padding_rows = 4,
      .padding_columns = 4,
      .padding_fill = MG_FILL_REFLECT},
     false},
    {{.dtype = -1, .zoomed_height = 12, .zoomed_width = 13, .area = AREA, .aspect = ASPECT}, false},
    {{.dtype = -1,
      .resize_kind = MG_RESIZE_NEAREST,
      .zoomed_height = 12,
      .zoomed_width = 13,
      .area = AREA,
      .aspect = ASPECT,
      .rotation = {true, -20, 20}},
     false},
    {{.dtype = MG_F32,
      .resize_kind = MG_RESIZE_AREA,
      .zoomed_height = 4,
      .zoomed_width = 3,
      .area = AREA,
      .aspect = ASPECT,
      .contrast = {true, 0.5, 1.5}},
     false},
    {{.dtype = -1, .antialias = true, .resize_shorter = 9, .center_height = 6, .center_width = 6},
     false},
    {{.dtype = -1, .resize_height = 30, .resize_width = 9, .crop_height = 11, .crop_width = 4},
     false},
    {{.dtype = -1, .resize_height = 9, .resize_width = 9}, true},
    {{.dtype = -1, .rotation = {true, -20, 20}}, true},
    {{.dtype = -1, .height_shift = {.kind = MG_SHIFT_WHOLE, .lo = -3, .hi = 3}}, true},
};

static void each_transform_reads_no_more_than_it_wants(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int share = share_wanted(&cases[i].spec);
        if (cases[i].all)
            assert_int_equal(share, 100);
        else
            assert_in_range(share, 1, 80);
    }
}

/* The first axis of an image whose channels come first is not its rows. */
static void channels_first_wants_all(void **state) {
    (void)state;
    const mg_augment_spec spec = {
        .dtype = -1, .channels_first = true, .crop_height = 9, .crop_width = 2};
    assert_int_equal(share_wanted(&spec), 100);
}

/* apply reports the error, as it does for a whole image. */
static void an_image_that_is_too_small_is_an_error_of_the_transform(void **state) {
    (void)state;
    const mg_augment_spec spec = {.dtype = -1, .crop_height = 100, .crop_width = 2};
    mg_source *s = augmented(images(false), 0, &spec);
    mg_cell cell[FIELDS] = {{{0}, NULL}};
    char room[100 * 2 * CHANNELS];
    cell[0] = (mg_cell){MG_SHAPE(100, 2, CHANNELS), room};
    assert_int_equal(mg_source_read(s, (mg_row_key){0}, cell), MG_DATA);
    assert_non_null(strstr(mg_error_message(), "random_crop wants 100 rows, but the image has 20"));
    mg_free(cell[1].data);
    mg_source_release(s);
}

/* ---- sources between the transform and the images ---- */

static const mg_augment_spec CROP = {.dtype = -1, .seed = 5, .crop_height = 9, .crop_width = 8};
static const mg_augment_spec ZOOM = {.dtype = -1,
                                     .seed = 6,
                                     .zoomed_height = 7,
                                     .zoomed_width = 11,
                                     .area = {true, 0.1, 0.6},
                                     .aspect = {true, 0.5, 2}};

/* Only the first transform of a field decides the wanted region. */
static mg_source *in_steps(bool whole) {
    mg_source *s = augmented(images(whole), 1, &ZOOM);
    s = augmented(s, 0, &CROP);
    const mg_augment_spec second = {.dtype = -1, .crop_height = 3, .crop_width = 3};
    return augmented(augmented(s, 1, &second), 0, &second);
}

/* A flip alone needs the whole image, even if a crop follows. */
static mg_source *flipped_first(bool whole) {
    const mg_augment_spec flip = {.dtype = -1, .horizontal_flip = 0.5};
    return augmented(augmented(images(whole), 0, &flip), 0, &CROP);
}

static mg_source *joined(mg_source *(*join)(mg_source *const *, int), mg_source *a, mg_source *b) {
    mg_source *const parts[] = {a, b};
    mg_source *s = join(parts, 2);
    assert_non_null(s);
    mg_source_release(a);
    mg_source_release(b);
    return s;
}

/* Some fields of the parts have transforms already: the outer transforms then do not choose the
 * region that is read from the images. */
static mg_source *zipped(bool whole) {
    mg_source *s = joined(mg_zipped_source, augmented(images(whole), 1, &CROP),
                          augmented(images(whole), 0, &ZOOM));
    for (int k = 0; k < 4; k++) {
        const mg_augment_spec spec = {
            .dtype = -1, .seed = (uint64_t)k, .crop_height = 3, .crop_width = 2};
        s = augmented(s, k, &spec);
    }
    return s;
}

static mg_source *concatenated(bool whole) {
    mg_source *s =
        joined(mg_concatenated_source, images(whole), augmented(images(whole), 1, &CROP));
    return augmented(augmented(s, 0, &CROP), 1, &ZOOM);
}

/* The cache keeps rows of the first epoch, and its readers need other regions in the second. */
static mg_source *cached(bool whole) {
    mg_source *inner = images(whole), *s = mg_cached_source(inner);
    assert_non_null(s);
    mg_source_release(inner);
    return augmented(augmented(s, 0, &CROP), 1, &ZOOM);
}

static void every_source_passes_on_what_is_wanted(void **state) {
    (void)state;
    assert_same_rows(in_steps(true), in_steps(false));
    assert_same_rows(flipped_first(true), flipped_first(false));
    assert_same_rows(zipped(true), zipped(false));
    assert_same_rows(concatenated(true), concatenated(false));
    assert_same_rows(cached(true), cached(false));
}

/* ---- short memory ---- */

/* Each allocation while a row is read fails once, also while the wanted region is determined. */
static void memory_that_runs_out_is_reported(void **state) {
    (void)state;
    mg_source *s = augmented(images(false), 1, &ZOOM);
    mg_status status = MG_OOM;
    int n = 0;
    const int64_t live = mg_alloc_get_stats().live_blocks;
    while (status != MG_OK && ++n < 100) {
        mg_cell cell[FIELDS] = {{{0}, NULL}};
        char room[7 * 11 * CHANNELS];
        cell[1] = (mg_cell){MG_SHAPE(7, 11, CHANNELS), room};
        mg_alloc_fail_after(n);
        status = mg_source_read(s, (mg_row_key){0}, cell);
        mg_alloc_fail_after(0);
        assert_true(status == MG_OK || status == MG_OOM);
        mg_free(cell[0].data);
        assert_int_equal(mg_alloc_get_stats().live_blocks, live);
    }
    assert_int_equal(status, MG_OK);
    assert_true(n > 5);
    mg_source_release(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_transform_reads_no_more_than_it_wants),
        cmocka_unit_test(channels_first_wants_all),
        cmocka_unit_test(an_image_that_is_too_small_is_an_error_of_the_transform),
        cmocka_unit_test(every_source_passes_on_what_is_wanted),
        cmocka_unit_test(memory_that_runs_out_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
