/* Streams over the tests' own sources: cells that vary in shape, texts, transforms, rows that
 * cannot be read, and several threads. */
#define _GNU_SOURCE
#include "data/sources/sources.h"
#include "mixed_source.h"

/* ---- cells that vary ---- */

static void cells_that_vary_come_out_one_by_one(void **state) {
    (void)state;
    check_stream(mixed(4, 3), NULL, 0, 0,
                 "{} 0; {1} 0; {} 'row 0'; \n"
                 "{} 1; {2} 1 1; {} 'row 1'; \n"
                 "{} 2; {3} 2 2 2; {} 'row 2'; \n"
                 "{} 3; {1} 3; {} 'row 3'; \n");
}

/* A batch of one row, and one whose rows have equal shapes; texts need no equal lengths. */
static void equal_cells_make_a_batch(void **state) {
    (void)state;
    static const mg_stage shuffled[] = {SKIP(8), BATCH(2)}, outer[] = {BATCH(1), BATCH(2)};
    check_stream(mixed(11, 1), shuffled, 2, 1,
                 "{2} 8 9; {2, 1} 8 9; {2} 'row 8' 'row 9'; \n"
                 "{1} 10; {1, 1} 10; {1} 'row 10'; \n");
    check_stream(mixed(2, 2), outer, 2, 1,
                 "{1} 0; {1, 1} 0; {1} 'row 0'; {1} 1; {1, 2} 1 1; {1} 'row 1'; \n");
}

/* The error is returned after the elements before it, and again at each further call. */
static void unequal_cells_in_a_batch_are_an_error(void **state) {
    (void)state;
    static const mg_stage pairs[] = {SHUFFLE(1, 0), BATCH(2), SKIP(1)};
    mg_source *source = mixed(8, 3);
    for (int depth = 0; depth < 4; depth++) {
        mg_stream *s = open_stream(source, pairs, 3, 1, depth, depth + !depth);
        mg_element *e;
        for (int i = 0; i < 3; i++) {
            assert_int_equal(mg_stream_next(s, &e), MG_USAGE);
            assert_string_equal(
                mg_error_message(),
                "batch: rows 3 and 4 cannot be in one batch: their cells of field 2 have shapes "
                "{3} "
                "and {1}: bring them to one shape before :batch, or use :padded_batch");
        }
        mg_stream_free(s);
    }
    mg_source_release(source);
}

/* ---- threads ---- */

/* The same bytes with every number of threads and every depth, while some rows take longer. */
static void every_number_of_threads_gives_the_same(void **state) {
    (void)state;
    static const mg_stage stages[] = {SHUFFLE(50, 4), BATCH(9), CYCLE(2)};
    mg_source *source = mixed(50, 1);
    mg_stream *s = open_stream(source, stages, 3, 1, 0, 1);
    char *expected = print_stream(s);
    mg_stream_free(s);
    atomic_store(&((mixed_source *)source)->slow, 3);
    for (int threads = 1; threads <= 5; threads++)
        for (int depth = 1; depth <= 9; depth += 4) {
            atomic_store(&((mixed_source *)source)->reads, 0);
            s = open_stream(source, stages, 3, 1, depth, threads);
            char *out = print_stream(s);
            assert_string_equal(out, expected);
            assert_int_equal(atomic_load(&((mixed_source *)source)->reads), 100);
            free(out);
            mg_stream_free(s);
        }
    free(expected);
    mg_source_release(source);
}

/* The elements before a row that cannot be read are given; then comes the first such row's message,
 * as often as it is tried; when the row can be read, the rest comes. */
static void a_row_that_cannot_be_read_stops_its_element_only(void **state) {
    (void)state;
    static const mg_stage stages[] = {BATCH(10)};
    for (int threads = 0; threads <= 4; threads++) {
        mg_source *source = mixed(40, 1);
        mixed_source *m = (mixed_source *)source;
        atomic_store(&m->broken, 25);
        atomic_store(&m->slow, 25 % 7); /* the rows behind it fail before it does */
        mg_stream *s = open_stream(source, stages, 1, 1, threads, threads + !threads);
        mg_element *e;
        for (int i = 0; i < 2; i++) {
            assert_int_equal(mg_stream_next(s, &e), MG_OK);
            assert_int_equal(((int32_t *)e->value[0].buffer->data)[0], i * 10);
            mg_element_free(e);
        }
        for (int i = 0; i < 3; i++) {
            assert_int_equal(mg_stream_next(s, &e), MG_DATA);
            assert_string_equal(mg_error_message(), "mixed: row 25");
        }
        atomic_store(&m->broken, INT64_MAX);
        for (int i = 2; i < 4; i++) {
            assert_int_equal(mg_stream_next(s, &e), MG_OK);
            assert_int_equal(((int32_t *)e->value[0].buffer->data)[9], i * 10 + 9);
            mg_element_free(e);
        }
        assert_int_equal(mg_stream_next(s, &e), MG_OK);
        assert_null(e);
        mg_stream_free(s);
        mg_source_release(source);
    }
}

/* With a broken row ahead, too. */
static void a_stream_of_several_threads_may_be_left_at_any_time(void **state) {
    (void)state;
    static const mg_stage stages[] = {SHUFFLE(30, 1), BATCH(4), CYCLE(MG_ENDLESS)};
    for (int taken = 0; taken < 4; taken++)
        for (int threads = 1; threads <= 4; threads++) {
            mg_source *source = mixed(60, 1);
            atomic_store(&((mixed_source *)source)->broken, 55);
            mg_stream *s = open_stream(source, stages, 3, 1, 3, threads);
            mg_source_release(source);
            for (int i = 0; i < taken; i++) {
                mg_element *e;
                if (mg_stream_next(s, &e) == MG_OK) mg_element_free(e);
            }
            mg_stream_free(s);
        }
}

/* ---- transforms ---- */

/* Adds 1000 * epoch + add to the numbers of a cell; `grow` appends one more number, so that the
 * cell varies; `fix` gives the first number alone. */
typedef struct test_transform {
    mg_transform base;
    int add, grow, fix;
} test_transform;

static mg_status infer_test(const mg_transform *base, const mg_field *in, mg_field *out) {
    const test_transform *t = (const test_transform *)base;
    if (in->text) return mg_fail(MG_USAGE, "test: not for a text");
    *out = *in;
    if (t->grow) out->shape = MG_SHAPE(-1);
    if (t->fix) out->shape = MG_SHAPE();
    return MG_OK;
}

static mg_status apply_test(const mg_transform *base, mg_row_key key, const mg_field *field,
                            const mg_cell *in, mg_cell *out) {
    const test_transform *t = (const test_transform *)base;
    const int64_t n = mg_shape_count(&in->shape);
    const int32_t *src = in->data;
    assert_int_equal(field->dtype, MG_I32);
    if (!out->data) {
        out->shape = MG_SHAPE(n + t->grow);
        if (!(out->data = mg_alloc((size_t)(n + t->grow) * sizeof(int32_t)))) return MG_OOM;
    }
    int32_t *dst = out->data;
    for (int64_t i = 0; i < mg_shape_count(&out->shape); i++)
        dst[i] = (i < n ? src[i] : (int32_t)key.row) + 1000 * (int32_t)key.epoch + t->add;
    return MG_OK;
}

static void free_test(mg_transform *t) {
    mg_free(t);
}

static const mg_transform_api test_api = {
    .name = "test", .infer = infer_test, .apply = apply_test, .free = free_test};

/* The source with a transform more; takes the reference to the source. */
static mg_source *with(mg_source *source, int field, int add, int grow, int fix) {
    test_transform *t = mg_transform_alloc(&test_api, sizeof *t);
    assert_non_null(t);
    t->add = add, t->grow = grow, t->fix = fix;
    mg_source *made = mg_transformed_source(source, field, &t->base);
    assert_non_null(made);
    mg_transform_release(&t->base);
    mg_source_release(source);
    return made;
}

/* One step; several, in which sizes are fixed, vary, and are fixed again; two fields. */
static void transforms_act_one_after_another(void **state) {
    (void)state;
    check_stream(with(mixed(2, 1), NUMBER, 5, 0, 0), NULL, 0, 0,
                 "{} 5; {1} 0; {} 'row 0'; \n"
                 "{} 6; {1} 1; {} 'row 1'; \n");
    mg_source *s = with(mixed(2, 1), NUMBER, 5, 0, 0);
    s = with(with(with(s, NUMBER, 0, 1, 0), NUMBER, 100, 1, 0), NUMBER, 0, 0, 0);
    check_stream(mg_source_retain(s), NULL, 0, 0,
                 "{3} 105 100 100; {1} 0; {} 'row 0'; \n"
                 "{3} 106 101 101; {1} 1; {} 'row 1'; \n");
    check_stream(with(s, NUMBER, 1, 0, 1), NULL, 0, 0,
                 "{} 106; {1} 0; {} 'row 0'; \n"
                 "{} 107; {1} 1; {} 'row 1'; \n");
}

/* Each round of a cycle, and each pass, has an epoch; a shuffle over several rounds keeps each
 * row's epoch. */
static void transforms_know_the_epoch(void **state) {
    (void)state;
    static const mg_stage rounds[] = {CYCLE(3), BATCH(6)},
                          mixed_rounds[] = {CYCLE(2), SHUFFLE(4, 1), BATCH(4)};
    mg_tensor *column = numbers(MG_I32, 2);
    mg_source *source = with(mg_tensors_source(&column, 1), 0, 0, 0, 0);
    mg_tensor_release(column);
    mg_stream_spec spec = spec_of(source, rounds, 2);
    spec.dense = 1;
    static const char *const passes[] = {"{6} 0 1 1000 1001 2000 2001; \n",
                                         "{6} 3000 3001 4000 4001 5000 5001; \n"};
    for (spec.pass = 0; spec.pass < 2; spec.pass++) {
        mg_stream *s = mg_stream_new(&spec);
        char *out = print_stream(s);
        assert_string_equal(out, passes[spec.pass]);
        free(out);
        mg_stream_free(s);
    }
    check_stream(source, mixed_rounds, 3, 1, "{4} 1000 1001 1 0; \n");
}

/* Before the first row, and without leaks. */
static void a_transform_that_does_not_fit_is_refused(void **state) {
    (void)state;
    mg_source *source = with(mixed(2, 1), NUMBER, 5, 0, 0);
    test_transform *t = mg_transform_alloc(&test_api, sizeof *t);
    assert_null(mg_transformed_source(source, TEXT, &t->base));
    assert_string_equal(mg_error_message(), "test: not for a text");
    mg_transform_release(&t->base);
    mg_source_release(source);
}

/* ---- short memory ---- */

/* The text of a stream of which the fail_at-th allocation fails, with the number of failures, each
 * MG_OOM. */
static char *text_in_spite_of(const mg_stream_spec *spec, int64_t fail_at, int *n_failures) {
    enum { ROOM = 1 << 16 };
    char *out = malloc(ROOM);
    size_t n = 0;
    *n_failures = 0;
    mg_alloc_fail_after(fail_at);
    mg_stream *s = mg_stream_new(spec);
    if (!s) ++*n_failures, s = mg_stream_new(spec);
    assert_non_null(s);
    for (;;) {
        mg_element *e;
        const mg_status status = mg_stream_next(s, &e);
        if (status != MG_OK) {
            assert_int_equal(status, MG_OOM);
            ++*n_failures;
            continue;
        }
        if (!e) break;
        n += print_element(e, out + n, ROOM - n);
        mg_element_free(e);
    }
    mg_stream_free(s);
    mg_alloc_fail_after(0);
    return out;
}

/* Each allocation of a stream's life fails once: with cells that vary, texts and transforms, in the
 * caller's thread and in three. */
static void failing_memory_changes_nothing(void **state) {
    (void)state;
    static const mg_stage stages[] = {SHUFFLE(9, 1), BATCH(4), CYCLE(2)};
    mg_source *source = with(with(mixed(9, 1), NUMBER, 5, 1, 0), NUMBER, 0, 0, 1);
    mg_stream_spec spec = spec_of(source, stages, 3);
    spec.dense = 1;
    spec.threads = 3;
    for (spec.depth = 0; spec.depth < 4; spec.depth += 3) {
        int failures, fail_at = 1;
        char *expected = text_in_spite_of(&spec, 0, &failures);
        assert_int_equal(failures, 0);
        /* Until there is no such allocation any more. */
        for (bool failed = true; failed; fail_at++) {
            char *out = text_in_spite_of(&spec, fail_at, &failures);
            assert_string_equal(out, expected);
            free(out);
            assert_true(failures <= 1);
            failed = failures;
        }
        assert_true(fail_at > 50);
        free(expected);
    }
    mg_source_release(source);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cells_that_vary_come_out_one_by_one),
        cmocka_unit_test(equal_cells_make_a_batch),
        cmocka_unit_test(unequal_cells_in_a_batch_are_an_error),
        cmocka_unit_test(every_number_of_threads_gives_the_same),
        cmocka_unit_test(a_row_that_cannot_be_read_stops_its_element_only),
        cmocka_unit_test(a_stream_of_several_threads_may_be_left_at_any_time),
        cmocka_unit_test(transforms_act_one_after_another),
        cmocka_unit_test(transforms_know_the_epoch),
        cmocka_unit_test(a_transform_that_does_not_fit_is_refused),
        cmocka_unit_test(failing_memory_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, nothing_is_left);
}
