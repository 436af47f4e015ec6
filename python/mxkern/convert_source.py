# mxkern/convert_source.py: the files of a model to convert, and what may be wrong.
from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Any, NoReturn

from mxkern.json_object import json_list, json_object, shown
from mxkern.regular_file import RegularFile, named_errors, read_regular
from mxkern.safetensors import SafetensorsFile, open_safetensors
from mxkern.safetensors_header import element_bits
from mxkern.safetensors_index import open_index
from mxkern.source_folder import SourceFolder

ONE_FILE, INDEX, CONFIG = "model.safetensors", "model.safetensors.index.json", "config.json"
MODULES, SPEAKERS = "modules.json", "speaker_embeddings_path.json"
# That programs look for without a file that names them: transformers' templates, and RAG's.
KNOWN_FOLDERS = ("additional_chat_templates", "question_encoder_tokenizer", "generator_tokenizer")
MOST_CONFIG_BYTES = 1 << 24

# Their layers keep weights as [K, N].
TRANSPOSED_MODELS = ("gpt2", "openai-gpt", "imagegpt", "decision_transformer")
OF_QUANTIZED = (".weight_packed", ".weight_scale", ".weight_scale_inv", "_proj_blocks")
OTHER_WEIGHTS = (".bin", ".pt", ".pth", ".gguf", ".h5", ".msgpack", ".onnx", ".safetensors")
HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")


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
        _refuse_no_folder(path)
    folder = SourceFolder(path)
    folders, names = folder.names()
    if ONE_FILE not in names and INDEX not in names:
        _refuse_other_weights(path, names)
    config_file = folder.file(CONFIG)
    config = _config(config_file)
    read = {CONFIG: config_file}
    if INDEX in names:
        read[INDEX] = folder.file(INDEX)
        files = open_index(read[INDEX], lambda name: open_safetensors(folder.file(name))).files
    else:
        files = {ONE_FILE: open_safetensors(folder.file(ONE_FILE))}
    _check_tensors(path, files)
    copied = [name for name in names if name not in (CONFIG, INDEX, *files)]
    left = [name for name in copied if name.endswith(OTHER_WEIGHTS)]
    others = {name: folder.file(name) for name in copied if name not in left}
    for inner in _folders_to_copy(folder, folders, others):
        others |= {name: folder.file(name) for name in folder.files_below(inner)}
    taken = {name.split("/")[0] for name in others if "/" in name}
    left += [name for name in folders if name not in taken]
    read |= others | {name: file.file for name, file in files.items()}
    return SourceModel(config, files, INDEX in names, others, sorted(left), read)


def _refuse_no_folder(path: str) -> NoReturn:
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
    raise FileNotFoundError(2, "there is no such folder", path)


def _refuse_other_weights(path: str, names: list[str]) -> None:
    """ValueError for a folder with weights in another form."""
    found = [name for name in names if name.endswith(OTHER_WEIGHTS)]
    if not found:
        if CONFIG in names:
            raise FileNotFoundError(2, f"there is neither {ONE_FILE} nor {INDEX} in it", path)
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
        way_out = f"write them with Python: {_saving(f'{path!r}')}"
    raise ValueError(
        f"{path}: there is {shown(found[0])}, but neither {ONE_FILE} nor {INDEX}; expected weights "
        f"in one of these; {way_out}"
    )


def _way_from_gguf(folder: str, name: str) -> str:
    return f"write it with Python: {_saving(f'{folder!r}, gguf_file={name!r}')}"


def _saving(arguments: str) -> str:
    return (
        "from transformers import AutoModelForCausalLM; "
        f"AutoModelForCausalLM.from_pretrained({arguments}).save_pretrained('NEW')"
    )


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


def _check_tensors(path: str, files: dict[str, SafetensorsFile]) -> None:
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
                    "it was made of, or, where there are no scales, write it with Python: "
                    + _saving(f"{path!r}, dtype='bfloat16'")
                )


def _folders_to_copy(
    folder: SourceFolder, folders: list[str], others: dict[str, RegularFile]
) -> list[str]:
    """The folders that the model's files name: those of sentence-transformers' modules and of
    Bark's voices; and those that programs look for."""
    named = [name for name in KNOWN_FOLDERS if name in folders]
    for name in (MODULES, SPEAKERS):
        if name in others:
            named += _named_folders(folder, others[name])
    return list(dict.fromkeys(named))


def _named_folders(folder: SourceFolder, file: RegularFile) -> list[str]:
    def fail(found: str, wanted: str) -> NoReturn:
        raise ValueError(f"{file.path}: {found}; expected {wanted}")

    with named_errors(file.path):
        data = read_regular(file, MOST_CONFIG_BYTES)
        if os.path.basename(file.path) == MODULES:
            modules = json_list(data, "it", "modules", fail)
            paths = [module.get("path") for module in modules if isinstance(module, dict)]
        else:
            voices = json_object(data, "it", "voices", fail)
            files = [voice for voice in voices.values() if isinstance(voice, dict)]
            paths = [os.path.dirname(str(path)) for voice in files for path in voice.values()]
    named = []
    for path in paths:
        if not isinstance(path, str) or path == "":
            continue  # the model's own folder
        parts = path.rstrip("/").split("/")
        if "\0" in path or not all(part not in ("", ".", "..") for part in parts):
            fail(f"it names the folder {shown(path)}", "one in the model's folder")
        if folder.has("/".join(parts)):  # those without a file are in no repository
            named.append("/".join(parts))
    return named
