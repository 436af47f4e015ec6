# mxkern/checkpoints/transformers_names.py: what transformers calls the layers of a checkpoint that
# it loaded.
from __future__ import annotations

import functools
import json
import re
from collections.abc import Collection, Iterator, Mapping
from importlib import resources
from typing import Any, NamedTuple

from mxkern.files.json_object import shown

ANY_TYPE = "*"
MOST_NAMES = 1000  # of a parameter; a real model has some, a configuration of many types no end


class Parameter(NamedTuple):
    """What becomes of a tensor when it is loaded."""

    names: tuple[str, ...]  # its own first, then what it may be renamed to
    computed: str  # "" where only its name changes, else "join", "weight", "split" and so on


class TransformersNames:
    """The names of one model's parameters, from a table that tools/transformers_names.py made of
    transformers' own renamings. Which of a parameter's names a model uses depends on its class, so
    these are all that its model type, and those of its parts, allow. Raises ValueError for a
    configuration of so many model types that the names of a parameter have no end."""

    def __init__(self, config: Mapping[str, Any], tensors: Collection[str]) -> None:
        table = _table()
        types = set(_model_types(config))
        model_type = config.get("model_type")
        model_type = model_type if isinstance(model_type, str) else ""
        self.is_known = model_type in table["types"]
        self._lists = [
            [(kind, re.compile(pattern), to) for kind, pattern, to in entry["names"]]
            for entry in table["renamings"]
            if types & {*entry["types"]} or ANY_TYPE in entry["types"]
        ]
        # A file of a whole model names its body with a prefix; one of the body alone does not.
        prefixes = tuple(f"{p}." for p in table["prefixes"].get(model_type, ()))
        self._has_prefix = any(name.startswith(prefixes) for name in tensors)
        self._prefixes = prefixes
        self._types = types
        self._parameters: dict[str, Parameter] = {}
        self._tied = [re.compile(p) for p in sorted(_of_types(table["tied"], types))]
        self._not_linear = _of_types(table["not_linear"], types)
        self.splits_experts = bool(types & {*table["split"]})
        self.reads_weights = bool(types & {*table["reads"]})
        self.refused = sorted(types & {*table["refused"]})
        self.version: str = table["transformers"]

    def parameter(self, name: str) -> Parameter:
        if name not in self._parameters:
            names, computed = {name: None}, ""
            for transforms in self._lists:
                for known in tuple(names):
                    for start in _starts(known, transforms):
                        new, kind = _rename(known[start:], transforms)
                        computed = computed or kind
                        names[known[:start] + new] = None
                    if len(names) > MOST_NAMES:
                        raise ValueError(
                            f"convert: tensor {shown(name)} may have more than {MOST_NAMES} names, "
                            f"by the {len(self._types)} model types of the configuration; expected "
                            "the configuration of one model and of its parts"
                        )
            self._parameters[name] = Parameter(tuple(names), computed)
        return self._parameters[name]

    def modules(self, module: str) -> list[str]:
        """The names that a layer may have, its own first."""
        names = self.parameter(f"{module}.weight").names
        return [name.removesuffix(".weight") for name in names if name.endswith(".weight")]

    def renames_scales(self, module: str) -> bool:
        """Whether a layer's scales get the names that its weights get."""
        names = self.parameter(f"{module}.weight_scale").names
        return self.modules(module) == [name.removesuffix(".weight_scale") for name in names]

    def loaded_modules(self, module: str) -> list[str]:
        """These also as part of a larger model, or without the model that they are part of."""
        names = self.modules(module)
        for known in tuple(names):
            if self._has_prefix:
                names += [known.removeprefix(p) for p in self._prefixes if known.startswith(p)]
            else:
                names += [prefix + known for prefix in self._prefixes]
        return list(dict.fromkeys(names))

    def is_tied(self, module: str) -> bool:
        """Whether the layer may share its weights with another."""
        return any(
            pattern.search(f"{name}.weight")
            for pattern in self._tied
            for name in self.loaded_modules(module)
        )

    def is_linear(self, module: str) -> bool:
        """Whether a matrix that is a layer's weight may be a linear layer's."""
        return not any(leaf_of(name) in self._not_linear for name in self.modules(module))

    def tied_heads(self) -> list[str]:
        """Layers that share another's weights, and may be in no file."""
        names = (p.pattern for p in self._tied if p.pattern.endswith(".weight"))
        return sorted(n.removesuffix(".weight") for n in names if re.fullmatch(r"[\w.]+", n))


def leaf_of(module: str) -> str:
    """The last part of a layer's name that is no number."""
    parts = [part for part in module.split(".") if not part.isdecimal()]
    return parts[-1] if parts else ""


def _rename(name: str, transforms: list[tuple[str, re.Pattern[str], str]]) -> tuple[str, str]:
    """Returns the name after all renamings and at most one computation, and that one's kind."""
    for wanted in (True, False):
        for kind, pattern, to in transforms:
            match = pattern.search(name) if (kind == "name") is wanted else None
            if match is None:
                continue
            if "\\" in to:
                to = match.expand(to)
            name = name.replace(match[0], to, 1)
            if not wanted:
                return name, kind
    return name, ""


def _starts(name: str, transforms: list[tuple[str, re.Pattern[str], str]]) -> Iterator[int]:
    """Where a name may begin for a part of the model, if that makes a difference."""
    yield 0
    if any(pattern.pattern.startswith("^") for _, pattern, _ in transforms):
        yield from (match.end() for match in re.finditer(r"\.", name))


def _model_types(config: Mapping[str, Any]) -> Iterator[str]:
    """Yields the model types of a configuration and of the parts in it."""
    pending: list[Any] = [config]
    while pending:
        part = pending.pop()
        if isinstance(part, Mapping):
            if isinstance(part.get("model_type"), str):
                yield part["model_type"]
            pending += part.values()
        elif isinstance(part, list):
            pending += part


def _of_types(lists: Mapping[str, list[str]], types: set[str]) -> set[str]:
    return {item for name in types for item in lists.get(name, ())}


@functools.cache
def _table() -> dict[str, Any]:
    text = resources.files(__package__).joinpath("transformers_names.json").read_text("utf-8")
    table: dict[str, Any] = json.loads(text)
    return table
