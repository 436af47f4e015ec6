#!/usr/bin/env bash
# tools/aarch64.sh: builds the library and its C++ tests for 64-bit Arm on another machine, and runs
# them under QEMU.
# usage: aarch64.sh [FOLDER]; build/aarch64 by default. Needs, on Debian and Ubuntu:
#   apt-get install g++-aarch64-linux-gnu qemu-user googletest
# Tests of processes that fork are left out: QEMU does not follow a fork of a program with threads.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=$PWD/${1:-build/aarch64}
jobs=${JOBS:-$(nproc)}
system=(-G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64
  -DCMAKE_C_COMPILER=aarch64-linux-gnu-gcc -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++
  "-DCMAKE_CROSSCOMPILING_EMULATOR=qemu-aarch64;-L;/usr/aarch64-linux-gnu"
  -DCMAKE_FIND_ROOT_PATH="/usr/aarch64-linux-gnu;$folder/googletest"
  -DCMAKE_FIND_ROOT_PATH_MODE_PROGRAM=NEVER)

cmake -S /usr/src/googletest -B "$folder/googletest-build" "${system[@]}" -DBUILD_GMOCK=OFF \
  -DCMAKE_INSTALL_PREFIX="$folder/googletest" >/dev/null
cmake --build "$folder/googletest-build" -j "$jobs" -- --quiet
cmake --install "$folder/googletest-build" >/dev/null
cmake -S . -B "$folder/mxkern" "${system[@]}" -DMXKERN_CUDA=OFF -DMXKERN_TESTS=ON >/dev/null
cmake --build "$folder/mxkern" -j "$jobs" -- --quiet

forks='Parallel.WorkersTakeNoSignals:Parallel.AForkedChildHasThreadsOfItsOwn'
forks+=':Parallel.WithoutThreadsTheCallerWorksAlone'
export GTEST_FILTER=-$forks
ctest --test-dir "$folder/mxkern" -j "$jobs" --timeout 600 --output-on-failure
