# mxkern/convert.py: a model's checkpoint with quantized weights, a tensor at a time.
from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy.typing as npt

from mxkern.compressed_tensors import activations_to_store, scheme_to_store
from mxkern.convert_form import Form
from mxkern.convert_gpt_oss import MODEL_TYPE, SCHEME, GptOssExperts
from mxkern.convert_linear import LinearLayers
from mxkern.errors import printable
from mxkern.options import options_of
from mxkern.progress import Advance, progress_bar
from mxkern.safetensors import SafetensorsFile, json_object, read_safetensors, shown
from mxkern.safetensors_index import read_safetensors_index
from mxkern.safetensors_writer import TensorPlan, write_safetensors
from mxkern.scheme import Scheme

ONE_FILE, INDEX, CONFIG = "model.safetensors", "model.safetensors.index.json", "config.json"

# Their layers keep weights as [K, N].
TRANSPOSED_MODELS = ("gpt2", "openai-gpt", "imagegpt", "decision_transformer")
OF_QUANTIZED = (".weight_packed", ".weight_scale", ".weight_scale_inv", "_proj_blocks")
OTHER_WEIGHTS = (".bin", ".pt", ".pth", ".gguf", ".h5", ".msgpack", ".onnx", ".safetensors")


class Conversion(NamedTuple):
    """What convert_checkpoint did."""

    scheme: Scheme
    quantized: list[str]  # modules, or stacks of experts
    left: dict[str, str]  # other modules with matrices, and stacks of these: why
    bytes_before: int  # of all tensors
    bytes_after: int
    not_copied: list[str]  # files
    poisoned: dict[str, int]  # of those quantized, with NaN or infinity: in how many blocks
    heads: list[str]  # of those quantized, heads such as score and classifier
    apart: list[str]  # of those left, layers that some programs merge with quantized ones

    def __str__(self) -> str:
        before, after = (count / 1e6 for count in (self.bytes_before, self.bytes_after))
        count = len(self.quantized)
        lines = [
            f"{count} of {count + len(self.left)} weights quantized to {self.scheme.name}; "
            f"{before:,.1f} MB of tensors are {after:,.1f} MB"
        ]
        if self.poisoned:
            blocks = sum(self.poisoned.values())
            lines.append(
                f"blocks that are NaN now, with NaN or infinity in them: {blocks}, in "
                f"{_some(self.poisoned)}"
            )
        reasons: dict[str, list[str]] = {}
        for module, reason in self.left.items():
            reasons.setdefault(reason, []).append(module)
        for reason, modules in reasons.items():
            lines.append(f"left as they are, {reason}: {_some(modules)}")
        if self.heads:
            lines.append(f"heads that are quantized too: {_some(self.heads)}")
        if self.apart:
            lines.append(
                "warning: programs that merge layers, such as vLLM, load no layer that is left "
                f"beside quantized ones of its group: {_some(self.apart)}"
            )
        if self.not_copied:
            lines.append(f"not copied: {', '.join(map(printable, self.not_copied))}")
        return "\n".join(lines)


def _some(names: Collection[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(printable(name) for name in list(names)[:3]) + more


def convert_checkpoint(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    scheme: str | Scheme,
    *,
    scale_rule: str = "rceil",
    ignore: Sequence[str] = (),
    activations: str | Scheme | None = None,
    experts: bool = False,
) -> Conversion:
    """Writes a checkpoint whose linear layers have quantized weights, as compressed-tensors stores
    them and as transformers loads it; or one of gpt-oss whose experts have, as it was published.

    source       a folder as Hugging Face has it: config.json, and model.safetensors or the files
                 that model.safetensors.index.json names
    target       a folder that is not there, or empty
    scheme       "nvfp4", "mxfp4", "mxfp6_e2m3" or "mxfp8_e4m3"
    scale_rule   of the MX schemes: "rceil", "floor", "ceil", "even"
    ignore       regular expressions: modules with a match in their names stay as they are too
    activations  what programs that load it shall quantize the layers' inputs to as they come:
                 "mxfp8_e4m3" beside weights of mxfp8_e4m3 or mxfp6_e2m3, "mxfp4" beside those of
                 mxfp4; None: nothing
    experts      whether nvfp4 and mxfp8_e4m3 quantize experts.0 and so on, too. transformers does
                 not load these right, other programs may; otherwise mxfp8_e4m3 leaves them as they
                 are, and nvfp4 is refused

    Quantized is every matrix NAME.weight of float32, float16 or bfloat16, but those of embeddings,
    norms, routers, vision towers and lm_head, and those whose rows are no whole blocks. Query, key
    and value, and gate and up, share nvfp4's tensor scale. Where one expert stays all do. Of a
    model of the type gpt_oss, with "mxfp4", it is the stacks of experts [E, K, N], and nothing
    else. A block with NaN or infinity becomes NaN, and is counted. Files are read and written a
    tensor at a time; other files are copied, but for weights in other formats, and folders. Where
    it fails nothing is left in the target.
    Returns a Conversion. Raises ValueError, before anything is written, for a checkpoint that is
    damaged, quantized already, or of layers that keep their weights transposed; and OSError.
    """
    source, target = os.fsdecode(source), os.fsdecode(target)
    kind = scheme_to_store("convert", scheme)
    inputs = activations_to_store("convert", kind, activations)
    options_of("convert", kind, scale_rule=scale_rule)  # for its errors
    config = _config(os.path.join(source, CONFIG))
    files, has_index = _files(source)
    _check_names(files)
    asked = _patterns(ignore)
    form: Form
    if config.get("model_type") == MODEL_TYPE and kind.name == SCHEME:
        if inputs is not None:
            raise ValueError(
                "convert: activations is given; expected None for gpt-oss in mxfp4, whose form "
                "says nothing of them"
            )
        form = GptOssExperts(files, kind, scale_rule, asked, config)
    else:
        form = LinearLayers(files, kind, scale_rule, asked, inputs, experts, config)
    entries = [entry for file in files.values() for entry in file.entries.values()]
    before = sum(entry.end - entry.begin for entry in entries)
    plans = {name: _plans(file, form) for name, file in files.items()}
    after = sum(plan.bytes for own in plans.values() for plan in own)
    with _new_folder(target), progress_bar("quantizing", before) as advance:
        for name, file in files.items():
            path = os.path.join(target, name)
            write_safetensors(path, plans[name], _arrays(file, form, advance), {"format": "pt"})
        if has_index:
            map_of_weights = {plan.name: name for name, own in plans.items() for plan in own}
            index = {"metadata": {"total_size": after}, "weight_map": map_of_weights}
            _write_json(os.path.join(target, INDEX), index)
        config["quantization_config"] = form.config()
        _write_json(os.path.join(target, CONFIG), config)
        not_copied = _copy_others(source, target, files)
    return Conversion(
        kind,
        form.quantized,
        form.left,
        before,
        after,
        not_copied,
        form.poisoned,
        form.heads,
        form.apart,
    )


def _check_names(files: dict[str, SafetensorsFile]) -> None:
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
                    "that is not"
                )


def _patterns(ignore: Sequence[str]) -> list[re.Pattern[str]]:
    if isinstance(ignore, str):
        raise ValueError(f"convert: ignore is {ignore!r}; expected a sequence, [{ignore!r}]")
    try:
        return [re.compile(pattern) for pattern in ignore]
    except re.error as error:
        raise ValueError(f"convert: {error.pattern!r} is no regular expression: {error}") from None


def _plans(file: SafetensorsFile, form: Form) -> list[TensorPlan]:
    """The tensors of a new file, of those of the old one."""
    plans = []
    for name, entry in file.entries.items():
        if form.takes(name):
            plans += form.plans(name)
        else:
            plans.append(TensorPlan(name, entry.dtype, entry.shape))
    return plans


def _arrays(file: SafetensorsFile, form: Form, advance: Advance) -> Iterator[npt.NDArray[Any]]:
    for name, entry in file.entries.items():
        if form.takes(name):
            yield from form.arrays(name)
        else:
            yield file[name]
        advance(entry.end - entry.begin)


def _config(path: str) -> dict[str, Any]:
    with open(path, "rb") as file:
        data = file.read()

    def fail(found: str, wanted: str) -> NoReturn:
        raise ValueError(f"{path}: {found}; expected {wanted}")

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


def _files(source: str) -> tuple[dict[str, SafetensorsFile], bool]:
    """The model's files by name, and whether there is an index."""
    index = os.path.join(source, INDEX)
    if not os.path.exists(index):
        return {ONE_FILE: read_safetensors(os.path.join(source, ONE_FILE))}, False
    return read_safetensors_index(index).files, True


@contextlib.contextmanager
def _new_folder(target: str) -> Iterator[None]:
    """Makes a folder. It is empty again, or gone, if what comes then fails."""
    is_new = not os.path.exists(target)
    os.makedirs(target, exist_ok=True)
    if os.listdir(target):
        raise ValueError(f"{target}: it is not empty; expected a folder to make, or an empty one")
    try:
        yield
    except BaseException:
        for name in os.listdir(target):
            os.remove(os.path.join(target, name))
        if is_new:
            os.rmdir(target)
        raise


def _copy_others(source: str, target: str, files: dict[str, SafetensorsFile]) -> list[str]:
    """Copies what is no model's weight; the names of what it left out."""
    left = []
    for name in sorted(os.listdir(source)):
        path = os.path.join(source, name)
        if name in files or name in (CONFIG, INDEX):
            continue
        if name.endswith(OTHER_WEIGHTS) or not os.path.isfile(path):
            left.append(name)
        else:
            shutil.copyfile(path, os.path.join(target, name))
    return left


def _write_json(path: str, value: Any) -> None:
    with open(path, "w", encoding="utf-8") as file:
        json.dump(value, file, indent=2)
        file.write("\n")
