# bench/cuda/runner.py: measures on this GPU, writes bench/results; python -m bench.cuda.runner.
from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from bench import machine
from bench.cuda import (
    few_token_rivals,
    few_tokens,
    gemm,
    gemm_errors,
    grouped,
    grouped_columns,
    host,
    jax_layers,
    quantize,
    rivals,
    tables,
)
from bench.runner import measure

PARTS: dict[str, Callable[[], Iterable[dict[str, Any]]]] = {
    "cuda_quantize": quantize.run,
    "cuda_quantize_types": quantize.types,
    "cuda_quantize_custom": quantize.custom,
    "cuda_curve": quantize.curve,
    "cuda_rivals": rivals.run,
    "cuda_gemm": gemm.run,
    "cuda_gemm_errors": gemm_errors.run,
    "cuda_few_tokens": few_tokens.run,
    "cuda_token_curve": few_tokens.curve,
    "cuda_few_token_rivals": few_token_rivals.run,
    "cuda_grouped": grouped.run,
    "cuda_grouped_columns": grouped_columns.run,
    "cuda_host": host.run,
    "cuda_jax_layers": jax_layers.run,
}


def main() -> None:
    """Runs the parts chosen on the command line and prints their tables."""
    gpu = torch.cuda.get_device_name()
    described = machine.describe()
    described |= {"gpu": gpu, "cuda": torch.version.cuda, "driver": machine.driver_version()}
    print(tables.all_tables(measure("bench.cuda.runner", PARTS, f"gpu-{gpu}", described)))


if __name__ == "__main__":
    main()
