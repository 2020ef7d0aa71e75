/* Fuzzer of JSON: any bytes must be refused, or give a value whose text, read again, gives an equal
 * value (round trip); without leaking memory. Run by `make fuzz`. */
#include "core/alloc.h"
#include "io/json.h"
#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    json_t *value = mg_json_parse((const char *)bytes, n, "fuzz");
    if (!value) return 0;
    size_t length;
    char *text = mg_json_text(value, 1, &length);
    if (!text) abort();
    json_t *again = mg_json_parse(text, length, "fuzz");
    if (!again || !json_equal(value, again)) abort();
    json_decref(again);
    json_decref(value);
    mg_free(text);
    if (mg_alloc_get_stats().live_blocks != 0) abort();
    return 0;
}
