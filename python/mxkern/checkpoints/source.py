# mxkern/checkpoints/source.py: the files of a model to convert, and what may be wrong.
from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, NoReturn

from mxkern.checkpoints.folders import folders_to_copy
from mxkern.checkpoints.refusals import (
    CONFIG,
    INDEX,
    ONE_FILE,
    OTHER_WEIGHTS,
    check_tensors,
    refuse_no_folder,
    refuse_other_weights,
)
from mxkern.checkpoints.source_folder import SourceFolder
from mxkern.files.json_object import json_object
from mxkern.files.regular_file import RegularFile, named_errors, read_regular
from mxkern.files.safetensors import SafetensorsFile, open_safetensors
from mxkern.files.safetensors_index import open_index

MOST_CONFIG_BYTES = 1 << 24
# Their layers keep weights as [K, N].
TRANSPOSED_MODELS = ("gpt2", "openai-gpt", "imagegpt", "decision_transformer")


@dataclass(frozen=True)
class SourceModel:
    """What a folder has of a model, all of it opened once and checked."""

    config: dict[str, Any]
    files: dict[str, SafetensorsFile]  # with the weights, by name
    has_index: bool
    others: dict[str, RegularFile]  # to copy
    not_copied: list[str]
    read: dict[str, RegularFile]  # all that the result depends on


def read_source(path: str) -> SourceModel:
    """Raises ValueError, which says what to do, for what is no folder of a model in safetensors, is
    quantized or not to be trusted; and OSError."""
    if not os.path.isdir(path):
        refuse_no_folder(path)
    folder = SourceFolder(path)
    folders, names = folder.names()
    if ONE_FILE not in names and INDEX not in names:
        refuse_other_weights(path, names)
    config_file = folder.file(CONFIG)
    config = _config(config_file)
    read = {CONFIG: config_file}
    if INDEX in names:
        read[INDEX] = folder.file(INDEX)
        files = open_index(read[INDEX], lambda name: open_safetensors(folder.file(name))).files
    else:
        files = {ONE_FILE: open_safetensors(folder.file(ONE_FILE))}
    check_tensors(path, files)
    copied = [name for name in names if name not in (CONFIG, INDEX, *files)]
    left = [name for name in copied if name.endswith(OTHER_WEIGHTS)]
    others = {name: folder.file(name) for name in copied if name not in left}
    for inner in folders_to_copy(folder, folders, others):
        others |= {name: folder.file(name) for name in folder.files_below(inner)}
    taken = {name.split("/")[0] for name in others if "/" in name}
    left += [name for name in folders if name not in taken]
    read |= others | {name: file.file for name, file in files.items()}
    return SourceModel(config, files, INDEX in names, others, sorted(left), read)


def _config(file: RegularFile) -> dict[str, Any]:
    def fail(found: str, wanted: str) -> NoReturn:
        raise ValueError(f"{file.path}: {found}; expected {wanted}")

    with named_errors(file.path):
        data = read_regular(file, MOST_CONFIG_BYTES)
        config = json_object(data, "it", "a model's configuration", fail, has_constants=True)
    inner = config.get("text_config")
    quantized = [part for part in (config, inner) if isinstance(part, dict)]
    if any(part.get("quantization_config") is not None for part in quantized):
        fail("quantization_config is there: the model is quantized", "one that is not")
    if config.get("model_type") in TRANSPOSED_MODELS:
        fail(
            f"model_type is {config['model_type']!r}, whose layers keep their weights as [K, N]",
            "a model of linear layers, [N, K]",
        )
    return config
