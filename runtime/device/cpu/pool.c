#include "device/cpu/cpu.h"
static const char *no(const mg_kernel_plan *p) { (void)p; return "later"; }
const mg_kernel mg_cpu_max_pool2d = {.op = "max_pool2d", .name = "none", .accepts = no};
const mg_kernel mg_cpu_max_pool2d_grad = {.op = "max_pool2d_grad", .name = "none", .accepts = no};
const mg_kernel mg_cpu_avg_pool2d = {.op = "avg_pool2d", .name = "none", .accepts = no};
const mg_kernel mg_cpu_avg_pool2d_grad = {.op = "avg_pool2d_grad", .name = "none", .accepts = no};
