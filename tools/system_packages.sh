#!/usr/bin/env bash
# tools/system_packages.sh: makes sure that the system packages which pip cannot give are there.
# usage: system_packages.sh PYTHON [tests]. As root with apt, what is missing is installed;
# elsewhere it is named, with the line that installs it.
set -euo pipefail

python=${1:-python3}
missing=()

if ! command -v "$python" >/dev/null; then
  missing+=(python3)
elif ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
  echo "mxkern: $python is $("$python" -V 2>&1); 3.11 or newer is needed; name one with:" \
    "make PYTHON=/path/to/python3" >&2
  exit 1
fi
"$python" -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
header='import os, sysconfig as s, sys; sys.exit(not os.path.exists(s.get_path("include") + "/Python.h"))'
"$python" -c "$header" 2>/dev/null || missing+=(python3-dev)

compiler=${CXX:-c++}
if ! echo 'int main() {}' | "$compiler" -std=c++20 -x c++ -fsyntax-only - 2>/dev/null; then
  missing+=(g++)
fi
if [[ ${2:-} == tests ]]; then
  echo '#include <gtest/gtest.h>' | "$compiler" -x c++ -E - >/dev/null 2>&1 || missing+=(libgtest-dev)
fi

if ((${#missing[@]} == 0)); then
  exit 0
fi
if [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
  echo "mxkern: installing ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
else
  echo "mxkern: missing system packages: ${missing[*]}; install them with:" >&2
  echo "  sudo apt-get install ${missing[*]}" >&2
  exit 1
fi
