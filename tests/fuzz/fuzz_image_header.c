/* Fuzzer of image headers: any bytes must be taken for an image of a possible size or refused. Run
 * by `make fuzz`. */
#include "file.h"

#include "data/image.h"

static void probe(const char *path) {
    mg_image image;
    const mg_status status = mg_image_probe(path, &image);
    if (status == MG_OK && (image.height < 1 || image.width < 1 || image.height > MG_IMAGE_SIDE ||
                            image.width > MG_IMAGE_SIDE || image.channels == 2 || image.pixels))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    return fuzz_file(bytes, n, probe);
}
