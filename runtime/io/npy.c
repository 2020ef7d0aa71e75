/* The .npy format; npy.h says what is read and written. */
#include "io/npy.h"
#include "core/alloc.h"
#include "graph/graph.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char MAGIC[] = "\x93NUMPY";
enum {
    MAGIC_SIZE = 6,
    ALIGNMENT = 64,      /* the elements begin at a multiple of it */
    MAX_TEXT = 64 << 10, /* NumPy itself refuses headers of more than 10,000 bytes */
    MAX_DESCR = 16
};

/* How a header spells the dtypes, after the byte order. */
static const struct {
    const char *name;
    mg_dtype dtype;
} dtype_names[] = {{"f8", MG_F64}, {"f4", MG_F32}, {"f2", MG_F16}, {"i8", MG_I64},
                   {"i4", MG_I32}, {"u1", MG_U8},  {"b1", MG_BOOL}};
enum { N_DTYPES = sizeof dtype_names / sizeof dtype_names[0] };

static mg_status fail_header(const mg_npy_array *a, const char *what) {
    return mg_fail(MG_DATA, "%s: the header of array \"%.80s\" is damaged: %s", a->path, a->name,
                   what);
}

/* ---- parsing the header: a dictionary with the keys descr, fortran_order and shape ---- */

/* After spaces. */
static const char *skip_spaces(const char *p) {
    return p + strspn(p, " \n");
}

/* Copies a quoted text at p; returns the position after it, or NULL. */
static const char *parse_quoted(const char *p, char *text, size_t room) {
    const char quote = *p;
    if (quote != '\'' && quote != '"') return NULL;
    const char *end = strchr(p + 1, quote);
    if (!end || (size_t)(end - p) > room) return NULL;
    memcpy(text, p + 1, (size_t)(end - p) - 1);
    text[end - p - 1] = 0;
    return end + 1;
}

/* A tuple of sizes. */
static const char *parse_shape(mg_npy_array *a, const char *p) {
    if (*p++ != '(') return NULL;
    for (p = skip_spaces(p); *p != ')'; p = skip_spaces(p)) {
        const size_t digits = strspn(p, "0123456789");
        if (!digits || digits > 18 || a->shape.rank == MG_MAX_RANK) return NULL;
        a->shape.dim[a->shape.rank++] = strtoll(p, NULL, 10);
        p += digits;
        if (*p == 'L') p++; /* the suffix of long integers in Python 2 */
        p = skip_spaces(p);
        if (*p == ',')
            p++;
        else if (*p != ')')
            return NULL;
    }
    return p + 1;
}

static const char *parse_boolean(const char *p, bool *value) {
    *value = strncmp(p, "True", 4) == 0;
    if (*value) return p + 4;
    return strncmp(p, "False", 5) == 0 ? p + 5 : NULL;
}

/* Kinds of arrays that are not read, by the beginning of the dtype, and what to do. */
static const struct {
    const char *begin, *what;
} refused[] = {
    {"c", "complex numbers: save x.real and x.imag as two arrays"},
    {"f", "longer floats: save x.astype(\"float64\")"},
    {"U", "text"},
    {"S", "text"},
    {"O", "Python objects"},
    {"M", "dates: save x.astype(\"int64\")"},
    {"m", "times: save x.astype(\"int64\")"},
    {"V2", "bfloat16?: save x.astype(\"float32\")"},
};
enum { N_REFUSED = sizeof refused / sizeof refused[0] };

/* MG_UNSUPPORTED: the file is not damaged. */
static mg_status refuse_dtype(const mg_npy_array *a, const char *descr, const char *name) {
    const char *what = NULL;
    for (int i = 0; i < N_REFUSED && !what; i++)
        if (strncmp(name, refused[i].begin, strlen(refused[i].begin)) == 0) what = refused[i].what;
    return mg_fail(
        MG_UNSUPPORTED,
        "%s: array \"%.80s\" has dtype \"%s\"%s%s%s; floats of 16 to 64 bits, integers of "
        "8 to 64 bits and bool are known",
        a->path, a->name, descr, what ? " (" : "", what ? what : "", what ? ")" : "");
}

/* Sets dtype and byte order. */
static mg_status set_dtype(mg_npy_array *a, const char *descr) {
    const char *name = descr + (*descr && strchr("<>|=", *descr));
    a->big_endian = *descr == '>';
    for (int i = 0; i < N_DTYPES; i++)
        if (strcmp(name, dtype_names[i].name) == 0) {
            a->dtype = dtype_names[i].dtype;
            return MG_OK;
        }
    a->stored = mg_stored_type_of_npy(name);
    if (!a->stored) return refuse_dtype(a, descr, name);
    a->dtype = a->stored->dtype;
    return MG_OK;
}

/* One `'key': value`; returns the position after it, or NULL. *seen has a bit for each key. */
static const char *parse_entry(mg_npy_array *a, const char *p, char descr[MAX_DESCR],
                               unsigned *seen) {
    char key[MAX_DESCR];
    p = parse_quoted(p, key, sizeof key);
    p = p ? skip_spaces(p) : NULL;
    if (!p || *p++ != ':') return NULL;
    p = skip_spaces(p);
    unsigned bit = 0;
    if (strcmp(key, "descr") == 0) bit = 1, p = parse_quoted(p, descr, MAX_DESCR);
    if (strcmp(key, "fortran_order") == 0) bit = 2, p = parse_boolean(p, &a->fortran);
    if (strcmp(key, "shape") == 0) bit = 4, p = parse_shape(a, p);
    if (!bit || *seen & bit) return NULL;
    *seen |= bit;
    return p;
}

static mg_status parse_header(mg_npy_array *a, const char *text) {
    char descr[MAX_DESCR] = "";
    unsigned seen = 0;
    const char *p = skip_spaces(text);
    if (*p++ != '{') return fail_header(a, "it is not a dictionary");
    for (p = skip_spaces(p); *p != '}'; p = skip_spaces(p)) {
        p = parse_entry(a, p, descr, &seen);
        if (!p && strstr(text, "'descr': ["))
            return mg_fail(MG_UNSUPPORTED, "%s: array \"%.80s\" is a structured array", a->path,
                           a->name);
        if (!p) return fail_header(a, "descr, fortran_order and shape are expected");
        p = skip_spaces(p);
        if (*p == ',')
            p++;
        else if (*p != '}')
            return fail_header(a, "a comma is missing");
    }
    if (seen != 7 || *skip_spaces(p + 1))
        return fail_header(a, "descr, fortran_order and shape are expected");
    MG_TRY(set_dtype(a, descr));
    if (mg_shape_check(&a->shape, a->path) == MG_OK) return MG_OK;
    return fail_header(a, "the shape has too many elements");
}

/* ---- reading ---- */

mg_status mg_npy_read_header(mg_npy_array *a) {
    unsigned char head[MAGIC_SIZE + 2], size[4] = {0};
    a->shape = (mg_shape){0};
    if (a->bytes < (int64_t)sizeof head + 4) return fail_header(a, "it is too short");
    MG_TRY(a->source(a->context, head, sizeof head));
    const int version = head[MAGIC_SIZE], minor = head[MAGIC_SIZE + 1];
    if (memcmp(head, MAGIC, MAGIC_SIZE) != 0) return fail_header(a, "it is not a .npy file");
    if (version < 1 || version > 3 || minor)
        return mg_fail(MG_UNSUPPORTED,
                       "%s: array \"%.80s\" has version %d.%d; 1.0 to 3.0 are known", a->path,
                       a->name, version, minor);
    const size_t width = version == 1 ? 2 : 4;
    MG_TRY(a->source(a->context, size, width));
    const uint32_t n = (uint32_t)size[0] | (uint32_t)size[1] << 8 | (uint32_t)size[2] << 16 |
                       (uint32_t)size[3] << 24;
    const int64_t elements = a->bytes - (int64_t)(sizeof head + width) - (int64_t)n;
    if (n > MAX_TEXT || elements < 0) return fail_header(a, "its length");
    char *text = mg_alloc(n + 1);
    if (!text) return MG_OOM;
    mg_status status = a->source(a->context, text, n);
    text[n] = 0;
    if (status == MG_OK && strlen(text) != n) status = fail_header(a, "it has a zero byte");
    if (status == MG_OK) status = parse_header(a, text);
    mg_free(text);
    if (status != MG_OK) return status;
    const int64_t needed = mg_shape_count(&a->shape) * (int64_t)mg_stored_size(a->stored, a->dtype);
    if (needed == elements) return MG_OK;
    return mg_fail(MG_DATA, "%s: array \"%.80s\" of shape %s needs %lld bytes, but has %lld",
                   a->path, a->name, MG_SHAPE_TEXT(&a->shape), (long long)needed,
                   (long long)elements);
}

void mg_npy_swap(void *bytes, size_t size, size_t n) {
    unsigned char *p = bytes;
    for (size_t i = 0; i < n; i++, p += size)
        for (size_t a = 0, b = size - 1; a < b; a++, b--) {
            const unsigned char kept = p[a];
            p[a] = p[b];
            p[b] = kept;
        }
}

/* Copies elements of `size` bytes from Fortran order, in which the first index varies fastest, to C
 * order. */
static void to_c_order(unsigned char *dst, const unsigned char *src, size_t size,
                       const mg_shape *shape) {
    int64_t index[MG_MAX_RANK] = {0}, stride[MG_MAX_RANK];
    const int rank = shape->rank;
    int64_t from = 0;
    for (int i = 0; i < rank; i++) stride[i] = i ? stride[i - 1] * shape->dim[i - 1] : 1;
    for (int64_t n = mg_shape_count(shape); n > 0; n--, dst += size) {
        memcpy(dst, src + (size_t)from * size, size);
        for (int i = rank - 1; i >= 0; i--) {
            from += stride[i];
            if (++index[i] < shape->dim[i]) break;
            from -= stride[i] * shape->dim[i];
            index[i] = 0;
        }
    }
}

mg_status mg_npy_read_values(mg_npy_array *a, void *dst) {
    const size_t size = mg_dtype_size(a->dtype), n = (size_t)mg_shape_count(&a->shape);
    const size_t stored = mg_stored_size(a->stored, a->dtype);
    const bool reorder = a->fortran && a->shape.rank > 1;
    unsigned char *bytes = reorder ? mg_alloc(n * size) : dst;
    if (!bytes) return MG_OOM;
    unsigned char *end = bytes + n * (size - stored);
    mg_status status = a->source(a->context, end, n * stored);
    if (status == MG_OK && a->big_endian) mg_npy_swap(end, stored, n);
    if (status == MG_OK && a->stored)
        status = mg_stored_widen(a->stored, bytes, n, a->path, a->name);
    if (status == MG_OK && reorder) to_c_order(dst, bytes, size, &a->shape);
    if (reorder) mg_free(bytes);
    return status;
}

mg_status mg_npy_read_elements(mg_npy_array *a, mg_store_file *f, mg_store_entry *e) {
    mg_store_room room;
    mg_status status = mg_store_room_new(&room, e);
    if (status == MG_OK) status = mg_npy_read_values(a, room.bytes);
    if (status == MG_OK)
        e->nonfinite =
            mg_store_has_nonfinite(a->dtype, room.bytes, (size_t)mg_shape_count(&a->shape));
    if (status == MG_OK) status = mg_store_file_take(f, e, &room);
    mg_store_room_free(&room);
    return status;
}

/* ---- one array in a file ---- */

/* The source of a plain file. */
static mg_status read_plain(void *context, void *dst, size_t n) {
    return mg_store_file_exactly(context, dst, n, "the array");
}

static mg_npy_array plain_array(mg_store_file *f) {
    return (mg_npy_array){
        .path = f->path, .name = "arr_0", .bytes = f->size, .source = read_plain, .context = f};
}

static mg_status npy_open(mg_store_file *f) {
    mg_npy_array a = plain_array(f);
    MG_TRY(mg_npy_read_header(&a));
    mg_store_entry *e = mg_store_file_add(f, a.name);
    if (!e) return MG_OOM;
    e->dtype = a.dtype;
    e->stored = a.stored;
    e->shape = a.shape;
    return MG_OK;
}

static mg_status npy_read(mg_store_file *f) {
    mg_npy_array a = plain_array(f);
    MG_TRY(mg_io_seek(f->file, 0));
    MG_TRY(mg_npy_read_header(&a));
    return mg_npy_read_elements(&a, f, &f->entries[0]);
}

/* Nothing to free. */
static void npy_close(mg_store_file *f) {
    (void)f;
}

static bool npy_recognise(const unsigned char *head, size_t n, int64_t size) {
    (void)size;
    return n >= MAGIC_SIZE && memcmp(head, MAGIC, MAGIC_SIZE) == 0;
}

/* ---- writing ---- */

size_t mg_npy_header(const mg_tensor *t, const char *path, const char *name,
                     char header[MG_NPY_HEADER]) {
    const char *descr = NULL;
    for (int i = 0; i < N_DTYPES; i++)
        if (dtype_names[i].dtype == (mg_dtype)t->dtype) descr = dtype_names[i].name;
    if (!descr) {
        mg_fail(MG_UNSUPPORTED, "%s: NumPy has no %s, the dtype of \"%.80s\": cast it to float32",
                path, mg_dtype_name((mg_dtype)t->dtype), name);
        return 0;
    }
    enum { START = MAGIC_SIZE + 4 };
    char *text = header + START;
    size_t n = (size_t)snprintf(text, MG_NPY_HEADER - START,
                                "{'descr': '%c%s', 'fortran_order': False, 'shape': (",
                                mg_dtype_size((mg_dtype)t->dtype) > 1 ? '<' : '|', descr);
    for (int i = 0; i < t->shape.rank; i++)
        n += (size_t)snprintf(text + n, MG_NPY_HEADER - START - n, "%s%lld", i ? ", " : "",
                              (long long)t->shape.dim[i]);
    n += (size_t)snprintf(text + n, MG_NPY_HEADER - START - n,
                          t->shape.rank == 1 ? ",), }" : "), }");
    while ((START + n + 1) % ALIGNMENT) text[n++] = ' ';
    text[n++] = '\n';
    memcpy(header, MAGIC, MAGIC_SIZE);
    header[MAGIC_SIZE] = 1, header[MAGIC_SIZE + 1] = 0;
    header[MAGIC_SIZE + 2] = (char)(n & 255), header[MAGIC_SIZE + 3] = (char)(n >> 8);
    return START + n;
}

static mg_status npy_save(const mg_store *s, const char *path) {
    char header[MG_NPY_HEADER];
    if (s->n_tensors != 1 || s->n_notes)
        return mg_fail(MG_USAGE, "%s: a .npy file holds one array and no metadata, not %zu arrays",
                       path, s->n_tensors);
    mg_tensor *t = s->tensors[0].tensor;
    const void *bytes = NULL;
    void *block = NULL;
    const size_t n = mg_npy_header(t, path, s->tensors[0].name, header);
    mg_status status = n ? mg_store_view(t, &bytes, &block) : mg_error_code();
    mg_file *f = status == MG_OK ? mg_io_create(path) : NULL;
    if (!f && status == MG_OK) status = mg_error_code();
    if (status == MG_OK) status = mg_io_write(f, header, n);
    if (status == MG_OK) status = mg_io_write(f, bytes, mg_tensor_bytes(t));
    if (status == MG_OK)
        status = mg_io_commit(f);
    else
        mg_io_close(f);
    mg_free(block);
    return status;
}

const mg_store_format mg_npy = {
    .name = "npy",
    .extension = ".npy",
    .recognise = npy_recognise,
    .open = npy_open,
    .read = npy_read,
    .close = npy_close,
    .save = npy_save,
};
