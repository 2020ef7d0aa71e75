/* The sources of generated kernels compile with the real NVRTC, which needs no GPU, for both
 * architectures that we build for. */
#include "core/alloc.h"
#include "core/dtype.h"
#include "device/cuda/codegen/codegen.h"
#include "ops/elementwise.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const int capabilities[][2] = {{8, 0}, {9, 0}};

/* Dtypes that kernels compute in double. */
static bool is_wide(mg_dtype t) {
    return t == MG_F64 || t == MG_I32 || t == MG_I64;
}

static char *source_of(const mg_fused *e, const mg_fused_form *form) {
    mg_string_buffer text = {0};
    mg_fused_source(&text, e, form);
    assert_int_equal(mg_string_buffer_status(&text), MG_OK);
    return text.s;
}

static void skip_without_compiler(void) {
    char version[16];
    unsetenv("MGPU_CUDA_LIBRARIES");
    if (mg_nvrtc_open(version) == MG_OK) return;
    print_message("skip: %s\n", mg_error_message());
    skip();
}

/* For the architecture of this number among the capabilities, to machine code (ELF). */
static void assert_text_compiles(const char *source, size_t which) {
    void *image = NULL;
    size_t bytes = 0;
    const mg_status status = mg_nvrtc_compile("source", source, capabilities[which][0],
                                              capabilities[which][1], &image, &bytes);
    if (status != MG_OK) fail_msg("%s\n%s", mg_error_message(), source);
    assert_memory_equal(image, "\177ELF", 4);
    mg_free(image);
}

/* The source of a group, for all architectures. */
static void assert_compiles(const mg_fused *e, const mg_fused_form *form) {
    char *source = source_of(e, form);
    for (size_t i = 0; i < sizeof capabilities / sizeof *capabilities; i++)
        assert_text_compiles(source, i);
    mg_free(source);
}

/* A group of three inputs and an immediate that contains every op once, each with dtype `result`.
 */
static mg_fused all_ops(mg_dtype in, mg_dtype result) {
    static const uint8_t arity[] = {
#define UNARY(name, ...) 1,
#define BINARY(name, ...) 2,
#define TERNARY(name, ...) 3,
#include "ops/elementwise.def"
#undef UNARY
#undef BINARY
#undef TERNARY
    };
    mg_fused e = {.n_inputs = 3,
                  .n_imms = 1,
                  .n_instrs = MG_N_ELEMENTWISE,
                  .n_outputs = 2,
                  .wide = is_wide(in) || is_wide(result),
                  .in_dtype = {(uint8_t)in, (uint8_t)in, (uint8_t)in},
                  .imm = {-0.0},
                  .output = {4, 4 + MG_EW_where}};
    _Static_assert(MG_N_ELEMENTWISE <= MG_FUSE_MAX_INSTRS, "all ops fit into a group");
    for (int i = 0; i < MG_N_ELEMENTWISE; i++)
        e.instr[i] = (mg_instr){.op = (uint8_t)i,
                                .dtype = (uint8_t)result,
                                .n_args = arity[i],
                                .arg = {(int16_t)(i % 4), (int16_t)((i + 1) % 4), 2}};
    return e;
}

static void every_op_compiles_for_every_dtype(void **state) {
    (void)state;
    skip_without_compiler();
    for (int type = 0; type < MG_N_DTYPES; type++) {
        const mg_fused e = all_ops((mg_dtype)type, (mg_dtype)type);
        const mg_fused_form form = {.vector = e.wide ? 2 : 4,
                                    .tensors = 1,
                                    .wide_index = true,
                                    .out_dtype = {(uint8_t)type, (uint8_t)type}};
        assert_compiles(&e, &form);
    }
}

/* Each input is cast to another dtype; those computed in double need a wide group. */
static void casts_between_all_dtypes_compile(void **state) {
    (void)state;
    skip_without_compiler();
    for (int wide = 0; wide < 2; wide++) {
        mg_fused e = {.wide = wide};
        mg_fused_form form = {.vector = 1, .tensors = 1, .wide_index = true};
        for (int type = 0; type < MG_N_DTYPES; type++) {
            if (!wide && is_wide((mg_dtype)type)) continue;
            e.in_dtype[e.n_inputs++] = (uint8_t)type;
            form.out_dtype[e.n_outputs++] = (uint8_t)type;
        }
        for (int i = 0; i < e.n_outputs; i++, e.n_instrs++) {
            const int from = (i + 1) % e.n_inputs;
            e.instr[i] = (mg_instr){
                .op = MG_EW_cast, .dtype = form.out_dtype[i], .n_args = 1, .arg = {(int16_t)from}};
            e.output[i] = (int16_t)(e.n_inputs + i);
        }
        assert_compiles(&e, &form);
    }
}

/* relu(x * scale + bias), where the tests index scale as a single element, and bias along the last
 * axis or broadcast along it. */
static mg_fused scaled(mg_dtype type) {
    return (mg_fused){.n_inputs = 3,
                      .n_instrs = 3,
                      .n_outputs = 1,
                      .in_dtype = {(uint8_t)type, MG_F32, MG_BF16},
                      .instr = {{MG_EW_mul, MG_F32, 2, {0, 1, 0}},
                                {MG_EW_add, MG_F32, 2, {3, 2, 0}},
                                {MG_EW_relu, (uint8_t)type, 1, {4, 0, 0}}},
                      .output = {5}};
}

/* All vector lengths, flat and with axes, one tensor and many. */
static void every_form_compiles(void **state) {
    (void)state;
    skip_without_compiler();
    for (int vector = 1; vector <= 8; vector *= 2)
        for (int rank = 0; rank <= 4; rank += 2) {
            const mg_fused e = scaled(MG_BF16);
            const mg_fused_form form = {.rank = rank,
                                        .vector = vector,
                                        .tensors = rank == 0 && vector > 1 ? 64 : 1,
                                        .wide_index = rank == 0 || vector == 2,
                                        .way = {MG_WAY_WHOLE, MG_WAY_ONE,
                                                (uint8_t)(rank == 0     ? MG_WAY_WHOLE
                                                          : vector == 4 ? MG_WAY_ACROSS
                                                                        : MG_WAY_ALONG)},
                                        .out_dtype = {MG_BF16}};
            assert_compiles(&e, &form);
        }
}

/* For a GPU that NVRTC does not know it gives PTX, in which the width of stores can be read. */
static void vectors_are_written_whole(void **state) {
    static const mg_dtype types[] = {MG_F32, MG_F16, MG_U8};
    (void)state;
    skip_without_compiler();
    for (int i = 0; i < 3; i++) {
        const mg_fused e = scaled(types[i]);
        const mg_fused_form form = {.vector = 8,
                                    .tensors = 64,
                                    .wide_index = true,
                                    .way = {MG_WAY_WHOLE, MG_WAY_ONE, MG_WAY_WHOLE},
                                    .out_dtype = {(uint8_t)types[i]}};
        char *source = source_of(&e, &form);
        void *image = NULL;
        size_t bytes = 0;
        assert_int_equal(mg_nvrtc_compile("source", source, 9, 9, &image, &bytes), MG_OK);
        assert_non_null(strstr(image, types[i] == MG_U8 ? "st.global.v2.b32" : "st.global.v4.b32"));
        mg_free(image);
        mg_free(source);
    }
}

/* A group that also sums the columns of a result: flat and with axes, in every floating dtype. */
static void sums_of_columns_compile(void **state) {
    static const mg_dtype types[] = {MG_F32, MG_F16, MG_BF16, MG_F64};
    (void)state;
    skip_without_compiler();
    for (int i = 0; i < 8; i++) {
        const mg_dtype type = types[i / 2];
        const int rank = i % 2 ? 2 : 0;
        mg_fused e = scaled(type);
        e.wide = is_wide(type);
        e.n_outputs = 2;
        e.output[1] = 4;
        const mg_fused_form form = {
            .rank = rank,
            .vector = i % 3 ? 4 : 1,
            .tensors = 1,
            .summed = 1,
            .wide_index = rank == 0,
            .way = {MG_WAY_WHOLE, MG_WAY_ONE, (uint8_t)(rank == 0 ? MG_WAY_WHOLE : MG_WAY_ALONG)},
            .out_dtype = {(uint8_t)type, MG_F32}};
        char *source = source_of(&e, &form);
        assert_non_null(strstr(source, is_wide(type) ? "SUM type_f64\n" : "SUM type_f32\n"));
        assert_non_null(strstr(source, "        sum[k] += (SUM)y.at[0];\n"));
        for (size_t k = 0; k < sizeof capabilities / sizeof *capabilities; k++)
            assert_text_compiles(source, k);
        mg_free(source);
    }
}

/* A group whose result is spread over the windows of a max pool, or that reads a pooled image. */
static void groups_with_pools_compile(void **state) {
    static const mg_dtype types[] = {MG_F32, MG_F16, MG_BF16, MG_F64};
    (void)state;
    skip_without_compiler();
    for (int i = 0; i < 8; i++) {
        const mg_dtype type = types[i / 2];
        mg_fused e = scaled(type);
        e.wide = is_wide(type);
        const mg_fused_form form = {.vector = i % 3 ? 4 : 1,
                                    .tensors = 1,
                                    .summed = i < 4 && i % 2,
                                    .wide_index = i % 4 == 0,
                                    .way = {MG_WAY_WHOLE, MG_WAY_ONE, MG_WAY_WHOLE},
                                    .out_dtype = {(uint8_t)type, (uint8_t)type},
                                    .pool = {i < 4, i >= 4, i >= 6, 9, 8, 16, 4, 4, 2, 2, 2, 2}};
        char *source = source_of(&e, &form);
        assert_non_null(strstr(source, i < 4 ? "    spread_vector(t, at.i, y0);\n"
                                             : " x0 = pooled_vector(t, at.i);\n"));
        for (size_t k = 0; k < sizeof capabilities / sizeof *capabilities; k++)
            assert_text_compiles(source, k);
        mg_free(source);
    }
}

/* ---- kernels in headers, of which only the macros are generated ---- */

/* Reductions in all forms: rows by teams of threads of all sizes, columns, pieces, and the second
 * pass that joins pieces. All pairs of op and form are compiled, with the dtypes taking turns. */
static void reductions_compile(void **state) {
    static const char *const ops[] = {"SUM", "PROD", "MAX", "MIN", "ALL", "ANY", "ARG"};
    static const struct {
        int rows, team, from_partial, to_partial, vector, kept, reduced, wide_index;
    } forms[] = {{1, 1, 0, 0, 4, 1, 1, 0},   {1, 8, 0, 0, 2, 1, 2, 0},   {1, 32, 0, 0, 1, 3, 3, 1},
                 {1, 256, 0, 1, 4, 1, 1, 0}, {1, 256, 1, 0, 1, 1, 1, 0}, {0, 1, 0, 1, 4, 1, 1, 0},
                 {0, 1, 1, 0, 1, 1, 1, 0},   {0, 1, 0, 0, 2, 2, 2, 1}};
    enum { N_OPS = sizeof ops / sizeof *ops, N_FORMS = sizeof forms / sizeof *forms };
    (void)state;
    skip_without_compiler();
    for (int i = 0; i < N_OPS * N_FORMS; i++) {
        const int form = i / N_OPS, op = i % N_OPS, type = i % MG_N_DTYPES;
        mg_string_buffer t = {0};
        for (int k = 0; k < N_OPS; k++)
            mg_string_buffer_add(&t, "#define IS_%s %d\n", ops[k], k == op);
        mg_string_buffer_add(&t, "#define WIDE %d\n#define INTEGER %d\n#define WIDE_INDEX %d\n",
                             type == MG_F64, !mg_dtype_is_float((mg_dtype)type),
                             forms[form].wide_index);
        mg_string_buffer_add(
            &t, "#define ROWS %d\n#define TEAM %d\n#define THREADS 256\n#define RUN 64\n",
            forms[form].rows, forms[form].team);
        mg_string_buffer_add(&t,
                             "#define IN_PARTIAL %d\n#define OUT_PARTIAL %d\n#define VECTOR %d\n",
                             forms[form].from_partial, forms[form].to_partial, forms[form].vector);
        mg_string_buffer_add(&t,
                             "#define KEPT %d\n#define REDUCED %d\n#define IN %s\n#define OUT %s\n",
                             forms[form].kept, forms[form].reduced, mg_element_name((mg_dtype)type),
                             mg_element_name((mg_dtype)type));
        mg_string_buffer_add(&t, "#include \"device/cuda/kernels/reduce.h\"\n");
        assert_int_equal(mg_string_buffer_status(&t), MG_OK);
        assert_text_compiles(t.s, (size_t)(i % 2));
        mg_free(t.s);
    }
}

static void scans_compile(void **state) {
    (void)state;
    skip_without_compiler();
    for (int type = 0; type < MG_N_DTYPES; type++)
        for (int kind = 0; kind < 2; kind++) {
            mg_string_buffer t = {0};
            mg_string_buffer_add(&t, "#define WIDE %d\n#define INTEGER %d\n",
                                 kind == 1 || type == MG_F64,
                                 kind == 0 && !mg_dtype_is_float((mg_dtype)type));
            mg_string_buffer_add(&t, "#define WIDE_INDEX 1\n#define THREADS 256\n");
            mg_string_buffer_add(
                &t, "#define IS_SUM %d\n#define VECTOR 2\n#define IN %s\n#define OUT %s\n",
                kind == 0, mg_element_name((mg_dtype)type), mg_element_name((mg_dtype)type));
            mg_string_buffer_add(&t, "#include \"device/cuda/kernels/scan.h\"\n");
            assert_int_equal(mg_string_buffer_status(&t), MG_OK);
            assert_text_compiles(t.s, (size_t)(type % 2));
            mg_free(t.s);
        }
}

/* ---- the text itself, and errors ---- */

/* The generated functions look as if written by hand, and no line is too long to read. */
static void the_source_reads_well(void **state) {
    (void)state;
    const mg_fused e = scaled(MG_F16);
    const mg_fused_form form = {.vector = 8,
                                .tensors = 1,
                                .wide_index = true,
                                .way = {MG_WAY_WHOLE, MG_WAY_ONE, MG_WAY_WHOLE},
                                .out_dtype = {MG_F16}};
    char *source = source_of(&e, &form);
    assert_non_null(strstr(source, "DEVICE REAL op_mul(REAL a, REAL b) {\n    return a *b;\n}\n"));
    assert_non_null(strstr(source, "DEVICE results compute(scalars s, REAL v0, REAL v2) {\n"
                                   "    const REAL v1 = s.in[0];\n"
                                   "    const REAL v3 = op_mul(v0, v1);\n"
                                   "    const REAL v4 = op_add(v3, v2);\n"
                                   "    const REAL v5 = ROUND_TO(f16, op_relu(v4));\n"
                                   "    results y;\n"
                                   "    y.at[0] = v5;\n"
                                   "    return y;\n"
                                   "}\n"));
    for (const char *line = source; *line; line += strcspn(line, "\n") + 1)
        assert_in_range(strcspn(line, "\n"), 0, 160);
    mg_free(source);
}

static void a_wrong_source_is_refused_with_the_compilers_words(void **state) {
    (void)state;
    void *image = NULL;
    size_t bytes = 0;
    skip_without_compiler();
    assert_int_equal(mg_nvrtc_compile("strange", "int x = y;\n", 9, 0, &image, &bytes),
                     MG_INTERNAL);
    assert_null(image);
    assert_non_null(strstr(mg_error_message(), "kernel strange"));
    assert_non_null(strstr(mg_error_message(), "identifier \"y\" is undefined"));
}

static void a_gpu_newer_than_the_compiler_gets_ptx(void **state) {
    (void)state;
    void *image = NULL;
    size_t bytes = 0;
    const char *source = "#include \"device/cuda/kernels/kernel.h\"\n"
                         "typedef struct params { int n; } params;\n"
                         "KERNEL(nothing, params) {}\n";
    skip_without_compiler();
    assert_int_equal(mg_nvrtc_compile("nothing", source, 99, 0, &image, &bytes), MG_OK);
    assert_non_null(strstr(image, ".target sm_"));
    mg_free(image);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_source_reads_well),
        cmocka_unit_test(every_op_compiles_for_every_dtype),
        cmocka_unit_test(casts_between_all_dtypes_compile),
        cmocka_unit_test(every_form_compiles),
        cmocka_unit_test(vectors_are_written_whole),
        cmocka_unit_test(sums_of_columns_compile),
        cmocka_unit_test(groups_with_pools_compile),
        cmocka_unit_test(reductions_compile),
        cmocka_unit_test(scans_compile),
        cmocka_unit_test(a_wrong_source_is_refused_with_the_compilers_words),
        cmocka_unit_test(a_gpu_newer_than_the_compiler_gets_ptx),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
