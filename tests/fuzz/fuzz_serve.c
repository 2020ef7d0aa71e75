/* Fuzzer of requests to mgpulua --serve: any body must be read as the columns of the model's
 * inputs, or be refused with an answer. Run by `make fuzz`. */
#include "lua_target.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    return run_lua_target("tests/fuzz/serve.lua", bytes, n);
}
