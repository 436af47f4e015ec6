#!/usr/bin/env bash
# tools/fuzz.sh: each fuzz target for some seconds. usage: fuzz.sh SECONDS
# Guided by coverage where clang and its run-time library work, random elsewhere.
set -euo pipefail

seconds=$1
trap 'rm -rf "$scratch"' EXIT
scratch=$(mktemp -d)

bash tools/sanitize.sh
declare -A runs
for target in dequantize gemm; do
  mkdir -p "build/fuzz/$target"
  "build/asan/fuzz/fuzz_$target" -max_total_time="$seconds" -max_len=4096 \
    -artifact_prefix=build/fuzz/ "build/fuzz/$target" >"$scratch/$target" 2>&1 &
  runs[$target]=$!
done
for target in safetensors arguments; do
  python "fuzz/${target}_fuzzer.py" "$seconds" >"$scratch/$target" 2>&1 &
  runs[$target]=$!
done
failed=0
for target in dequantize gemm safetensors arguments; do
  lines=1
  wait "${runs[$target]}" || { failed=1; lines=60; }
  echo "== fuzz $target"
  tail -n $lines "$scratch/$target"
done
exit $failed
