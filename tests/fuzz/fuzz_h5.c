/* Fuzzer of the records of HDF5 files that mgpu-h5 writes: any bytes must be read or refused,
 * without leaking memory. Run by `make fuzz`. */
#include "core/alloc.h"
#include "device/device.h"
#include "io/h5.h"
#include <stdlib.h>
#include <string.h>

/* Every entry is a group, a tensor or texts. */
static void look_at(const mg_h5_tree *tree) {
    for (size_t i = 0; i < tree->n; i++) {
        const mg_h5_entry *e = &tree->entries[i];
        if (e->tensor && e->texts) abort();
        if (e->single && e->n_texts != 1) abort();
        for (size_t k = 0; k < e->n_texts; k++)
            if (strlen(e->texts[k]) > 1 << 20) abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    if (n > 1 << 20) return 0;
    mg_device_set_default(mg_device_find("ref:0"));
    const int64_t blocks = mg_alloc_get_stats().live_blocks;
    mg_h5_tree *tree = mg_h5_parse_records(bytes, n, "fuzz");
    if (tree) look_at(tree);
    mg_h5_free(tree);
    if (mg_alloc_get_stats().live_blocks != blocks) abort();
    return 0;
}
