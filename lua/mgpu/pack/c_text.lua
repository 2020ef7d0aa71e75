--- The header and the C file of a model's C library.
local M = {}

local C_TYPES = { float32 = "float", float64 = "double", int32 = "int32_t", int64 = "int64_t", uint8 = "uint8_t",
  bool = "uint8_t" }

local CODES = { "USAGE", "DATA", "IO", "OOM", "NONFINITE", "DEVICE", "COMM", "INTERRUPTED", "UNSUPPORTED", "INTERNAL" }

--- type_of(dtype) -> the type of C, or nil.
function M.type_of(dtype) return C_TYPES[dtype] end

local function elements(shape)
  local n = 1
  for _, size in ipairs(shape) do n = n * size end
  return n
end

-- "const float *in_image, float *out", or only the names.
local function parameters(spec, names_only)
  local list = {}
  for _, side in ipairs { { spec.inputs, "const " }, { spec.outputs, "" } } do
    for _, array in ipairs(side[1]) do
      list[#list + 1] = names_only and array.parameter or ("%s%s *%s"):format(side[2], C_TYPES[array.dtype],
        array.parameter)
    end
  end
  return table.concat(list, ", ")
end

local function macros(spec)
  local lines = {}
  for _, array in ipairs(M.arrays(spec)) do
    local shape = #array.shape > 0 and "{" .. table.concat(array.shape, ", ") .. "}" or "{1}"
    lines[#lines + 1] = ("#define %s_SIZE %d /* elements of a row */"):format(array.macro, elements(array.shape))
    lines[#lines + 1] = ("#define %s_RANK %d"):format(array.macro, #array.shape)
    lines[#lines + 1] = ("#define %s_SHAPE %s /* of a row, outermost axis first */"):format(array.macro, shape)
  end
  return table.concat(lines, "\n")
end

--- arrays(spec) -> the inputs, then the outputs.
function M.arrays(spec)
  local list = {}
  for _, side in ipairs { spec.inputs, spec.outputs } do
    for _, array in ipairs(side) do list[#list + 1] = array end
  end
  return list
end

local function codes(upper)
  local lines = { ("#define %s_OK 0"):format(upper) }
  for i, code in ipairs(CODES) do lines[#lines + 1] = ("#define %s_%s %d"):format(upper, code, i) end
  return table.concat(lines, "\n")
end

-- Replaces $WORD by the field of that name.
local function fill(text, fields)
  return (text:gsub("%$(%u+)", function(word) return assert(fields[word:lower()], word) end))
end

local function fields_of(spec)
  return { name = spec.name, upper = spec.name:upper(), rows = tostring(spec.batch), macros = macros(spec),
    codes = codes(spec.name:upper()), parameters = parameters(spec), arguments = parameters(spec, true),
    version = spec.version, file = spec.file }
end

local HEADER = [[
/* Predictions of the model in $FILE. Made by mgpulua $VERSION.
 *
 *     cc main.c lib$NAME.a -lm -lpthread -ldl
 *
 * The library holds the weights and all that it needs; it reads no files. Functions may be called by any thread:
 * calls take turns, and a prediction uses several threads by itself (the environment's MGPU_THREADS or
 * OMP_NUM_THREADS says how many). Not in a process that was forked after the first call.
 *
 * Arrays belong to the caller. Rows lie one after another, the elements of a row in row-major order. A function
 * returns $UPPER_OK, or another code; what it would have written is then unspecified, and $NAME_error() says why. */
#ifndef $UPPER_H
#define $UPPER_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define $UPPER_ROWS $ROWS /* rows of a call of $NAME_predict */
$MACROS

/* What functions return. */
$CODES

/* Predicts $UPPER_ROWS rows. The first call also opens the model, which takes some milliseconds. */
int $NAME_predict($PARAMETERS);
/* Predicts any number of rows from 1 on. A number of rows that is new takes some milliseconds more. */
int $NAME_predict_rows(long rows, $PARAMETERS);
/* Opens the model before the first prediction; not needed. */
int $NAME_open(void);
/* Frees all memory and threads, while no other function is running. A later prediction opens the model again. */
void $NAME_close(void);
/* One sentence about the calling thread's last failure; "" if there was none. Valid until its next failure. */
const char *$NAME_error(void);

#ifdef __cplusplus
}
#endif

#endif
]]

local SOURCE = [[
#include "$NAME.h"
#include <stddef.h>

typedef struct mgpu_model_array {
    const char *dtype;
    int rank;
    const long long *shape;
} mgpu_model_array;
typedef struct mgpu_model {
    const char *name;
    const void *archive;
    const size_t *size;
    int n_inputs, n_outputs;
    const mgpu_model_array *inputs, *outputs;
} mgpu_model;
int mgpu_model_predict(const mgpu_model *model, long rows, const void *const *in, void *const *out);
int mgpu_model_open(const mgpu_model *model);
const char *mgpu_model_error(void);
void mgpu_model_close(void);

__asm__(".section .rodata\n.balign 64\nmgpu_model_archive: .incbin \"archive.zip\"\n.text\n");
extern const char mgpu_model_archive[] __attribute__((visibility("hidden")));

$TABLES
static const mgpu_model model = {"$NAME", mgpu_model_archive, &archive_size, $NINPUTS, $NOUTPUTS, inputs, outputs};

int $NAME_predict($PARAMETERS) {
    return $NAME_predict_rows($UPPER_ROWS, $ARGUMENTS);
}
int $NAME_predict_rows(long rows, $PARAMETERS) {
    const void *const from[] = {$INS};
    void *const to[] = {$OUTS};
    return mgpu_model_predict(&model, rows, from, to);
}
int $NAME_open(void) {
    return mgpu_model_open(&model);
}
void $NAME_close(void) {
    mgpu_model_close();
}
const char *$NAME_error(void) {
    return mgpu_model_error();
}
]]

local function table_of(name, arrays)
  local shapes, rows = {}, {}
  for i, array in ipairs(arrays) do
    shapes[i] = ("static const long long %s_%d[] = {%s};"):format(name, i, #array.shape > 0
      and table.concat(array.shape, ", ") or "1")
    rows[i] = ('{"%s", %d, %s_%d}'):format(array.dtype, #array.shape, name, i)
  end
  return ("%s\nstatic const mgpu_model_array %s[] = {%s};"):format(table.concat(shapes, "\n"), name,
    table.concat(rows, ", "))
end

local function names(arrays)
  local list = {}
  for i, array in ipairs(arrays) do list[i] = array.parameter end
  return table.concat(list, ", ")
end

--- header(spec), source(spec) -> their texts. spec: {name =, file =, version =, batch =, archive_size = bytes,
--- inputs =, outputs = arrays of {dtype =, shape = of a row, parameter = its name in C, macro = the beginning of its
--- macros}}.
function M.header(spec) return fill(HEADER, fields_of(spec)) end

function M.source(spec)
  local fields = fields_of(spec)
  fields.tables = table_of("inputs", spec.inputs) .. "\n" .. table_of("outputs", spec.outputs)
    .. ("\nstatic const size_t archive_size = %d;"):format(spec.archive_size)
  fields.ninputs, fields.noutputs = tostring(#spec.inputs), tostring(#spec.outputs)
  fields.ins, fields.outs = names(spec.inputs), names(spec.outputs)
  return fill(SOURCE, fields)
end

return M
