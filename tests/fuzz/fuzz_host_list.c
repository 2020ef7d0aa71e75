/* Fuzzer of lists of hosts: any text must be read or refused, with names and slots within their
 * limits, and without leaking memory. The first byte chooses the form. Run by `make fuzz`. */
#include "core/alloc.h"
#include "world/host_list.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef mg_status reader(mg_host_list *list, const char *text, const char *who);

static mg_status read_counts(mg_host_list *list, const char *text, const char *who) {
    MG_TRY(mg_host_list_given(list, "a,b,c", who));
    return mg_host_list_slurm_counts(list, text, who);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    reader *const readers[] = {mg_host_list_slurm, mg_host_list_given, mg_host_list_lines,
                               read_counts};
    if (n == 0) return 0;
    const int64_t blocks = mg_alloc_get_stats().live_blocks;
    char *text = malloc(n); /* exactly as long as the text, so that reading beyond it is seen */
    memcpy(text, bytes + 1, n - 1);
    text[n - 1] = 0;
    mg_host_list list = {0};
    if (readers[bytes[0] % 4](&list, text, "WHO") == MG_OK)
        for (int i = 0; i < list.n; i++)
            if (!list.hosts[i].name[0] || list.hosts[i].slots < 0 ||
                list.hosts[i].slots > MG_MOST_SLOTS)
                abort();
    mg_host_list_free(&list);
    free(text);
    if (mg_alloc_get_stats().live_blocks != blocks) abort();
    return 0;
}
