--- The element types of ONNX's tensors (TensorProto.DataType).
local core = require "mgpu.core"

local M = {}

--- NUMBERS[dtype] -> ONNX's number of a dtype of tensors.
M.NUMBERS = { float32 = 1, uint8 = 2, int32 = 6, int64 = 7, bool = 9, float16 = 10, float64 = 11, bfloat16 = 16 }

local DTYPES = {}
for dtype, number in pairs(M.NUMBERS) do DTYPES[number] = dtype end

local OTHERS = { [0] = "undefined", [3] = "int8", [4] = "uint16", [5] = "int16", [8] = "string", [12] = "uint32",
  [13] = "uint64", [14] = "complex64", [15] = "complex128" }

--- dtype_of(number) -> the dtype for ONNX's number. Errors: a type that tensors here do not have.
function M.dtype_of(number)
  if DTYPES[number] then return DTYPES[number] end
  core.fail("unsupported", ("elements of type %s are not supported: tensors here have float32, float64, float16, "
    .. "bfloat16, int32, int64, uint8 or bool"):format(OTHERS[number] or tostring(number)))
end

return M
