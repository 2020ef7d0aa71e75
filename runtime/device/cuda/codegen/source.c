/* Generating the source of a fused group's kernel; kernels/fused.h is the frame around it.
 *
 * The value column of ops/elementwise.def, the same text that the reference device compiles, is
 * stringified here: each op that the group uses becomes a function. Operand n of the group is the
 * variable vn, and each result is rounded to its dtype, as if the ops ran one by one.
 *
 * The generated text contains, in this order: numbers as macros, vector types, op functions,
 * load_scalars (operands that are the same for all elements), compute (one element, in registers),
 * element (load, compute and store one element), vector (the same for VECTOR elements). */
#include "device/cuda/codegen/codegen.h"
#include "core/dtype.h"
#include "ops/elementwise.h"

typedef struct op_text {
    const char *name, *params, *value;
} op_text;

static const op_text ops[] = {
#define UNARY(name, rule, value, grad, ...) {#name, "REAL x", #value},
#define BINARY(name, rule, value, grad_a, grad_b, ...) {#name, "REAL a, REAL b", #value},
#define TERNARY(name, rule, value, grad_a, grad_b, grad_c, ...)                                    \
    {#name, "REAL a, REAL b, REAL c", #value},
#include "ops/elementwise.def"
#undef UNARY
#undef BINARY
#undef TERNARY
};
_Static_assert(sizeof ops / sizeof *ops == MG_N_ELEMENTWISE, "a text for each op");

/* The text being generated, and the group it is generated from. */
typedef struct writer {
    mg_string_buffer *t;
    const mg_fused *e;
    const mg_fused_form *form;
    int number[MG_FUSE_MAX_INPUTS]; /* its index among the scalars, or among the strided inputs */
    int n_scalars, n_strided;
} writer;

/* Numbers the scalars, and apart from them the strided inputs. */
static void number_inputs(writer *w) {
    for (int i = 0; i < w->e->n_inputs; i++) {
        if (w->form->way[i] == MG_WAY_ONE)
            w->number[i] = w->n_scalars++;
        else if (w->form->way[i] != MG_WAY_WHOLE)
            w->number[i] = w->n_strided++;
    }
}

const char *mg_element_name(mg_dtype t) {
    static const char *const names[] = {
        [MG_BOOL] = "bool8", [MG_U8] = "u8",   [MG_I32] = "i32", [MG_I64] = "i64",
        [MG_BF16] = "bf16",  [MG_F16] = "f16", [MG_F32] = "f32", [MG_F64] = "f64"};
    return names[t];
}

/* The kernel's names of an input's and an output's dtype. */
static const char *in_name(const writer *w, int i) {
    return mg_element_name((mg_dtype)w->e->in_dtype[i]);
}

static const char *out_name(const writer *w, int o) {
    return mg_element_name((mg_dtype)w->form->out_dtype[o]);
}

/* ---- macros, types and ops ---- */

/* An array in C has at least one element. */
static int at_least_one(int n) {
    return n > 0 ? n : 1;
}

/* The macros that kernels/fused.h expects, and its #include. */
static void add_numbers(const writer *w) {
    const struct {
        const char *name;
        int value;
    } numbers[] = {{"WIDE", w->e->wide != 0},
                   {"WIDE_INDEX", w->form->wide_index},
                   {"THREADS", MG_FUSED_THREADS},
                   {"FULL", MG_FUSED_FULL},
                   {"VECTOR", w->form->vector},
                   {"TENSORS", w->form->tensors},
                   {"RANK", w->form->rank},
                   {"SUMS", w->form->summed != 0},
                   {"INPUTS", at_least_one(w->e->n_inputs + (w->form->pool.spread > 0))},
                   {"OUTPUTS", w->e->n_outputs + w->form->pool.keeps},
                   {"IMMEDIATES", at_least_one(w->e->n_imms)},
                   {"SCALARS", at_least_one(w->n_scalars)},
                   {"STRIDED", at_least_one(w->n_strided)}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        mg_string_buffer_add(w->t, "#define %s %d\n", numbers[i].name, numbers[i].value);
    if (w->form->summed)
        mg_string_buffer_add(w->t, "#define SUM type_%s\n",
                             w->form->out_dtype[w->form->summed - 1] == MG_F64 ? "f64" : "f32");
    mg_string_buffer_add(w->t, "#include \"device/cuda/kernels/fused.h\"\n\n");
}

/* A vector type for each dtype that occurs. */
static void add_vector_types(const writer *w) {
    bool used[MG_N_DTYPES] = {0};
    for (int i = 0; i < w->e->n_inputs; i++) used[w->e->in_dtype[i]] = true;
    for (int o = 0; o < w->e->n_outputs; o++) used[w->form->out_dtype[o]] = true;
    for (int type = 0; type < MG_N_DTYPES; type++)
        if (used[type])
            mg_string_buffer_add(w->t, "VECTOR_OF(%s, VECTOR)\n", mg_element_name((mg_dtype)type));
}

/* What kernels/fused_pool.h expects, and its #include. */
static void add_pool(const writer *w) {
    const mg_fused_pool *s = &w->form->pool;
    const struct {
        const char *name;
        int value;
    } numbers[] = {{"SPREAD_RESULT", s->spread - 1},
                   {"POOLED_INPUT", s->pooled - 1},
                   {"POOL_H", s->h},
                   {"POOL_W", s->w},
                   {"POOL_C", s->c},
                   {"POOL_OH", s->oh},
                   {"POOL_OW", s->ow},
                   {"POOL_ROWS", s->rows},
                   {"POOL_COLUMNS", s->columns},
                   {"POOL_DOWN", s->down},
                   {"POOL_ACROSS", s->across}};
    if (!s->spread && !s->pooled) return;
    if (s->spread) mg_string_buffer_add(w->t, "#define SPREAD %s\n", out_name(w, s->spread - 1));
    if (s->pooled) mg_string_buffer_add(w->t, "#define POOLED %s\n", in_name(w, s->pooled - 1));
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        mg_string_buffer_add(w->t, "#define %s %d\n", numbers[i].name, numbers[i].value);
    mg_string_buffer_add(w->t, "#include \"device/cuda/kernels/fused_pool.h\"\n");
}

/* One function for each op that occurs. */
static void add_ops(const writer *w) {
    bool seen[MG_N_ELEMENTWISE] = {0};
    for (int i = 0; i < w->e->n_instrs; i++) {
        const op_text *op = &ops[w->e->instr[i].op];
        if (seen[op - ops]) continue;
        seen[op - ops] = true;
        mg_string_buffer_add(w->t, "\nDEVICE REAL op_%s(%s) {\n    return %s;\n}\n", op->name,
                             op->params, op->value);
    }
}

/* ---- the functions ---- */

/* Immediates and one-element inputs, which each thread loads once. */
static void add_load_scalars(const writer *w) {
    mg_string_buffer_add(w->t, "\nDEVICE scalars load_scalars(const params *p, const tensor *t) {\n"
                               "    scalars s = {{0}, {0}};\n");
    for (int i = 0; i < w->e->n_imms; i++)
        mg_string_buffer_add(w->t, "    s.immediate[%d] = K(p->immediate[%d]);\n", i, i);
    for (int i = 0; i < w->e->n_inputs; i++)
        if (w->form->way[i] == MG_WAY_ONE)
            mg_string_buffer_add(w->t, "    s.in[%d] = load_%s(*(const type_%s *)t->in[%d]);\n",
                                 w->number[i], in_name(w, i), in_name(w, i), i);
    mg_string_buffer_add(w->t, "    return s;\n}\n");
}

/* const REAL vN = ROUND_TO(dtype, op_NAME(vA, vB)); */
static void add_instruction(const writer *w, int i) {
    const mg_instr *instr = &w->e->instr[i];
    const bool exact = !mg_fused_rounds(instr, w->e->wide);
    mg_string_buffer_add(w->t, "    const REAL v%d = ", w->e->n_inputs + w->e->n_imms + i);
    if (!exact)
        mg_string_buffer_add(w->t, "ROUND_TO(%s, ", mg_element_name((mg_dtype)instr->dtype));
    mg_string_buffer_add(w->t, "op_%s(", ops[instr->op].name);
    for (int k = 0; k < instr->n_args; k++)
        mg_string_buffer_add(w->t, "%sv%d", k ? ", " : "", instr->arg[k]);
    mg_string_buffer_add(w->t, exact ? ");\n" : "));\n");
}

/* results compute(scalars s, REAL v0, ...): all instructions of the group, for one element. */
static void add_compute(const writer *w) {
    const mg_fused *e = w->e;
    mg_string_buffer_add(w->t, "\nDEVICE results compute(scalars s");
    for (int i = 0; i < e->n_inputs; i++)
        if (w->form->way[i] != MG_WAY_ONE) mg_string_buffer_add(w->t, ", REAL v%d", i);
    mg_string_buffer_add(w->t, ") {\n");
    for (int i = 0; i < e->n_inputs; i++)
        if (w->form->way[i] == MG_WAY_ONE)
            mg_string_buffer_add(w->t, "    const REAL v%d = s.in[%d];\n", i, w->number[i]);
    for (int i = 0; i < e->n_imms; i++)
        mg_string_buffer_add(w->t, "    const REAL v%d = s.immediate[%d];\n", e->n_inputs + i, i);
    for (int i = 0; i < e->n_instrs; i++) add_instruction(w, i);
    mg_string_buffer_add(w->t, "    results y;\n");
    for (int o = 0; o < e->n_outputs; o++)
        mg_string_buffer_add(w->t, "    y.at[%d] = v%d;\n", o, e->output[o]);
    mg_string_buffer_add(w->t, "    return y;\n}\n");
}

/* The index of input i at a place of the iteration: "at.i", or "at.in[n]" for a strided one. */
static void add_position(const writer *w, int i) {
    if (w->form->way[i] == MG_WAY_WHOLE)
        mg_string_buffer_add(w->t, "at.i");
    else
        mg_string_buffer_add(w->t, "at.in[%d]", w->number[i]);
}

/* load_f32(((const type_f32 *)t->in[0])[at.i]): one element, converted to the type computed in. */
static void add_element_load(const writer *w, int i) {
    if (i + 1 == w->form->pool.pooled) {
        mg_string_buffer_add(w->t, "load_%s(pooled_element(t, at.i))", in_name(w, i));
        return;
    }
    mg_string_buffer_add(w->t, "load_%s(((const type_%s *)t->in[%d])[", in_name(w, i),
                         in_name(w, i), i);
    add_position(w, i);
    mg_string_buffer_add(w->t, "])");
}

/* The heading of element and vector. With sums they get one more argument, to which they add the
 * stored values of the summed result. */
static void add_head(const writer *w, const char *name) {
    mg_string_buffer_add(w->t, "\nDEVICE void %s(const tensor *t, place at, scalars s%s) {\n", name,
                         w->form->summed ? ", SUM *sum" : "");
}

/* void element(t, at, s): loads, computes and stores one element. */
static void add_element(const writer *w) {
    add_head(w, "element");
    for (int i = 0; i < w->e->n_inputs; i++) {
        if (w->form->way[i] == MG_WAY_ONE) continue;
        mg_string_buffer_add(w->t, "    const REAL x%d = ", i);
        add_element_load(w, i);
        mg_string_buffer_add(w->t, ";\n");
    }
    mg_string_buffer_add(w->t, "    const results y = compute(s");
    for (int i = 0; i < w->e->n_inputs; i++)
        if (w->form->way[i] != MG_WAY_ONE) mg_string_buffer_add(w->t, ", x%d", i);
    mg_string_buffer_add(w->t, ");\n");
    for (int o = 0; o < w->e->n_outputs; o++) {
        if (o + 1 == w->form->pool.spread)
            mg_string_buffer_add(w->t, "    spread_element(t, at.i, store_%s(y.at[%d]));\n",
                                 out_name(w, o), o);
        else
            mg_string_buffer_add(w->t, "    ((type_%s *)t->out[%d])[at.i] = store_%s(y.at[%d]);\n",
                                 out_name(w, o), o, out_name(w, o), o);
    }
    if (w->form->pool.keeps) {
        const int i = w->form->pool.pooled - 1;
        mg_string_buffer_add(w->t, "    ((type_%s *)t->out[%d])[at.i] = store_%s(x%d);\n",
                             in_name(w, i), w->e->n_outputs, in_name(w, i), i);
    }
    if (w->form->summed)
        mg_string_buffer_add(w->t, "    *sum += (SUM)y.at[%d];\n", w->form->summed - 1);
    mg_string_buffer_add(w->t, "}\n");
}

/* Each input of a vector: a vector load, or one element that is broadcast. */
static void add_vector_loads(const writer *w) {
    for (int i = 0; i < w->e->n_inputs; i++) {
        const char *type = in_name(w, i);
        if (w->form->way[i] == MG_WAY_ACROSS) {
            mg_string_buffer_add(w->t, "    const REAL x%d = ", i);
            add_element_load(w, i);
            mg_string_buffer_add(w->t, ";\n");
        } else if (i + 1 == w->form->pool.pooled) {
            mg_string_buffer_add(w->t, "    const vector_%s x%d = pooled_vector(t, at.i);\n", type,
                                 i);
        } else if (w->form->way[i] != MG_WAY_ONE) {
            mg_string_buffer_add(w->t,
                                 "    const vector_%s x%d = "
                                 "*(const vector_%s *)((const type_%s *)t->in[%d] + ",
                                 type, i, type, type, i);
            add_position(w, i);
            mg_string_buffer_add(w->t, ");\n");
        }
    }
}

/* void vector(t, at, s): the same for VECTOR neighbours, with one memory access per tensor. */
static void add_vector(const writer *w) {
    add_head(w, "vector");
    add_vector_loads(w);
    for (int o = 0; o < w->e->n_outputs; o++)
        mg_string_buffer_add(w->t, "    vector_%s y%d;\n", out_name(w, o), o);
    mg_string_buffer_add(w->t, "    UNROLL\n    for (int k = 0; k < VECTOR; k++) {\n"
                               "        const results y = compute(s");
    for (int i = 0; i < w->e->n_inputs; i++) {
        if (w->form->way[i] == MG_WAY_ACROSS)
            mg_string_buffer_add(w->t, ", x%d", i);
        else if (w->form->way[i] != MG_WAY_ONE)
            mg_string_buffer_add(w->t, ", load_%s(x%d.at[k])", in_name(w, i), i);
    }
    mg_string_buffer_add(w->t, ");\n");
    for (int o = 0; o < w->e->n_outputs; o++)
        mg_string_buffer_add(w->t, "        y%d.at[k] = store_%s(y.at[%d]);\n", o, out_name(w, o),
                             o);
    if (w->form->summed)
        mg_string_buffer_add(w->t, "        sum[k] += (SUM)y.at[%d];\n", w->form->summed - 1);
    mg_string_buffer_add(w->t, "    }\n");
    for (int o = 0; o < w->e->n_outputs; o++) {
        if (o + 1 == w->form->pool.spread)
            mg_string_buffer_add(w->t, "    spread_vector(t, at.i, y%d);\n", o);
        else
            mg_string_buffer_add(w->t, "    write_%s((type_%s *)t->out[%d] + at.i, y%d);\n",
                                 out_name(w, o), out_name(w, o), o, o);
    }
    if (w->form->pool.keeps) {
        const int i = w->form->pool.pooled - 1;
        mg_string_buffer_add(w->t, "    write_%s((type_%s *)t->out[%d] + at.i, x%d);\n",
                             in_name(w, i), in_name(w, i), w->e->n_outputs, i);
    }
    mg_string_buffer_add(w->t, "}\n");
}

/* In the order of the heading of this file. */
void mg_fused_source(mg_string_buffer *t, const mg_fused *e, const mg_fused_form *form) {
    writer w = {.t = t, .e = e, .form = form};
    number_inputs(&w);
    add_numbers(&w);
    add_vector_types(&w);
    add_pool(&w);
    add_ops(&w);
    add_load_scalars(&w);
    add_compute(&w);
    add_element(&w);
    add_vector(&w);
}

void mg_fused_finish_source(mg_string_buffer *t, const mg_fused *e) {
    const writer w = {.t = t, .e = e};
    add_ops(&w);
    mg_string_buffer_add(t, "\nDEVICE REAL finish(const params *p, REAL v0) {\n");
    for (int i = 0; i < e->n_imms; i++)
        mg_string_buffer_add(t, "    const REAL v%d = K(p->immediate[%d]);\n", 1 + i, i);
    for (int i = 0; i < e->n_instrs; i++) add_instruction(&w, i);
    mg_string_buffer_add(t, "    return v%d;\n}\n", e->output[0]);
}
