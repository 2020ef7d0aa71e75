#!/bin/sh
# Tests and benchmarks on a machine with a GPU, from the bundle in build/gpu; nothing is built there.
#
#     on_gpu.sh preflight   libraries, and steps with and without CUDA graphs; ends within two minutes
#     on_gpu.sh check       that and the specs in tests/cuda, then compute-sanitizer while time is left
#     on_gpu.sh sanitize    compute-sanitizer over the ops with our own kernels
#     on_gpu.sh bench ...   tests/bench/gpu.lua with these options
#     on_gpu.sh part NAME   one of those, or machine, rows, specs or kernels, without a verdict: see gpu_first.sh
#     on_gpu.sh background  the compiled steps of PyTorch that a benchmark needs, until they are killed
#     on_gpu.sh sources     prints a checksum of the sources that the bundle is built from
#
# A run ends within GPU_SECONDS (550; preflight: 120) whatever happens. It prints its progress, also to a file in
# RESULTS (build), and ends with the failures, shortened, and a line `N passed, N failed`. WORK: a folder for files
# between parts (build/gpu-first). PASSED: a file of lines `ok   NAME`; what they name is not run again.
cd "$(dirname "$0")/../.." || exit 1
: "${P:=build/gpu/mgpulua}" "${RESULTS:=build}" "${WORK:=build/gpu-first}" "${GPU_BEGAN:=$(date +%s)}"
[ "$1" = preflight ] && : "${GPU_SECONDS:=120}"
: "${GPU_SECONDS:=550}"
# The last two are where containers get the driver mounted; the loader may not know these folders.
export P LD_LIBRARY_PATH="build/gpu${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}:/usr/local/nvidia/lib64:/usr/local/nvidia/lib" \
  RESULTS WORK GPU_SECONDS GPU_BEGAN LUA_PATH="build/gpu/?.lua;${LUA_PATH:-;}"

# Seconds until the deadline; whether a name is listed in PASSED; a checksum of all sources of the runtime.
left() { echo $((GPU_BEGAN + GPU_SECONDS - $(date +%s))); }
has_passed() { [ -f "$PASSED" ] && grep -Fqx "ok   $1" "$PASSED"; }
sources() { find runtime -type f | LC_ALL=C sort | xargs cat | cksum; }

# Finds a python3 with PyTorch. It is the peer of the benchmark, and its wheels have cuDNN and the other
# libraries, which may be missing elsewhere: the program looks for them below VIRTUAL_ENV.
find_python() {
  for p in python3 "$VIRTUAL_ENV/bin/python3" /opt/*/.venv/bin/python3 /opt/*/venv/bin/python3 \
    /opt/*/bin/python3 ~/.venv/bin/python3 ~/venv/bin/python3; do
    root=$(timeout 30 "$p" -c 'import importlib.util as i, os
print(os.path.abspath(os.path.join(os.path.dirname(i.find_spec("torch").origin), *[".."] * 4)))' \
      2>/dev/null) || continue
    export PYTHON="$p" VIRTUAL_ENV="$root"
    break
  done
  echo "python3 with PyTorch: ${PYTHON:-none}, its wheels below ${VIRTUAL_ENV:-?}"
}

# ---- the machine ----

fail() { # name, reason: prints a failure as tests/run.lua does
  echo "FAIL $1"
  echo "     FAIL: $2"
  echo "0 passed, 1 failed"
}

# Prints GPU, driver and devices; fails if the bundle is out of date or no device is found.
look_around() {
  nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null
  find_python
  if [ "$(cat build/gpu/sources 2>/dev/null)" != "$(sources)" ]; then
    fail preflight "build/gpu is not made from these sources: make gpu-bundle"
    return 1
  fi
  devices=$(timeout 60 $P --list-devices 2>&1) || echo "--list-devices ended with status $?"
  echo "$devices"
  case "$devices" in *cuda:0*) ;; *) fail preflight "no cuda:0" && return 1 ;; esac
}

# Whether two texts agree, numbers in them up to a relative difference.
alike() { # difference, text, text
  awk -v most="$1" -v a="$2" -v b="$3" 'BEGIN { n = split(a, x); if (!n || n != split(b, y)) exit 1
    for (i = 1; i <= n; i++) if (x[i] != y[i] && !((x[i] - y[i]) ^ 2 <= (most * x[i]) ^ 2 && x[i] ~ /^[0-9]/)) exit 1 }'
}

# Fails if a step fails or is not captured, if its losses are not those of the cpu device or depend on how it is
# captured, or if cuDNN or cuBLASLt was not used. The tests run all the same: there are our own kernels for everything.
# A thousandth: sums in another order. Five: TF32 has ten bits of a mantissa.
preflight() {
  first=
  : "${MODELS:=lenet5 mnist_cnn}"
  wanted=$(for m in $MODELS; do sed -n "s/^losses: $m /$m /p" build/gpu/losses; done | tr '\n' ' ')
  for mode in parallel chain no; do
    # shellcheck disable=SC2086 # a list of models
    text=$(MGPU_CUDA_GRAPH=$mode MGPU_LOG=fallback,dispatch timeout $(($(left) / 2)) \
      $P tests/cuda/preflight.lua cuda:0 $MODELS 2>&1)
    status=$?
    losses=$(echo "$text" | sed -n 's/^losses: //p' | tr '\n' ' ')
    echo "= MGPU_CUDA_GRAPH=$mode: losses $losses"
    if echo "$text" | grep 'is not captured'; then fail preflight "a step is not captured with MGPU_CUDA_GRAPH=$mode"; fi
    if [ $mode != parallel ]; then
      if alike 1e-3 "$first" "$losses"; then echo "1 passed, 0 failed: losses with MGPU_CUDA_GRAPH=$mode"; else
        fail preflight "the losses with MGPU_CUDA_GRAPH=$mode are '$losses', else '$first'"
      fi
      continue
    fi
    first=$losses
    if alike 5e-3 "$wanted" "$losses"; then echo "1 passed, 0 failed: losses of the cpu device"; else
      fail preflight "the losses are '$losses', those of the cpu device '$wanted'"
    fi
    echo "$text" | grep -v 'dispatch: ' | head -n 40
    echo "-- each relu that runs behind its library call, and the times of each contest:"
    echo "$text" | grep -E 'dispatch: .*(run behind|NaN| is out$| takes )' | head -n 120
    echo "-- who took each convolution and product:"
    echo "$text" | grep -E 'dispatch: .*(conv2d|matmul)' | grep -vE ' is out$| takes ' | head -n 40
    for line in 'preflight: ok' ': cuDNN' ': cuBLASLt'; do
      if echo "$text" | grep -q "$line\$"; then echo "1 passed, 0 failed: $line"; else
        fail preflight "status $status, no line ends in '$line'"
      fi
    done
  done
}

# ---- rows of ops and layers ----

# Part K of N of the rows, by one process after the other: each begins behind the row that ended the one before.
work_off() { # K, N
  journal=$WORK/journal-$1 messages=$WORK/messages-$1 from=1 begun=0
  while [ "$(left)" -gt 3 ]; do
    MGPU_LOG=dispatch MGPU_DEADLINE=10 MGPU_GRACE=2 timeout -s KILL $(($(left) - 2)) $P tests/cuda/rows.lua \
      "$journal" "$messages" --part "$1/$2" --from $from \
      ${PASSED:+--passed "$PASSED"} ${ONLY:+--only "$ONLY"} --seconds "${ROW_SECONDS:-20}" 2>>"$messages"
    status=$?
    row=$(grep '^row ' "$journal" 2>/dev/null | tail -n 1 | cut -d ' ' -f 2-)
    case $(tail -n 1 "$journal" 2>/dev/null) in
    end) return ;;
    row*) [ "$(left)" -gt 3 ] && echo "FAIL ${row#* }: the process ended with status $status" | tee -a "$journal" ;;
    esac
    if [ "${row%% *}" = "$begun" ] || [ -z "$row" ]; then # it ends before it has begun a row
      echo "FAIL rows: status $status before row $from: $(tail -n 3 "$messages" | head -n 1)" | tee -a "$journal"
      return
    fi
    begun=${row%% *} from=$((begun + 1))
  done
  echo "FAIL rows: not all rows of part $1/$2 were reached; the last: $row" | tee -a "$journal"
}

# Most of the time goes into compiling kernels, so several processes share the rows. ONLY: a part of the names of rows.
rows() {
  n=$(($(nproc) / 2))
  [ $n -gt 8 ] && n=8
  [ $n -lt 1 ] && n=1
  mkdir -p "$WORK"
  for k in $(seq $n); do work_off "$k" $n & done
  wait
  echo "$(cat "$WORK"/journal-* | grep -c '^ok ') passed, $(cat "$WORK"/journal-* | grep -c '^FAIL ') failed: rows"
}

# ---- tests and sanitizers ----

# Long specs are split into parts that run in parallel: most of their time goes into compiling kernels.
in_parts() { # file, number of parts
  for k in $(seq "$2"); do echo "$1:$k/$2"; done
}

tests() { # all specs of the cuda device, or those left out of `rows`; the longest first
  jobs=$(nproc)
  long=${1:-ops mixed autotune optimizers layers}
  files=$(for f in tests/cuda/*_spec.lua; do
    case " $long " in *" $(basename "$f" _spec.lua) "*) ;; *) echo "$f" ;; esac
  done)
  files=$(for f in $long; do in_parts "tests/cuda/${f}_spec.lua" 5; done; echo "$files")
  [ "$1" ] && files=$(for f in $files; do
    case $f in */ops_spec.lua | */layers_spec.lua) ;; *) has_passed "$f" || echo "$f" ;; esac
  done)
  # shellcheck disable=SC2086 # a list of files
  $P tests/run.lua --jobs $((jobs > 14 ? 14 : jobs)) --timeout 420 --deadline $(($(left) - 5)) $files
}

# Rows of the op table for the sanitizers. The kernels of cuDNN and cuBLAS are slow under racecheck and not
# ours to check: their ops are left out, and MGPU_CUDA_AUTOTUNE=1 takes our kernel where there are both. The
# patterns with shapes are convolutions by our own kernels.
QUICK='^sum ^max ^prod ^argmax ^cumsum ^softmax ^exp ^add'
REST='^moments ^batch_norm ^layer_norm | ^sparse_softmax_cross_entropy ^log_softmax ^avg_pool2d
  | ^max_pool2d {3,40,150,1} {3,3,1,12} | ^gather ^scatter_add ^permute ^pad ^concat ^slice ^reverse ^broadcast_to ^where ^cast
  | ^min ^all ^any ^argmin ^prod_grad ^random ^iota'

one_sanitizer() { # tool, seconds, rows...: one run of compute-sanitizer, its log in RESULTS
  tool=$1 seconds=$2 log=$RESULTS/gpu-$1.txt
  shift 2
  has_passed "$tool $*" && return
  # API errors are not reported: we look for a kernel in one module after another, and all but one fail
  MGPU_CUDA_AUTOTUNE=1 MGPU_CUDA_KEPT=0 MGPU_TEST_FAST=1 timeout -k 5 "$seconds" "$S" --tool "$tool" \
    --report-api-errors no --error-exitcode 9 --print-limit 20 \
    $P tests/check.lua tests/cuda/ops_spec.lua "$@" >"$log.new" 2>&1
  status=$?
  cat "$log.new" >>"$log"
  if [ $status -eq 0 ]; then
    printf 'ok   %s %s\n1 passed, 0 failed: %s\n' "$tool" "$*" "$(tail -n 2 "$log.new" | tr '\n' ' ')"
  else
    [ $status -eq 124 ] && status="$status: no end after $seconds s"
    printf 'FAIL %s %s\n     FAIL: status %s\n%s\n0 passed, 1 failed\n' "$tool" "$*" "$status" \
      "$(grep -E '^=====|^FAIL|passed,' "$log.new" | head -n 12 | sed 's/^/     FAIL: /')"
  fi
  rm -f "$log.new"
}

sanitize() { # lists of rows, separated by |: memcheck and racecheck of each in turn, while time is left
  for S in "$(command -v compute-sanitizer)" /usr/local/cuda*/bin/compute-sanitizer \
    /usr/local/cuda*/compute-sanitizer/compute-sanitizer /opt/nvidia/*/compute-sanitizer; do
    [ -f "$S" ] && break
  done
  [ -f "$S" ] || { fail sanitizers "no compute-sanitizer on this machine"; return; }
  echo "$1" | tr '\n|' ' \n' | while read -r rows || [ -n "$rows" ]; do
    seconds=$(($(left) - 5))
    [ $seconds -gt 250 ] && seconds=250
    if [ $seconds -lt 40 ]; then echo "not run: out of time: memcheck and racecheck of $rows"; continue; fi
    # shellcheck disable=SC2086 # a list of rows
    for tool in memcheck racecheck; do one_sanitizer $tool $seconds $rows & done
    wait
  done
}

# ---- all of it ----

# What a run or a part of it does, without the time limit and the verdict. "== end" marks a complete log.
part() {
  case $1 in check | preflight | sanitize | bench | machine) look_around || return ;; *) find_python >/dev/null ;; esac
  # The tests time kernels while other processes use the GPU; the benchmark must not use those choices.
  case $1 in bench | kernels) kept=build/gpu-bench-cache ;; *) kept=build/gpu-cache ;; esac
  export MGPU_CACHE="${MGPU_CACHE:-$kept}" MGPU_TEST_GPU=1
  case $1 in
  machine) $P tests/cuda/machine.lua "$RESULTS/gpu-properties.json" "${SIZE:-8192}" ;;
  preflight | steps) preflight ;;
  rows) rows ;;
  check) preflight; tests; sanitize "$QUICK" ;;
  specs) tests 'mixed autotune optimizers' ;;
  sanitize) sanitize "$QUICK|$REST" ;;
  bench) shift && $P tests/bench/gpu.lua --python "${PYTHON:-python3}" --seconds $(($(left) - 5)) --peers "$WORK" "$@" ;;
  kernels) ${PYTHON:-python3} tests/bench/gpu_kernels.py "$P" "$WORK/slow" $(($(left) - 2)) "$RESULTS/gpu-properties.json" ;;
  esac
  echo "== end"
}

# The failures of a log, at most eight lines of each, and the totals.
verdict() {
  grep -q '^== end' "$1" || grep -q '^FAIL preflight' "$1" || fail "$1" "cut off after $GPU_SECONDS s" | tee -a "$1"
  echo
  awk '/^[^ ]/ { shown = 0 } /^FAIL / || (/^     FAIL: / && shown++ < 8) { print substr($0, 1, 260) }' "$1" |
    head -c 10000
  awk '/^[0-9]+ passed, [0-9]+ failed/ { p += $1; f += $3 } END { print p + 0 " passed, " f + 0 " failed" }' "$1"
}

case $1 in
sources) sources ;;
part) shift && part "$@" ;;
background) find_python && exec $P tests/bench/gpu.lua --python "${PYTHON:-python3}" --peers "$WORK" --start "$(left)" ;;
preflight | check | sanitize | bench)
  if [ ! -x "$P" ]; then
    echo "build/gpu is missing: run 'make gpu-bundle' on a machine with the CUDA toolkit and copy the tree with build/gpu here"
    exit 1
  fi
  log=$RESULTS/gpu-$1.txt
  timeout -k 5 $((GPU_SECONDS + 5)) sh "$0" part "$@" 2>&1 | tee "$log"
  [ "$1" = bench ] && exit
  verdict "$log" | tee "$log.end"
  cat "$log.end" >>"$log"
  tail -n 1 "$log.end" | grep -q '^[1-9].* 0 failed'
  status=$?
  rm -f "$log.end"
  exit $status
  ;;
*) sed -n '2,/^[^#]/s/^# *//p' "$0"; exit 2 ;;
esac
