#include "device/cpu/cpu.h"
static const char *no(const mg_kernel_plan *p) { (void)p; return "later"; }
const mg_kernel mg_cpu_permute = {.op = "permute", .name = "none", .accepts = no};
const mg_kernel mg_cpu_slice = {.op = "slice", .name = "none", .accepts = no};
const mg_kernel mg_cpu_pad = {.op = "pad", .name = "none", .accepts = no};
const mg_kernel mg_cpu_concat = {.op = "concat", .name = "none", .accepts = no};
const mg_kernel mg_cpu_broadcast_to = {.op = "broadcast_to", .name = "none", .accepts = no};
const mg_kernel mg_cpu_gather = {.op = "gather", .name = "none", .accepts = no};
const mg_kernel mg_cpu_reshape = {.op = "reshape", .name = "none", .accepts = no};
const mg_kernel mg_cpu_full = {.op = "full", .name = "none", .accepts = no};
const mg_kernel mg_cpu_iota = {.op = "iota", .name = "none", .accepts = no};
