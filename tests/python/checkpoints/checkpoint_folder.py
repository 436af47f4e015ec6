# tests/python/checkpoints/checkpoint_folder.py: folders as Hugging Face has models in them.
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

import mxkern
from mxkern.files.safetensors import read_safetensors
from mxkern.files.safetensors_index import read_safetensors_index

CODES = {"mxfp8_e4m3": "weight"}  # where they are not in weight_packed


def write_checkpoint(
    folder: Path, config: dict[str, Any], tensors: dict[str, np.ndarray], files: int = 1
) -> str:
    """A folder with the tensors in so many files, and others that are no safetensors."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text("{}")
    (folder / "pytorch_model.bin").write_bytes(b"old")
    if files == 1:
        save_file(tensors, folder / "model.safetensors")
        return str(folder)
    names: dict[str, str] = {}
    for i in range(files):
        part = {name: array for j, (name, array) in enumerate(tensors.items()) if j % files == i}
        save_file(part, folder / f"model-{i}.safetensors")
        names |= dict.fromkeys(part, f"model-{i}.safetensors")
    index = {"metadata": {}, "weight_map": names}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return str(folder)


def read_checkpoint(folder: Path, files: int = 1) -> Any:
    """Its tensors by name."""
    if files == 1:
        return read_safetensors(folder / "model.safetensors")
    return read_safetensors_index(folder / "model.safetensors.index.json")


def stored(file: Any, module: str, scheme: str) -> mxkern.BlockScaled:
    """As docs/guide/checkpoints.md reads what compressed-tensors stores."""
    codes = file[f"{module}.{CODES.get(scheme, 'weight_packed')}"]
    options = {}
    if scheme == "nvfp4":
        options["tensor_scale"] = 1 / file[f"{module}.weight_global_scale"].reshape(())
    return mxkern.BlockScaled.from_parts(
        codes.view(np.uint8),
        file[f"{module}.weight_scale"].view(np.uint8),
        scheme=scheme,
        **options,
    )
