#!/usr/bin/env bash
# tools/test.sh: every test, C++ and Python, the structure of the sources and the examples.
# usage: test.sh BUILD PREFIX. Runs all of it even if a part fails; the last line counts.
set -uo pipefail

build=$1 prefix=$2
reports=$PWD/$build/reports
rm -rf "$reports"
mkdir -p "$reports/cpp"
failed=0

step() {
  local start=$SECONDS title=$1
  shift
  echo "== $title"
  "$@" || { failed=1; echo "== $title: FAILED"; }
  echo "== $title: $((SECONDS - start)) s"
}

unset MAKEFLAGS MFLAGS MAKELEVEL
export MXKERN_PREFIX=$PWD/$prefix
GTEST_OUTPUT=xml:$reports/cpp/ step "C++ tests" \
  ctest --test-dir "$build" --output-on-failure -j "${JOBS:-2}"
step "Python tests, structure and examples" \
  python -m pytest -q -n "${JOBS:-2}" --dist worksteal --junitxml="$reports/python.xml"
python tools/count_tests.py "$reports" || failed=1
exit $failed
