# tests/zoo/loading.py: models as transformers loads them, and what it says of that.
from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stacks import as_layers


@contextmanager
def logged() -> Iterator[list[str]]:
    """The warnings of transformers."""
    import transformers

    said: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    transformers.utils.logging.set_verbosity_warning()
    logger = logging.getLogger("transformers")
    before, logger.handlers = logger.handlers, [handler]
    try:
        yield said
    finally:
        logger.handlers = before


def load(kind: Any, folder: Path, dtype: Any, **options: Any) -> tuple[Any, list[str]]:
    """A model, and what is not right about its keys."""
    with logged() as said:
        try:
            model, info = kind.from_pretrained(
                folder, dtype=dtype, output_loading_info=True, **options
            )
        except RuntimeError as error:  # its message says: look at the report above
            raise RuntimeError("\n".join([str(error), *said])) from error
    faults = [f"{what}: {sorted(map(str, keys))}" for what, keys in info.items() if keys]
    faults += [text for text in said if "LOAD REPORT" in text or "initialized" in text]
    if hasattr(model, "hf_quantizer") and hasattr(model.hf_quantizer, "compressor"):
        model.hf_quantizer.compressor.decompress_model(model)
    return model.eval(), faults


def options_of(folder: Path) -> dict[str, Any]:
    """What the documentation says to load it with."""
    import transformers

    config = json.loads((folder / "config.json").read_text())["quantization_config"]
    if config["quant_method"] == "mxfp4":  # the package accelerate is not there
        return {"quantization_config": transformers.Mxfp4Config(dequantize=True)}
    return {}


def differing(model: Any, expected: Any) -> list[str]:
    """Parameters and buffers whose bits differ, and those that only one of the two has."""
    got, want = (
        dict(m.named_parameters(remove_duplicate=False))
        | dict(m.named_buffers(remove_duplicate=False))
        for m in (model, expected)
    )
    want = as_layers(want, got.keys())
    found = [f"{name} is not there" for name in want.keys() - got.keys()]
    scales = (".weight_scale", ".weight_global_scale")
    found += [f"{name} is new" for name in got.keys() - want.keys() if not name.endswith(scales)]
    for name in want.keys() & got.keys():
        a, b = got[name].detach(), want[name].detach()
        if a.dtype != b.dtype:  # some are kept in float32, or read as another type
            a, b = a.double(), b.double()
        if a.dtype != b.dtype or a.shape != b.shape:
            found.append(f"{name}: {a.dtype} {list(a.shape)}; expected {b.dtype} {list(b.shape)}")
        elif not _same_bits(a, b):
            wrong = (a != b).nonzero()
            at = wrong[0].tolist() if len(wrong) else None
            found.append(
                f"{name}: {len(wrong)} of {a.numel()} differ, at {at}: "
                + (f"{a[tuple(at)].item()}; expected {b[tuple(at)].item()}" if at else "signs, NaN")
            )
    return sorted(found)


def give_dtypes(model: Any, expected: Any) -> bool:
    """Converts parameters to the dtypes of another model, whose values they have: what transformers
    keeps in float32 it reads as bfloat16 where a model is quantized. Whether none had another."""
    got, want = (dict(m.named_parameters()) for m in (model, expected))
    others = [name for name in got.keys() & want.keys() if got[name].dtype != want[name].dtype]
    for name in others:
        got[name].data = got[name].data.to(want[name].dtype)
    return not others


def _same_bits(a: Any, b: Any) -> bool:
    import torch

    def as_bytes(t: Any) -> Any:
        return t.contiguous().reshape(-1).view(torch.uint8)

    return bool(torch.equal(as_bytes(a), as_bytes(b)))
