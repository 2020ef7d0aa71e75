/* Fuzzer of BMP files. Run by `make fuzz`. */
#include "decoder.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    if (mg_image_kind_of(bytes, n) != MG_BMP || n < 26) return 0;
    const int64_t area = bytes[14] == 12 ? fuzz_area(bytes + 18, 2) : fuzz_area(bytes + 18, 4);
    fuzz_decoder(mg_bmp_decode, bytes, n, area);
    return 0;
}
