# mxkern/checkpoints/outputs.py: the files that a converted model consists of.
from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, BinaryIO

import numpy.typing as npt

from mxkern.checkpoints.dtype import with_dtype
from mxkern.checkpoints.form import Form
from mxkern.checkpoints.journal import JOURNAL
from mxkern.checkpoints.refusals import CONFIG, INDEX
from mxkern.checkpoints.source import SourceModel
from mxkern.checkpoints.target import Output
from mxkern.files.file_tensor import bytes_of
from mxkern.files.progress import Advance
from mxkern.files.regular_file import RegularFile
from mxkern.files.safetensors import SafetensorsFile
from mxkern.files.safetensors_writer import TensorPlan, header_of, write_safetensors


def planned(file: SafetensorsFile, form: Form) -> list[TensorPlan]:
    """The tensors of a new file, of those of the old one."""
    plans = []
    for name, entry in file.entries.items():
        if form.takes(name):
            plans += form.plans(name)
        else:
            plans.append(TensorPlan(name, entry.dtype, entry.shape))
    return plans


def outputs_of(
    model: SourceModel, form: Form, plans: dict[str, list[TensorPlan]], advance: Advance
) -> list[Output]:
    """All files of the target. Its configuration is last: without it nothing loads the model."""
    outputs = []
    for name, file in model.files.items():
        header = header_of(plans[name], {"format": "pt"})
        size = len(header) + sum(plan.bytes for plan in plans[name])
        write = partial(_write_tensors, header, plans[name], file, form, advance)
        outputs.append(Output(name, size, header, write))
    outputs += [_copied(name, file) for name, file in model.others.items() if name != JOURNAL]
    if model.has_index:
        map_of_weights = {plan.name: name for name, own in plans.items() for plan in own}
        size = sum(plan.bytes for own in plans.values() for plan in own)
        index = {"metadata": {"total_size": size}, "weight_map": map_of_weights}
        outputs.append(_text(INDEX, index))
    config = {**with_dtype(model.config), "quantization_config": form.config()}
    return [*outputs, _text(CONFIG, config)]


def _write_tensors(
    header: bytes,
    plans: Sequence[TensorPlan],
    file: SafetensorsFile,
    form: Form,
    advance: Advance,
    out: BinaryIO,
) -> dict[str, int]:
    known = set(form.poisoned)
    write_safetensors(out, header, plans, _parts(file, form, advance))
    return {name: count for name, count in form.poisoned.items() if name not in known}


def _parts(
    file: SafetensorsFile, form: Form, advance: Advance
) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """What comes next of the new tensors, by their names."""
    for name, entry in file.entries.items():
        if form.takes(name):
            yield from form.parts(name)
        else:
            for part in file.on_file(name).bytes().slices():
                yield name, part
        advance(entry.end - entry.begin)


def _copied(name: str, file: RegularFile) -> Output:
    def write(out: BinaryIO) -> dict[str, int]:
        for part in bytes_of(file).slices():
            out.write(part.data)
        return {}

    return Output(name, file.size, b"", write)


def _text(name: str, value: Any) -> Output:
    text = f"{json.dumps(value, indent=2)}\n".encode()
    return Output(name, len(text), text, lambda out: _written(out, text))


def _written(out: BinaryIO, text: bytes) -> dict[str, int]:
    out.write(text)
    return {}
