#!/usr/bin/env bash
# tools/gpu.sh: builds for this machine's GPU, tests there, checks memory, measures.
# usage: gpu.sh [PART...] of build, cpp, python, sanitize, bench; all of them by default. `devices`
# is what cpp and python have about several GPUs, alone, and `fuzz` random calls on both devices.
# With two GPUs the second is checked for memory errors and measures other libraries while the first
# measures mxkern and is checked for races. Needs
# nvcc, CMake, Ninja, GoogleTest and a Python with NumPy, ml_dtypes, pytest, hypothesis and
# nanobind; uses PyTorch, CuPy and JAX where they are. Needs no network.
set -uo pipefail
cd "$(dirname "$0")/.."

PYTHON=${PYTHON:-python3}
BUILD=${BUILD:-build/gpu}
JOBS=${JOBS:-$(nproc)}
parts=("$@")
((${#parts[@]})) || parts=(build cpp python sanitize bench)
export PYTHONPATH=$PWD/$BUILD/python${PYTHONPATH:+:$PYTHONPATH}
export PYTHONUNBUFFERED=1 MXKERN_TEST_ALL=1 JAX_PLATFORMS=${JAX_PLATFORMS:-cuda,cpu} XLA_PYTHON_CLIENT_PREALLOCATE=false
reports=$BUILD/reports
failures=$reports/failures

step() {
  local start=$SECONDS title=$1
  shift
  echo "== $title"
  "$@" || echo "$title" >>"$failures"
  echo "== $title: $((SECONDS - start)) s"
}

wanted() { [[ " ${parts[*]} " == *" $1 "* ]]; }

# sm_90 is built with what only this architecture has, and so on.
architecture() {
  local capability
  capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d .)
  ((capability >= 90)) && capability+=a
  echo "$capability-real"
}

build() {
  local backend=ON
  "$PYTHON" -c 'import nanobind_backend' 2>/dev/null || backend=OFF
  cmake -S . -B "$BUILD" -G Ninja -DCMAKE_BUILD_TYPE=Release -DMXKERN_CUDA=ON \
    -DMXKERN_CUDA_ARCHITECTURES="$(architecture)" -DMXKERN_PYTHON=ON -DMXKERN_TESTS=ON \
    -DMXKERN_NANOBIND_BACKEND=$backend -DPython_EXECUTABLE="$(command -v "$PYTHON")" \
    >"$BUILD.log" 2>&1 && cmake --build "$BUILD" -j "$JOBS" >>"$BUILD.log" 2>&1 ||
    { tail -n 40 "$BUILD.log"; return 1; }
}

cpp() {
  GTEST_OUTPUT=xml:$PWD/$reports/cpp/ \
    ctest --test-dir "$BUILD" -j "$JOBS" --output-on-failure 2>&1 | tail -n "${LINES_SHOWN:-40}"
}

# JAX's arrays are the CPU's in the general tests, and the GPU's in those of CUDA.
python() {
  local status=0 parallel=() few=()
  "$PYTHON" -c 'import xdist' 2>/dev/null && parallel=(-n "$((JOBS < 16 ? JOBS : 16))") few=(-n 4)
  JAX_PLATFORMS=cpu "$PYTHON" -m pytest -q -p no:cacheprovider tests/python \
    --ignore-glob "*test_cuda*" "${parallel[@]}" --junitxml="$reports/python.xml" 2>&1 |
    tail -n "${LINES_SHOWN:-40}" || status=1
  "$PYTHON" -m pytest -q -p no:cacheprovider "${few[@]}" \
    tests/python/cuda tests/python/pytorch/*/test_cuda*.py --junitxml="$reports/python-cuda.xml" 2>&1 |
    tail -n "${LINES_SHOWN:-40}" || status=1
  return $status
}

# Skipped by the tests themselves where there is one GPU.
devices() {
  local status=0
  ctest --test-dir "$BUILD" -R 'cuda\.runtime\.(two_devices|streams|errors)_test' --output-on-failure || status=1
  "$PYTHON" -m pytest -q -ra -p no:cacheprovider tests/python/cuda/test_cuda_devices.py || status=1
  return $status
}

fuzz() { "$PYTHON" fuzz/devices_fuzzer.py 60; }

# Small shapes, every kernel: compute-sanitizer slows kernels down by a factor of a hundred. Tests of
# errors are left out, as calls that fail on purpose count as errors.
sanitize() {
  local tool test
  for tool in "$@"; do
    for test in 'cuda.runtime.sanitizer_test *' 'cuda.gemm.gemm_test CudaGemm.EveryPair*:CudaGemm.Prepared*' \
      'cuda.decode.multiply_test *EverySchemeAndShape:*BatchesStrides*' \
      'cuda.decode.hopper_test *EveryPlan' 'cuda.decode.folded_test *Takes:*NanStays*' 'cuda.decode.folded_dense_test *Takes' 'cuda.gemm.hopper.half_test *EverySchemeAndShape' \
      'cuda.gemm.hopper.multiply_test *OutputsOfEveryKind:*PartsOf*:*Gate' \
      'cuda.gemm.hopper.upcast_test *NanStays*:*ManyTiles*:*LowTiles*' \
      'cuda.gemm.hopper.split_k_test *Nan*:*Gate' 'cuda.gemm.hopper.fused_dispatch_test *Small*' \
      'cuda.gemm.portable_test *Plain*' 'cuda.quantize.rows_test *' \
      'cuda.quantize.quantize_test *WholeTilesOfEveryType:*BesideEdges:*TransformsWithRandomWords' \
      'cuda.quantize.tensor_amax_test *' \
      'cuda.quantize.four_over_six_test *GivenAmax:*Tiny*:*NearTies*' 'cuda.decode.quantized_test *NanStays:*Ahead' \
      'cuda.operands.fold_first_rows_test *FirstColumns*' 'cuda.operands.fold_both_test *' \
      'cuda.operands.prepare_both_test *TilesOfAnything:*OnlyMultiply' 'cuda.quantize.random_words_test *' \
      'cuda.gemm.grouped_gemm_test *Nan*:*ManyGroups:*Anywhere:*Wrong*:*Little' \
      'cuda.any.custom_test *' 'cuda.any.custom_gemm_test *' 'cuda.experts.combine_test *' 'cuda.experts.grouped_rows_test *' 'cuda.experts.swiglu_test *' \
      'cuda.experts.swiglu_folded_test *' 'cuda.gemm.hopper.groups_test *' 'cuda.gemm.grouped_columns_test GroupedColumnsSm90.*' \
      'cuda.gemm.hopper.parts_of_sums_test *OfPlainRows'; do
      step "compute-sanitizer $tool, ${test% *}" compute-sanitizer --tool "$tool" \
        --error-exitcode 9 "$BUILD/tests/${test% *}" --gtest_brief=1 "--gtest_filter=${test#* }"
    done
  done
}

# The parts of the benchmarks that name other libraries, and those that do not.
rivals=(cuda_few_token_rivals cuda_rivals)
own=(cuda_host cuda_few_tokens cuda_token_curve cuda_grouped cuda_grouped_columns cuda_gemm cuda_quantize cuda_quantize_types
  cuda_gemm_errors cuda_curve cuda_jax_layers)

measure() { "$PYTHON" -m bench.cuda.runner "$@"; }

counters() { step "what the hardware counts" "$PYTHON" -m bench.cuda.counters; }

# What a second GPU does beside the first.
beside() {
  export CUDA_VISIBLE_DEVICES=1
  if wanted sanitize; then sanitize memcheck initcheck; fi
  step "other libraries" measure "${rivals[@]}" "$@"
  counters
}

benchmarks_of_two() {
  local caution="torchao, Humming and what stands beside them were measured on a second GPU of the \
machine, while the first measured the rest." pid
  # Alone, as it is the host that is measured.
  step "time on the host" measure cuda_host --caution "$caution"
  beside --caution "$caution" >"$reports/beside.log" 2>&1 &
  pid=$!
  step "benchmarks" measure "${own[@]:1}" --caution "$caution"
  if wanted sanitize; then sanitize racecheck; fi
  wait "$pid"
  cat "$reports/beside.log"
}

if ! nvidia-smi -L; then
  echo "mxkern: there is no GPU here; tools/gpu.sh is for machines with one" >&2
  exit 1
fi
mkdir -p "$reports/cpp" "$(dirname "$BUILD")"
rm -f "$failures"
if wanted build; then
  step "build" build
  if [[ -e $failures ]]; then exit 1; fi
fi
if wanted cpp; then step "C++ tests" cpp; fi
if wanted python; then step "Python tests" python; fi
if wanted devices; then step "several GPUs" devices; fi
if wanted fuzz; then step "random calls" fuzz; fi
if wanted bench && (($(nvidia-smi -L | wc -l) > 1)); then
  benchmarks_of_two
else
  if wanted sanitize; then sanitize memcheck racecheck initcheck; fi
  if wanted bench; then
    step "benchmarks" measure
    counters
  fi
fi
if [[ -e $failures ]]; then
  echo "mxkern: failed: $(paste -sd ';' "$failures")"
  exit 1
fi
echo "mxkern: passed: ${parts[*]}"
