# mxkern/checkpoints/refusals.py: sources that are no model to convert, and what to do about them.
from __future__ import annotations

import errno
import os
import re
from typing import NoReturn

from mxkern.files.json_object import shown
from mxkern.files.safetensors import SafetensorsFile
from mxkern.files.safetensors_header import element_bits

ONE_FILE, INDEX, CONFIG = "model.safetensors", "model.safetensors.index.json", "config.json"
OF_QUANTIZED = (".weight_packed", ".weight_scale", ".weight_scale_inv", "_proj_blocks")
OTHER_WEIGHTS = (".bin", ".pt", ".pth", ".gguf", ".h5", ".msgpack", ".onnx", ".safetensors")
HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")


def refuse_no_folder(path: str) -> NoReturn:
    name = os.path.basename(path)
    if os.path.lexists(path):
        way_out = "pass the folder that it is in"
        if path.endswith(".gguf"):
            way_out = _way_from_gguf(os.path.dirname(path) or ".", name)
        raise ValueError(f"{path}: it is no folder; expected one with {CONFIG}; {way_out}")
    if HUB_NAME.fullmatch(path):
        raise ValueError(
            f"{path}: there is no such folder; expected one with {CONFIG}; for a model of the Hub "
            f"run: hf download {path} --local-dir {name}"
        )
    raise FileNotFoundError(errno.ENOENT, "there is no such folder", path)


def refuse_other_weights(path: str, names: list[str]) -> None:
    """ValueError for a folder with weights in another form."""
    found = [name for name in names if name.endswith(OTHER_WEIGHTS)]
    if not found:
        if CONFIG in names:
            raise FileNotFoundError(
                errno.ENOENT, f"there is neither {ONE_FILE} nor {INDEX} in it", path
            )
        return
    gguf = [name for name in found if name.endswith(".gguf")]
    adapters = [name for name in found if name.startswith("adapter_model.")]
    if adapters:
        way_out = (
            "merge the adapter into its model first, with merge_and_unload of the package peft"
        )
    elif gguf:
        way_out = _way_from_gguf(path, gguf[0])
    else:
        way_out = _saving(f"{path!r}")
    raise ValueError(
        f"{path}: there is {shown(found[0])}, but neither {ONE_FILE} nor {INDEX}; expected weights "
        f"in one of these; {way_out}"
    )


def _way_from_gguf(folder: str, name: str) -> str:
    return _saving(f"{folder!r}, gguf_file={name!r}")


def _saving(arguments: str) -> str:
    return (
        "write them with Python, by the class that fits the model: "
        "from transformers import AutoModelForCausalLM; "
        f"AutoModelForCausalLM.from_pretrained({arguments}).save_pretrained('NEW')"
    )


def check_tensors(path: str, files: dict[str, SafetensorsFile]) -> None:
    """ValueError for tensors that only quantized models have, and for one in two files, of which
    programs take one or the other."""
    places: dict[str, str] = {}
    for file_name, file in files.items():
        for name in file.entries:
            if name in places:
                raise ValueError(
                    f"convert: tensor {shown(name)} is in {shown(places[name])} and in "
                    f"{shown(file_name)}; expected it in one file; remove the other one"
                )
            places[name] = file_name
            if name.endswith(OF_QUANTIZED):
                raise ValueError(
                    f"convert: tensor {shown(name)} is there: the model is quantized; expected one "
                    "that is not; convert the one that it was made of"
                )
    for file in files.values():
        for name, entry in file.entries.items():
            if entry.dtype.startswith("F") and element_bits(entry.dtype) <= 8:
                raise ValueError(
                    f"convert: tensor {shown(name)} is {entry.dtype}, and {CONFIG} says nothing of "
                    "a quantization; expected float32, float16 or bfloat16; convert the model that "
                    "it was made of, or, where there are no scales, "
                    + _saving(f"{path!r}, dtype='bfloat16'")
                )
