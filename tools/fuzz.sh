#!/usr/bin/env bash
# tools/fuzz.sh: each fuzz target for some seconds. usage: fuzz.sh SECONDS
# Guided by coverage where clang and its run-time library work, random elsewhere.
set -euo pipefail

seconds=$1
trap 'rm -rf "$scratch"' EXIT
scratch=$(mktemp -d)

compiler=c++
probe='extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }'
if echo "$probe" | clang++ -x c++ -fsanitize=fuzzer,address,undefined -o "$scratch/probe" - \
  2>/dev/null; then
  compiler=clang++
else
  echo "mxkern: clang with its sanitizers is not there; the inputs are random"
fi

cmake --preset fuzz -DCMAKE_CXX_COMPILER=$compiler >/dev/null
cmake --build --preset fuzz -- --quiet
declare -A runs
for target in dequantize gemm; do  # one on each core
  mkdir -p "build/fuzz/corpus/$target"
  "build/fuzz/fuzz/fuzz_$target" -max_total_time="$seconds" -max_len=4096 \
    -artifact_prefix=build/fuzz/ "build/fuzz/corpus/$target" >"$scratch/$target" 2>&1 &
  runs[$target]=$!
done
failed=0
for target in dequantize gemm; do
  lines=1
  wait "${runs[$target]}" || { failed=1; lines=60; }
  echo "== fuzz $target"
  tail -n $lines "$scratch/$target"
done
((failed == 0)) || exit 1
echo "== fuzz safetensors"
python fuzz/safetensors_fuzzer.py "$seconds"
