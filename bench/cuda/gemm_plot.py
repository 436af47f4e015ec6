# bench/cuda/gemm_plot.py: the time of a product over the number of tokens, as a picture.
from __future__ import annotations

from pathlib import Path
from typing import Any

LABELS = {
    ("bfloat16", "few_tokens"): "cuBLAS bfloat16",
    ("mxfp8_e4m3", "few_tokens"): "bfloat16 x MXFP8",
    ("mxfp4", "few_tokens"): "bfloat16 x MXFP4",
    ("mxfp8_e4m3", "expanded"): "bfloat16 x MXFP8, expanded ahead",
    ("mxfp8_e4m3", "folded"): "quantized to MXFP8 and folded, x MXFP8",
    ("mxfp4", "folded"): "quantized to MXFP8 and folded, x MXFP4",
}


def draw(records: list[dict[str, Any]], path: Path) -> None:
    """One line for each kind of weights and activations."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams |= {"svg.hashsalt": "mxkern", "svg.fonttype": "none"}
    from matplotlib import pyplot

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
    axes.set(xscale="log", yscale="log", xlabel="tokens", ylabel="us", title=f"weights {n} x {k}")
    axes.set_xscale("log", base=2)
    axes.grid(which="both", alpha=0.25)
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
