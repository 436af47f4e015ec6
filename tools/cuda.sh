#!/usr/bin/env bash
# tools/cuda.sh: compiles the CUDA half on a machine that may have no GPU. usage: cuda.sh BUILD
# Everything for sm_90a, with the tests, which are skipped where there is no device; for the other
# architectures of a release the scheme with most code paths, which stands for all: the whole list
# for all of them would take four times as long.
set -euo pipefail

build=$1
jobs=${JOBS:-2}
if ! command -v nvcc >/dev/null; then
  echo "mxkern: there is no nvcc here: the CUDA half is not compiled"
  exit 0
fi

configure() {
  cmake -S . -B "$1" -G Ninja -DCMAKE_BUILD_TYPE=Release -DMXKERN_CUDA=ON \
    -DMXKERN_CUDA_ARCHITECTURES="$2" -DMXKERN_TESTS="$3" >/dev/null
}

configure "$build/sm90a" 90a-real ON
tests=()
for source in tests/cuda/*_test.c[cu]; do
  name=$(basename "$source")
  tests+=("cuda.${name%.*}")
done
cmake --build "$build/sm90a" -j "$jobs" --target mxkern "${tests[@]}" -- --quiet
ctest --test-dir "$build/sm90a" --output-on-failure -j "$jobs" -R '^cuda\.'

objects=src/CMakeFiles/mxkern.dir/cuda
for architecture in 80 100a 120a; do
  configure "$build/sm$architecture" "$architecture-real" OFF
done
pids=()
for architecture in 80 100a 120a; do
  cmake --build "$build/sm$architecture" -j 1 \
    --target $objects/instances/quantize_nvfp4.cu.o $objects/dequantize.cu.o -- --quiet &
  pids+=($!)
  if ((${#pids[@]} >= jobs)); then
    wait "${pids[0]}"
    pids=("${pids[@]:1}")
  fi
done
for pid in "${pids[@]}"; do wait "$pid"; done
echo "mxkern: the CUDA half compiles for sm_90a, and one scheme of it for sm_80, sm_100a, sm_120a"
