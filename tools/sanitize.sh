#!/usr/bin/env bash
# tools/sanitize.sh: builds the C++ tests and the fuzz targets under both sanitizers, in build/asan.
# By clang where its run-time libraries work: then the fuzz runs are guided by coverage.
set -euo pipefail

trap 'rm -rf "$scratch"' EXIT
scratch=$(mktemp -d)

compiler=c++
probe='extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }'
if echo "$probe" | clang++ -x c++ -fsanitize=fuzzer,address,undefined -o "$scratch/probe" - \
  2>/dev/null; then
  compiler=clang++
else
  echo "mxkern: clang with its sanitizers is not there; the inputs of fuzz runs are random"
fi
cmake --preset asan -DCMAKE_CXX_COMPILER=$compiler >/dev/null
cmake --build --preset asan -- --quiet
