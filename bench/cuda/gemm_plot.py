# bench/cuda/gemm_plot.py: the time of a product over the number of tokens, as a picture.
from __future__ import annotations

from pathlib import Path
from typing import Any

from bench import machine

LABELS = {
    ("bfloat16", "few_tokens"): "cuBLAS bfloat16",
    ("mxfp8_e4m3", "few_tokens"): "bfloat16 x MXFP8",
    ("mxfp4", "few_tokens"): "bfloat16 x MXFP4",
    ("mxfp8_e4m3", "expanded"): "bfloat16 x MXFP8, expanded ahead",
    ("mxfp8_e4m3", "folded"): "quantized to MXFP8 and folded, x MXFP8",
    ("mxfp4", "folded"): "quantized to MXFP8 and folded, x MXFP4",
}


def file_name(result: dict[str, Any]) -> str:
    """Of a machine's picture, beside the documentation that shows it."""
    return f"gemm-tokens-{machine.slug(result['machine']['gpu'])}.svg"


def draw(result: dict[str, Any], folder: Path) -> None:
    """One line for each kind of weights and activations."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams |= {"svg.hashsalt": "mxkern", "svg.fonttype": "none"}
    from matplotlib import pyplot

    records = result["cuda_token_curve"]
    figure, axes = pyplot.subplots(figsize=(7.5, 4.2))
    for (scheme, form), label in LABELS.items():
        line = [r for r in records if (r["scheme"], r["form"]) == (scheme, form)]
        line.sort(key=lambda record: record["tokens"])
        if line:
            axes.plot(
                [record["tokens"] for record in line],
                [record["seconds"] * 1e6 for record in line],
                marker="o",
                markersize=3,
                linestyle={"few_tokens": "-", "expanded": ":", "folded": "--"}[form],
                label=label,
            )
    n, k = records[0]["shape"]
    title = f"weights {n} x {k}, {result['machine']['gpu']}"
    axes.set(xscale="log", yscale="log", xlabel="tokens", ylabel="us", title=title)
    axes.set_xscale("log", base=2)
    axes.grid(which="both", alpha=0.25)
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(folder / file_name(result), metadata={"Date": None})
