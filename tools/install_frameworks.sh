#!/usr/bin/env bash
# tools/install_frameworks.sh: what the tests compare with but the library does not need.
# usage: install_frameworks.sh PYTHON. Each is installed where that works; where it does not, its
# tests are skipped, and this says so.
set -uo pipefail

python=$1
torch=torch==2.13.0+cpu

try() {
  "$python" -m pip install -q --no-compile --disable-pip-version-check "$@" >/dev/null 2>&1
}

# The CPU build: on an ordinary index it lies under another address than the rest.
try "$torch" || try --retries 0 --timeout 15 "$torch" \
  --index-url https://download.pytorch.org/whl/cpu ||
  echo "mxkern: no CPU build of torch ($torch) could be installed: the torch tests will be skipped"
try "jax>=0.10" || echo "mxkern: jax could not be installed: the JAX tests will be skipped"
try gfloat==0.5.2 ||
  echo "mxkern: gfloat could not be installed: formats of the user's own are not compared with it"
# What it brings besides is for other uses of it.
try --no-deps pychop==0.6.2 ||
  echo "mxkern: pychop could not be installed: rounding is not compared with it"
try flatbuffers || echo "mxkern: flatbuffers could not be installed: no program of JAX is written"
try --no-deps nvidia-cutlass==4.2.0.0 ||
  echo "mxkern: nvidia-cutlass could not be installed: the scale layout is not compared with it, and" \
    "Blackwell's products of codes and scales are not compiled"
# They would bring a torch for GPUs where there is none.
"$python" -m pip show -q torch >/dev/null 2>&1 && try transformers==5.24.0 compressed-tensors==0.20.1 ||
  echo "mxkern: transformers or compressed-tensors could not be installed: no converted model is loaded"
try nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm ||
  echo "mxkern: NVIDIA's disassemblers could not be installed: no test looks at machine code"
