"""tools/walk.py: the files that a call enters, from Python to the kernel, in order.

usage: walk.py [NAME]

Reading these files is the way into the project. Each step of a walk names a file, the function
that is entered there, and a call of it that stands in a file before; the script looks that both are
there, and ends with 1 where the code goes another way by now. Left out are core/, numerics/ and
small inline functions that read a field or a flag.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

Step = tuple[str, str, str]  # file, its function, the call of it

_TENSOR_CHECKS: list[Step] = [
    ("src/check/arguments.cc", "void check_buffer(", "check_buffer("),
    ("src/check/quantize.cc", "void check_quantize_options(", "check_quantize_options("),
]


def _quantize(reader: Step, end: list[Step]) -> list[Step]:
    return [
        ("python/mxkern/ops/quantize.py", "def quantize(", ""),
        ("python/bindings/quantize_calls.cc", "nb::object quantize(Calls&", "_core.quantize("),
        ("python/bindings/calls.cc", "Array Call::look_plain(", "call.look_plain("),
        reader,
        ("python/bindings/quantize_arguments.h", "Quantized quantize_one(", "quantize_one("),
        ("python/bindings/operand_calls.cc", "Quantized Call::made(", "call.made("),
        ("src/ops/quantize.cc", "void run(const char* function", "mxkern::quantize(plain.view"),
        *_TENSOR_CHECKS,
        *end,
    ]


def _gemm(reader: Step, plans: Step, end: list[Step]) -> list[Step]:
    return [
        ("python/mxkern/ops/gemm.py", "def gemm(", ""),
        ("python/bindings/product_calls.cc", "nb::object gemm(Calls&", "_core.gemm("),
        ("python/bindings/operand_calls.cc", "Call::right(", "call.right("),
        ("python/bindings/calls.cc", "Array Call::look(", "look("),
        reader,
        ("python/bindings/product_arguments.h", "Output multiplied(", "multiplied("),
        plans,
        ("src/ops/gemm.cc", "GemmPlan plan_gemm(const GemmOperand& a", "plan_gemm("),
        ("src/check/gemm.cc", "void check_gemm_problem(", "check_gemm_problem("),
        ("src/check/arguments.cc", "void check_same_device(", "check_same_device("),
        ("src/plan/gemm_plan.h", "GemmPlan make(", "GemmPlanParts::make("),
        *end,
    ]


# Inline functions that a walk goes through and does not count.
_INLINE = {
    "python/bindings/product_arguments.h",
    "python/bindings/quantize_arguments.h",
    "python/bindings/kept_plans.h",
    "include/mxkern/owned_block_scaled.h",
    "src/plan/gemm_plan.h",
}
_OWNED: Step = ("include/mxkern/owned_block_scaled.h", "inline void gemm(", "mxkern::gemm(a, b")
_KEPT: Step = ("python/bindings/kept_plans.h", "const GemmPlan& plan(", "kept_plans().plan(")
_NUMPY: Step = ("python/bindings/readers/numpy.h", "bool read(nanobind::handle x", "->read(x")
_TORCH: Step = ("python/bindings/readers/torch.h", "bool read(nanobind::handle x", "->read(x")

WALKS: dict[str, list[Step]] = {
    "quantize of a NumPy array": _quantize(
        _NUMPY,
        [
            ("src/cpu/quantize/quantize.cc", "void quantize(const Buffer& x", "cpu::quantize("),
            ("src/cpu/quantize/tiles.h", "void for_each_tile(", "for_each_tile("),
            ("src/cpu/runtime/parallel.h", "void parallel_for(", "parallel_for("),
        ],
    ),
    "quantize of a PyTorch tensor on CUDA": _quantize(
        _TORCH,
        [
            (
                "src/cuda/quantize/quantize.cu",
                "void quantize(const char* function",
                "cuda::quantize(",
            ),
            (
                "src/cuda/quantize/instances.cuh",
                "void launch_quantize_rows(",
                "launch_quantize_rows<",
            ),
            ("src/cuda/quantize/row_instances.cuh", "void launch_own_rows(", "launch_own_rows<"),
        ],
    ),
    "gemm of NumPy arrays": _gemm(
        _NUMPY,
        _OWNED,
        [
            ("src/plan/gemm_cpu.cc", "plan_gemm_cpu(", "plan_gemm_cpu("),
            ("src/cpu/gemm/task.cc", "cpu::GemmTask make_task(", "make_task("),
            ("src/cpu/gemm/gemm.cc", "void gemm(const GemmTask& task", "cpu::gemm("),
        ],
    ),
    "gemm of PyTorch tensors on CUDA": _gemm(
        _TORCH,
        _KEPT,
        [
            ("src/plan/gemm_cuda.cc", "plan_gemm_cuda(", "plan_gemm_cuda("),
            ("src/cuda/gemm/gemm.cu", "void gemm(", "cuda::gemm("),
            ("src/cuda/gemm/hopper/multiply.cu", "void multiply_sm90(", "multiply_sm90("),
            ("src/cuda/gemm/hopper/instances.cuh", "launch(config)", "launch_sm90"),
        ],
    ),
}


def broken(walk: list[Step]) -> list[str]:
    """Steps that the code does not take."""
    texts: list[str] = []
    wrong = []
    for file, function, call in walk:
        path = ROOT / file
        text = path.read_text() if path.exists() else ""
        if function not in text:
            wrong.append(f"{file} has no {function}")
        if not any(call in other for other in texts or [call]):
            wrong.append(f"{call} stands in no file before {file}")
        texts.append(text)
    return wrong


def counted(walk: list[Step]) -> list[str]:
    return [file for file in dict.fromkeys(file for file, _, _ in walk) if file not in _INLINE]


def main(names: list[str]) -> int:
    faults = []
    for name, walk in WALKS.items():
        if names and name not in names:
            continue
        faults += broken(walk)
        print(f"{name}: {len(counted(walk))} files")
        for i, file in enumerate(counted(walk), 1):
            print(f"  {i:2} {file}")
    for fault in faults:
        print(fault, file=sys.stderr)
    return len(faults) > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
