#include "device/cpu/cpu.h"
static const char *no(const mg_kernel_plan *p) { (void)p; return "later"; }
const mg_kernel mg_cpu_softmax = {.op = "softmax", .name = "none", .accepts = no};
const mg_kernel mg_cpu_log_softmax = {.op = "log_softmax", .name = "none", .accepts = no};
