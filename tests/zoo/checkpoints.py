# tests/zoo/checkpoints.py: a model of each type, saved as transformers saves it.
from __future__ import annotations

import functools
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from extras import EXTRAS
from models import class_name
from mxkern.files.safetensors import read_safetensors
from tiny import tiny_config
from weights import fill

_FOLDERS: list[tempfile.TemporaryDirectory[str]] = []


def built(model_type: str) -> Any:
    """A model with the weights that its class begins with."""
    import torch
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    config = tiny_config(CONFIG_MAPPING[model_type], EXTRAS.get(model_type, {}))
    torch.manual_seed(0)
    return getattr(transformers, class_name(model_type))(config)


def model_of(model_type: str, dtype: str) -> Any:
    """A model with weights that differ in size."""
    import torch

    model = built(model_type)
    fill(model)
    return model.to(getattr(torch, dtype))


@functools.lru_cache(maxsize=2)
def source_of(model_type: str, dtype: str) -> tuple[Path, type]:
    """A folder with the model, and its class."""
    model = model_of(model_type, dtype)
    _FOLDERS.append(tempfile.TemporaryDirectory(prefix="zoo-"))
    if len(_FOLDERS) > 3:  # one more than what is remembered
        _FOLDERS.pop(0).cleanup()
    folder = Path(_FOLDERS[-1].name) / model_type
    model.save_pretrained(folder)
    return folder, type(model)


def tensors_of(folder: Path) -> dict[str, np.ndarray]:
    return dict(read_safetensors(folder / "model.safetensors"))


def copy_with(source: Path, target: Path, tensors: dict[str, np.ndarray]) -> None:
    """A checkpoint with other tensors."""
    target.mkdir()
    for path in source.iterdir():
        if path.suffix == ".json":
            shutil.copyfile(path, target / path.name)
    arrays = {name: np.array(array, order="C") for name, array in tensors.items()}
    save_file(arrays, target / "model.safetensors", metadata={"format": "pt"})
