# The cpu device needs OpenMP. oneDNN's kernels are built where the library is found.

FLAGS_runtime/device/cpu = $(OPENMP) $(if $(HAVE_dnnl),-DMG_ONEDNN)
CPU_ROOMS = $(filter-out %/simd,$(patsubst %/,%,$(wildcard runtime/device/cpu/*/)))
$(foreach room,$(CPU_ROOMS),$(eval FLAGS_$(room) = $(FLAGS_runtime/device/cpu)))
LINT_DEFS += $(if $(HAVE_dnnl),-DMG_ONEDNN)
LINT_SKIP += $(if $(HAVE_dnnl),,$(ONEDNN_C))
LIBS_mgpu-cpu.so = $(if $(HAVE_dnnl),-ldnnl) $(OPENMP)
# The list of kernels is compiled again when oneDNN comes or goes.
$B/runtime/device/cpu/plugin.o: $B/onednn
$B/onednn: FORCE
	@mkdir -p $(@D); echo '$(HAVE_dnnl)' | cmp -s - $@ || echo '$(HAVE_dnnl)' >$@

# The inner loops of the cpu device: every file of simd/ is compiled once per instruction set into
# NAME.SET.o; isa.c chooses a set when the plug-in is opened. Every aarch64 processor has NEON; kinds
# of processors that are not named have the baseline set only, with the vectors that their compiler
# takes for granted.

SIMD_C      := $(wildcard runtime/device/cpu/simd/*.c)
PROCESSOR   := $(firstword $(subst -, ,$(shell $(CC) -dumpmachine 2>/dev/null)))
ISAS_x86_64  = baseline avx2 avx512
ISAS_aarch64 = neon
ISAS        := $(or $(ISAS_$(PROCESSOR)),baseline)
ISA_avx2   = -mavx2 -mfma -mf16c
ISA_avx512 = $(ISA_avx2) -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512
ONEDNN_C    := $(wildcard runtime/device/cpu/onednn/*.c)
BY_RULE_cpu := $(SIMD_C) $(if $(HAVE_dnnl),,$(ONEDNN_C))
OBJECTS_cpu := $(foreach isa,$(ISAS),$(SIMD_C:%.c=$B/%.$(isa).o))

# $(call simd_rule,SET)
define simd_rule
$B/runtime/device/cpu/simd/%.$1.o: runtime/device/cpu/simd/%.c | build/found.mk
	@mkdir -p $$(@D)
	$$(call say,cc,'$$< ($1)')
	$$Q$$(CC) $$(FLAGS) $$(FLAGS_runtime/device/cpu) $$(ISA_$1) -DMG_ISA=$1 -MMD -MP -c -o $$@ $$<
endef
$(foreach isa,$(ISAS),$(eval $(call simd_rule,$(isa))))
