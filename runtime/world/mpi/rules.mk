# The transports by MPI: every file of this folder is compiled once per kind of MPI into NAME.KIND.o, and linked with the
# library of that kind into mgpu-KIND.so.
#
# Debian has Open MPI and MPICH side by side. MPI_ABI_H is a folder with mpi_abi.h, the header of the ABI that MPI 5.0
# standardizes; ../lib beside it holds libmpi_abi.so. (`pip install mpich` has both, from version 5 on.)

OPENMPI_H ?= $(firstword $(wildcard /usr/lib/*/openmpi/include))
MPICH_H   ?= $(firstword $(wildcard /usr/include/*/mpich))
MPI_ABI_H ?=
LIB_openmpi = $(addprefix -L,$(wildcard $(OPENMPI_H)/../lib)) -lmpi
LIB_mpich   = -lmpich
LIB_mpi_abi = $(MPI_ABI_H:%=-L%/../lib) -lmpi_abi
H_openmpi   = $(OPENMPI_H)
H_mpich     = $(MPICH_H)
H_mpi_abi   = $(MPI_ABI_H)
HEADER_mpi_abi = mpi_abi.h

MPI_C     := $(wildcard runtime/world/mpi/*.c)
MPI_KINDS  = $(if $(HAVE_openmpi),openmpi) $(if $(HAVE_mpich),mpich) $(if $(wildcard $(MPI_ABI_H)/mpi_abi.h),mpi_abi)
LINT_DEFS += -DMG_MPI_KIND='"openmpi"' -DMG_MPI_HEADER='<mpi.h>' $(addprefix -isystem ,$(OPENMPI_H))
LINT_SKIP += $(if $(HAVE_openmpi),,$(MPI_C))

# $(call mpi_rule,KIND)
define mpi_rule
LIBS_mgpu-$1.so = $$(LIB_$1)
$(OUT)/mgpu-$1.so: $(MPI_C:%.c=$B/%.$1.o) $(OUT)/libmgpu.so
$B/runtime/world/mpi/%.$1.o: runtime/world/mpi/%.c | build/found.mk
	@mkdir -p $$(@D)
	$$(call say,cc,'$$< ($1)')
	$$Q$$(CC) $$(FLAGS) -isystem $$(H_$1) -DMG_MPI_KIND='"$1"' -DMG_MPI_HEADER='<$$(or $$(HEADER_$1),mpi.h)>' -MMD -MP -c \
	  -o $$@ $$<
endef
$(foreach kind,$(MPI_KINDS),$(eval $(call mpi_rule,$(kind))))
