#!/bin/sh
# The tests of the cuda device on a real GPU: `make gpu-check`. Runs from the bundle in build/gpu and
# ends with `N passed, N failed`; what compute-sanitizer finds counts as failures.
cd "$(dirname "$0")/../.." || exit 1
P=build/gpu/mgpulua
export MGPU_TEST_GPU=1
$P --list-devices
$P -e 'print(jit.version)' || exit 1
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null
$P tests/run.lua --jobs 4 --timeout 560 tests/cuda/*_spec.lua >build/gpu-check.txt 2>&1
cat build/gpu-check.txt
summary=$(tail -n 1 build/gpu-check.txt)
passed=$(echo "$summary" | sed -n 's/^\([0-9]*\) passed.*/\1/p')
failed=$(echo "$summary" | sed -n 's/.* \([0-9]*\) failed.*/\1/p')
: "${passed:=0}" "${failed:=1}"
[ "$1" = quick ] && exit "$failed"
S=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
for tool in ${S:+memcheck racecheck}; do
  echo "compute-sanitizer $tool"
  if MGPU_CUDA_KEPT=0 MGPU_TEST_FAST=1 timeout 500 "$S" --tool $tool --error-exitcode 9 --print-limit 20 \
    $P tests/check.lua tests/cuda/ops_spec.lua >build/gpu-$tool.txt 2>&1
  then passed=$((passed + 1)); else failed=$((failed + 1)); tail -n 40 build/gpu-$tool.txt; fi
done
[ -n "$S" ] || echo "no compute-sanitizer on this machine"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
