#!/usr/bin/env bash
# tools/cuda.sh: compiles the CUDA half on a machine that may have no GPU.
# usage: cuda.sh BUILD [whole]
# Everything for sm_90a, with the tests, which are skipped where there is no device; for the other
# architectures of a release, of what is compiled once a scheme, the scheme with most code paths. As
# none of it runs, compilers are told to optimize little: a sixth of the time, and the same errors.
# For Blackwell also the products that CUTLASS makes, whose machine code is looked at: those to
# bfloat16 as a release has them, and one to float32 for each architecture; with `whole` all.
set -euo pipefail

build=$1
products=${2:-fewer}  # of Blackwell
jobs=${JOBS:-2}
if ! command -v nvcc >/dev/null; then
  echo "mxkern: there is no nvcc here: the CUDA half is not compiled"
  exit 0
fi

fast=""
if [[ $(nvcc --help) == *--Ofast-compile* ]]; then fast="-Ofc max"; fi
quick=(-DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O0 -DCMAKE_CUDA_FLAGS_DEBUG=
  -DCMAKE_CUDA_FLAGS="$fast")

configure() {
  local folder=$1
  shift
  cmake -S . -B "$folder" -G Ninja -DMXKERN_CUDA=ON "$@" >/dev/null
}

compile() {
  local folder=$1 start=$SECONDS
  shift
  cmake --build "$folder" -j "$jobs" --target "$@" -- --quiet
  echo "mxkern: $folder: $((SECONDS - start)) s"
}

# The CPU backend is tested elsewhere: of its instruction sets one suffices.
configure "$build/sm90a" -DMXKERN_CUDA_ARCHITECTURES=90a-real -DMXKERN_TESTS=ON \
  -DMXKERN_INSTRUCTION_SETS=baseline -DMXKERN_CUDA_TOGETHER=ON "${quick[@]}"
tests=()
while read -r source; do
  name=${source#tests/}
  name=${name%.*}
  tests+=("${name//\//.}")
done < <(find tests/cuda -name '*_test.c[cu]')
compile "$build/sm90a" mxkern "${tests[@]}" cuda.phantom_few_test cuda.phantom_others_test
ctest --test-dir "$build/sm90a" --output-on-failure -j "$jobs" -R '^cuda\.'

# Device code alone, unless what the host runs depends on the architectures too.
compile_for_others() {
  local source=$1 product=-fatbin architecture options=()
  for architecture in 80 100a 120a; do
    options+=("-gencode=arch=compute_$architecture,code=sm_$architecture")
  done
  if grep -q MXKERN_HAS_SM90 "$source"; then product=-c; fi
  # shellcheck disable=SC2086
  nvcc -std=c++20 --fmad=false $fast -Iinclude -Isrc -DMXKERN_HAS_CUDA "${options[@]}" $product \
    -o "$build/others/$(tr / - <<<"$source").o" "$source"
}
export -f compile_for_others
export build fast

others() {
  local start=$SECONDS
  mkdir -p "$build/others"
  {
    find src/cuda -name '*.cu' -not -path '*/instances/*'
    printf '%s\n' "$build"/sm90a/instances/*_nvfp4.cu
    printf '%s\n' "$build"/sm90a/instances/hopper_bfloat16_bfloat16.cu
  } |
    xargs -P "$1" -I{} bash -c 'compile_for_others {}'
  echo "mxkern: $build/others: $((SECONDS - start)) s"
  echo "mxkern: the CUDA half compiles for sm_90a, and one scheme of it for sm_80, sm_100a, sm_120a"
}

# Here optimizing little takes longer: in -Ofc max ptxas does, at -O0 the host's compiler.
blackwell=$build/blackwell-$products
configure "$blackwell" -DCMAKE_BUILD_TYPE=Release -DMXKERN_TESTS=ON \
  -DMXKERN_CUDA_ARCHITECTURES='100a-real;120a-real' \
  -DMXKERN_TEST_FEWER_PRODUCTS=$([[ $products == whole ]] && echo OFF || echo ON)
test=structure.blackwell_kernels_test
if [[ $(cmake --build "$blackwell" --target help) != *"$test:"* ]]; then
  echo "mxkern: CUTLASS was not found: Blackwell's products of codes and scales are not compiled"
  others "$jobs"
  exit 0
fi

blackwell() {
  compile "$blackwell" $test
  ctest --test-dir "$blackwell" --output-on-failure -R "^$test\$"
  MXKERN_BLACKWELL_OBJECTS=$blackwell "${PYTHON:-python3}" -m pytest -q -n "$jobs" \
    tests/structure/test_blackwell.py
}

# A file of them takes 9 GiB. What compiles for the others beside them takes the cores for which that
# leaves no memory, and those that wait for the longest file.
fitting=$(awk '/^MemAvailable:/ { print int($2 / 10e6) }' /proc/meminfo)
((fitting >= 1)) || fitting=1
others $((jobs > fitting ? jobs - fitting : 1)) &
beside=$!
((jobs <= fitting)) || jobs=$fitting
status=0
blackwell &
wait $! || status=1
wait $beside || status=1
exit $status
