/* Reading ONNX files: the fields of protocol buffers by their declarations, as JSON. onnx.h says
 * what comes out.
 *
 * This is no part of data/example.c, which reads such messages from memory: here the tensors' bytes
 * stay in the file. */
#include "io/onnx.h"
#include "core/alloc.h"
#include "io/json.h"
#include <math.h>
#include <string.h>

enum { MOST_FIELDS = 1 << 21, MOST_DEPTH = 32 };

/* ---- declarations of messages ---- */

typedef enum kind {
    INTEGER, /* int32, int64, enum */
    FLOAT,   /* float */
    TEXT,    /* string, bytes */
    MESSAGE, /* of the declaration `inner` */
    TENSOR,  /* a TensorProto */
    OTHER,   /* a type that is no tensor: null */
    REFUSED  /* a sparse tensor */
} kind;

typedef struct message message;
typedef struct field {
    int number;
    kind kind;
    bool repeated;
    const char *name;
    const message *inner;
} field;

struct message {
    const char *name;
    field fields[14]; /* the others are skipped */
};

static const message dimension = {
    "Dimension", {{1, INTEGER, false, "dim_value", NULL}, {2, TEXT, false, "dim_param", NULL}}};
static const message tensor_shape = {"TensorShapeProto", {{1, MESSAGE, true, "dim", &dimension}}};
static const message tensor_type = {
    "TypeProto.Tensor",
    {{1, INTEGER, false, "elem_type", NULL}, {2, MESSAGE, false, "shape", &tensor_shape}}};
static const message type = {"TypeProto",
                             {{1, MESSAGE, false, "tensor_type", &tensor_type},
                              {4, OTHER, false, "sequence_type", NULL},
                              {5, OTHER, false, "map_type", NULL},
                              {8, OTHER, false, "sparse_tensor_type", NULL},
                              {9, OTHER, false, "optional_type", NULL}}};
static const message value_info = {
    "ValueInfoProto", {{1, TEXT, false, "name", NULL}, {2, MESSAGE, false, "type", &type}}};
static const message opset = {
    "OperatorSetIdProto", {{1, TEXT, false, "domain", NULL}, {2, INTEGER, false, "version", NULL}}};
static const message function = {
    "FunctionProto", {{1, TEXT, false, "name", NULL}, {10, TEXT, false, "domain", NULL}}};
static const message graph;
static const message attribute = {"AttributeProto",
                                  {{1, TEXT, false, "name", NULL},
                                   {2, FLOAT, false, "f", NULL},
                                   {3, INTEGER, false, "i", NULL},
                                   {4, TEXT, false, "s", NULL},
                                   {5, TENSOR, false, "t", NULL},
                                   {6, MESSAGE, false, "g", &graph},
                                   {7, FLOAT, true, "floats", NULL},
                                   {8, INTEGER, true, "ints", NULL},
                                   {9, TEXT, true, "strings", NULL},
                                   {10, TENSOR, true, "tensors", NULL},
                                   {20, INTEGER, false, "type", NULL},
                                   {21, TEXT, false, "ref_attr_name", NULL},
                                   {22, REFUSED, false, "sparse_tensor", NULL},
                                   {23, REFUSED, true, "sparse_tensors", NULL}}};
static const message node = {"NodeProto",
                             {{1, TEXT, true, "input", NULL},
                              {2, TEXT, true, "output", NULL},
                              {3, TEXT, false, "name", NULL},
                              {4, TEXT, false, "op_type", NULL},
                              {5, MESSAGE, true, "attribute", &attribute},
                              {7, TEXT, false, "domain", NULL},
                              {8, TEXT, false, "overload", NULL}}};
static const message graph = {"GraphProto",
                              {{1, MESSAGE, true, "node", &node},
                               {2, TEXT, false, "name", NULL},
                               {5, TENSOR, true, "initializer", NULL},
                               {11, MESSAGE, true, "input", &value_info},
                               {12, MESSAGE, true, "output", &value_info},
                               {15, REFUSED, true, "sparse_initializer", NULL}}};
static const message model = {"ModelProto",
                              {{1, INTEGER, false, "ir_version", NULL},
                               {2, TEXT, false, "producer_name", NULL},
                               {3, TEXT, false, "producer_version", NULL},
                               {7, MESSAGE, false, "graph", &graph},
                               {8, MESSAGE, true, "opset_import", &opset},
                               {25, MESSAGE, true, "functions", &function}}};

/* The field of this number, or NULL. */
static const field *find_field(const message *m, uint64_t number) {
    enum { N = sizeof m->fields / sizeof m->fields[0] };
    for (int i = 0; i < N && m->fields[i].name; i++)
        if ((uint64_t)m->fields[i].number == number) return &m->fields[i];
    return NULL;
}

/* ---- values ---- */

static mg_status no_memory(const onnx_reader *r) {
    return mg_fail(MG_OOM, "%s: out of memory for the graph", r->f->path);
}

/* Takes over a new value, or NULL where memory was short: jansson's calls then fail, too. */
static mg_status put(json_t *object, const field *d, json_t *value, onnx_reader *r) {
    json_t *list = json_object_get(object, d->name);
    if (list && !d->repeated) {
        json_decref(value);
        return onnx_damaged(r, "a field that can be there once is there twice");
    }
    if (!list && d->repeated && json_object_set_new(object, d->name, list = json_array()) != 0)
        list = NULL;
    const int failed = d->repeated ? json_array_append_new(list, value)
                                   : json_object_set_new(object, d->name, value);
    return failed ? no_memory(r) : MG_OK;
}

static json_t *number_value(double x) {
    if (isfinite(x)) return json_real(x);
    return json_string(isnan(x) ? "nan" : x > 0 ? "inf" : "-inf");
}

static mg_status read_integer(onnx_reader *r, int64_t end, json_t **value) {
    uint64_t number;
    MG_TRY(onnx_read_varint(r, end, &number));
    *value = json_integer((json_int_t)number);
    return MG_OK;
}

static mg_status read_float(onnx_reader *r, int64_t end, json_t **value) {
    float x;
    MG_TRY(onnx_read_bytes(r, end, &x, sizeof x));
    *value = number_value(x);
    return MG_OK;
}

/* The text as JSON. */
static mg_status text_value(const onnx_reader *r, char *text, size_t n, json_t **value) {
    const bool zero = memchr(text, 0, n) != NULL;
    *value = zero ? NULL : json_stringn(text, n);
    mg_free(text);
    return *value ? MG_OK : onnx_damaged(r, "a text is not UTF-8 or has a zero byte");
}

static mg_status read_text(onnx_reader *r, int64_t end, json_t **value) {
    size_t n;
    char *text = onnx_read_text(r, end, &n);
    return text ? text_value(r, text, n, value) : mg_error_code();
}

static mg_status read_tensor(onnx_reader *r, int64_t end, json_t **value) {
    char *name;
    size_t n;
    json_t *text;
    MG_TRY(onnx_read_tensor(r, end, &name, &n));
    MG_TRY(text_value(r, name, n, &text));
    *value =
        json_pack("{s:s, s:o}", "tensor", r->f->entries[r->f->n_entries - 1].name, "name", text);
    return MG_OK;
}

static mg_status read_message(onnx_reader *r, int64_t end, const message *m, json_t **value);

static mg_status read_value(onnx_reader *r, const field *d, int64_t end, json_t **value) {
    switch (d->kind) {
    case INTEGER: return read_integer(r, end, value);
    case FLOAT: return read_float(r, end, value);
    case TEXT: return read_text(r, end, value);
    case MESSAGE: return read_message(r, end, d->inner, value);
    case TENSOR: return read_tensor(r, end, value);
    case OTHER: *value = json_null(); return onnx_skip(r, ONNX_BYTES, end);
    case REFUSED: break;
    }
    return mg_fail(MG_UNSUPPORTED, "%s: the model has a sparse tensor, which is not supported",
                   r->f->path);
}

/* The wire type of one value. */
static int wire_type(kind k) {
    return k == INTEGER ? ONNX_VARINT : k == FLOAT ? ONNX_FIXED32 : ONNX_BYTES;
}

/* Reads one value of the field, or all values of a packed list. */
static mg_status read_field(onnx_reader *r, const field *d, int wire, int64_t end, json_t *object) {
    const bool packed = d->repeated && wire == ONNX_BYTES && wire_type(d->kind) != ONNX_BYTES;
    if (!packed && wire != wire_type(d->kind))
        return onnx_damaged(r, "a field has the wrong wire type");
    do {
        json_t *value = NULL;
        if (packed && r->at == end) break;
        if (++r->fields > MOST_FIELDS)
            return mg_fail(MG_UNSUPPORTED, "%s: the graph has more than %d fields", r->f->path,
                           (int)MOST_FIELDS);
        const mg_status status = read_value(r, d, end, &value);
        if (status != MG_OK) {
            json_decref(value);
            return status;
        }
        MG_TRY(put(object, d, value, r));
    } while (packed);
    return MG_OK;
}

static mg_status read_fields(onnx_reader *r, int64_t end, const message *m, json_t *object) {
    while (r->at < end) {
        uint64_t number;
        int wire;
        int64_t field_end;
        MG_TRY(onnx_read_key(r, end, &number, &wire, &field_end));
        const field *d = find_field(m, number);
        if (d)
            MG_TRY(read_field(r, d, wire, field_end, object));
        else
            MG_TRY(onnx_skip(r, wire, field_end));
    }
    return MG_OK;
}

/* Sets *value also on failure. */
static mg_status read_message(onnx_reader *r, int64_t end, const message *m, json_t **value) {
    if (r->depth == MOST_DEPTH) return onnx_damaged(r, "messages are nested too deep");
    *value = json_object();
    if (!*value) return no_memory(r);
    r->depth++;
    const mg_status status = read_fields(r, end, m, *value);
    r->depth--;
    return status;
}

/* ---- the format ---- */

static mg_status onnx_open(mg_store_file *f) {
    onnx_state *s = f->state = mg_alloc_zero(sizeof *s);
    if (!s) return MG_OOM;
    s->reader.f = f;
    json_t *value = NULL;
    char *text = NULL;
    size_t n;
    mg_status status = read_message(&s->reader, f->size, &model, &value);
    if (status == MG_OK && !json_object_get(value, "graph"))
        status = mg_fail(MG_DATA, "%s is no ONNX model: it has no graph", f->path);
    if (status == MG_OK) {
        text = mg_json_text(value, 0, &n);
        status = text ? mg_store_add_note(f->store, "model", text) : MG_OOM;
    }
    mg_free(text);
    json_decref(value);
    return status;
}

static void onnx_close(mg_store_file *f) {
    onnx_state *s = f->state;
    if (!s) return;
    for (int i = 0; i < s->n_external; i++) {
        mg_io_close(s->external[i].file);
        mg_free(s->external[i].location);
    }
    mg_free(s->reader.window);
    mg_free(s->sources);
    mg_free(s);
}

/* No row of the list in store.c: it is opened by mg_store_open_onnx, and written by Lua. */
const mg_store_format mg_onnx = {
    .name = "onnx",
    .extension = ".onnx",
    .open = onnx_open,
    .read = onnx_read_elements,
    .close = onnx_close,
};
