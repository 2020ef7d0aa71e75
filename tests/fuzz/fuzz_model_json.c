/* Fuzzer of model configurations: any text must make a model, whose own text makes an equal one, or
 * be refused with a message about the text. A message that Lua itself makes, such as "attempt to
 * index a nil value", is a defect of the reader. Run by `make fuzz`. */
#include "lua_target.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    return run_lua_target("tests/fuzz/model_json.lua", bytes, n);
}
