#!/usr/bin/env bash
# tools/gpu.sh: builds for this machine's GPU, runs all tests there, checks memory, measures.
# usage: gpu.sh [PART...] of build, cpp, python, sanitize, bench; all of them by default. `devices`
# is what cpp and python have about several GPUs, alone. Needs
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
export PYTHONUNBUFFERED=1 JAX_PLATFORMS=${JAX_PLATFORMS:-cuda,cpu} XLA_PYTHON_CLIENT_PREALLOCATE=false
reports=$BUILD/reports
failed=()

step() {
  local start=$SECONDS title=$1
  shift
  echo "== $title"
  "$@" || failed+=("$title")
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
  local status=0 parallel=()
  "$PYTHON" -c 'import xdist' 2>/dev/null && parallel=(-n "$((JOBS < 8 ? JOBS : 8))")
  JAX_PLATFORMS=cpu "$PYTHON" -m pytest -q -p no:cacheprovider tests/python \
    --ignore-glob "*test_cuda*" "${parallel[@]}" --junitxml="$reports/python.xml" 2>&1 |
    tail -n "${LINES_SHOWN:-40}" || status=1
  "$PYTHON" -m pytest -q -p no:cacheprovider tests/python/test_cuda*.py \
    --junitxml="$reports/python-cuda.xml" 2>&1 | tail -n "${LINES_SHOWN:-40}" || status=1
  return $status
}

# Skipped by the tests themselves where there is one GPU.
devices() {
  local status=0
  ctest --test-dir "$BUILD" -R 'cuda\.(two_devices|streams|errors)_test' --output-on-failure || status=1
  "$PYTHON" -m pytest -q -ra -p no:cacheprovider tests/python/test_cuda_devices.py || status=1
  return $status
}

# Small shapes, every kernel: compute-sanitizer slows kernels down by a factor of a hundred. Tests of
# errors are left out, as calls that fail on purpose count as errors.
sanitize() {
  local tool test
  for tool in memcheck racecheck initcheck; do
    for test in 'cuda.sanitizer_test *' 'cuda.gemm_test CudaGemm.EveryPair*:CudaGemm.Prepared*' \
      'cuda.multiply_few_test *EverySchemeAndShape:*BatchesStrides*' \
      'cuda.multiply_sm90_test *OutputsOfEveryKind:*PartsOf*:*Gate'; do
      step "compute-sanitizer $tool, ${test% *}" compute-sanitizer --tool "$tool" \
        --error-exitcode 9 "$BUILD/tests/${test% *}" --gtest_brief=1 "--gtest_filter=${test#* }"
    done
  done
}

if ! nvidia-smi -L; then
  echo "mxkern: there is no GPU here; tools/gpu.sh is for machines with one" >&2
  exit 1
fi
mkdir -p "$reports/cpp" "$(dirname "$BUILD")"
if wanted build; then
  step "build" build
  if ((${#failed[@]})); then exit 1; fi
fi
if wanted cpp; then step "C++ tests" cpp; fi
if wanted python; then step "Python tests" python; fi
if wanted devices; then step "several GPUs" devices; fi
if wanted sanitize; then sanitize; fi
if wanted bench; then
  step "benchmarks" "$PYTHON" -m bench.cuda.runner
  step "what the hardware counts" "$PYTHON" -m bench.cuda.counters
fi
if ((${#failed[@]} > 0)); then
  echo "mxkern: failed: ${failed[*]}"
  exit 1
fi
echo "mxkern: passed: ${parts[*]}"
