# The transport by UCX. The library is opened when it is started, so only its headers are needed here.

UCX_C     := $(wildcard runtime/world/ucx/*.c)
UCX        = $(if $(HAVE_ucx),$(OUT)/mgpu-ucx.so)
LINT_SKIP += $(if $(HAVE_ucx),,$(UCX_C))
$(OUT)/mgpu-ucx.so: $(call obj,$(UCX_C)) $(OUT)/libmgpu.so
