"""tools/transformers_names.py: writes the table of how transformers names the layers of each model.

usage: python tools/transformers_names.py    (needs transformers and torch in the versions that
tools/install_frameworks.sh installs; writes python/mxkern/checkpoints/transformers_names.json)

`mxkern convert` has to name layers as the loaded model does, and must not need transformers for it.
A test compares the table with the version that is installed.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

TABLE = Path(__file__).parents[1] / "python/mxkern/checkpoints/transformers_names.json"
# Transforms whose new names depend on more than the name: on an order, or on a count.
NO_PATTERNS = ("LayerPairCollapse", "Inkling2IndexOffsetWeightRename")


def main() -> None:
    lines = [f"{json.dumps(key)}: {_value(value)}" for key, value in table().items()]
    TABLE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def _value(value: Any) -> str:
    """JSON with one line for each item of an object or a list."""
    if isinstance(value, dict) and value:
        items = [f"{json.dumps(key)}: {json.dumps(item)}" for key, item in value.items()]
        return "{\n " + ",\n ".join(items) + "\n}"
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[\n " + ",\n ".join(map(json.dumps, value)) + "\n]"
    return json.dumps(value)


def table() -> dict[str, Any]:
    """The table for the installed version.

    types       all model types
    renamings   lists of [kind, pattern, replacement] and the model types that use each; see _entry
    tied        model type: patterns of parameters that share one tensor
    prefixes    model type: names of the model without its head, which files may leave out
    not_linear  model type: names of matrices `weight` in modules that are no linear layers
    split       model types whose stacks of experts become linear layers in a quantized model
    reads       model types whose code reads the weight of a linear layer, which may be packed
    refused     model types of which transformers loads no weights that compressed-tensors stores
    """
    import transformers
    from transformers import conversion_mapping
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES
    from transformers.quantizers.base import MODULES_TO_PATCH_FOR_QUANTIZATION

    classes = _read_classes(Path(transformers.__file__).parent / "models")
    types_of: dict[str, set[str]] = {}
    for model in classes:
        if model.model_type:
            types_of.setdefault(model.name, set()).add(model.model_type)
    lists: dict[str, set[str]] = {}
    for key, transforms in conversion_mapping._build_checkpoint_conversion_mapping().items():
        types = {"*"} if key == "legacy" else types_of.get(key, {key})
        line = json.dumps([entry for transform in transforms for entry in _entry(transform)])
        lists.setdefault(line, set()).update(types)
    return {
        "transformers": transformers.__version__,
        "types": sorted(CONFIG_MAPPING_NAMES),
        "renamings": [
            {"types": sorted(types), "names": json.loads(line)} for line, types in lists.items()
        ],
        "tied": _by_type(classes, lambda model: model.tied),
        "prefixes": _by_type(classes, lambda model: [model.prefix] if model.prefix else []),
        "not_linear": _not_linear(classes),
        "split": sorted(
            {t for name in MODULES_TO_PATCH_FOR_QUANTIZATION for t in _users_of(classes, name)}
        ),
        "reads": sorted(_reading(classes)),
        "refused": sorted({t for line in lists if '"split"' in line for t in lists[line]}),
    }


def _entry(transform: Any) -> list[list[str]]:
    """[kind, pattern, replacement] of each pair. "name" renames; "join" makes one tensor of many
    NAME.weight that are then no layer's, "weight" computes another of NAME.weight, "split" several,
    which no quantizer's own tensors go through, and "compute" computes a tensor from others;
    "unknown" renames in a way that no pattern says."""
    if type(transform).__name__ in NO_PATTERNS:
        return [["unknown", transform.source_patterns[0], ""]]
    operations = [type(o).__name__ for o in getattr(transform, "operations", ())]
    kind = "name"
    if operations:
        originals = transform._original_source_patterns
        plain = all(pattern.endswith(".weight") for pattern in originals)
        joins = any("Merge" in name or "Experts" in name for name in operations)
        splits = len(transform._original_target_patterns) > 1 and not any(
            operation.supports_many_to_many for operation in transform.operations
        )
        # Nor those that are taken one by one, each of which has to be there.
        splits = splits or any(name.startswith("Ernie") for name in operations)
        kind = ("split" if splits else "join" if joins else "weight") if plain else "compute"
    sources, targets = transform.source_patterns, transform.target_patterns
    if operations or len(sources) != len(targets):
        targets = targets[:1] * len(sources)
    pairs = []
    for source, target in zip(sources, targets, strict=True):
        pattern = source.replace("*.", r".*\.")
        if re.search(r"[a-zA-Z0-9]$", pattern):
            pattern += r"(?!\w)"
        pairs.append([kind, pattern, target])
    return pairs


class ModelClass(NamedTuple):
    """A class of a modeling file."""

    name: str
    folder: str
    bases: list[str]
    model_type: str
    tied: list[str]
    prefix: str
    weight: str  # "linear", "other" if it has a matrix `weight` itself, or ""
    members: dict[str, set[str]]  # of self: the classes that are made for each
    read: set[
        str
    ]  # members whose weights it reads, or "" where it initializes linear layers itself


def _read_classes(models: Path) -> list[ModelClass]:
    found = []
    for folder in sorted(path for path in models.iterdir() if path.is_dir()):
        types: dict[str, str] = {}
        for path in folder.glob("configuration_*.py"):
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef):
                    types[node.name] = str(_constant(node, "model_type") or "")
        for path in sorted(folder.glob("modeling_*.py")):
            own: dict[str, ModelClass] = {}
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef):
                    own[node.name] = _read_class(node, folder.name, types, own)
            found += own.values()
    return found


def _read_class(
    node: ast.ClassDef, folder: str, types: dict[str, str], own: dict[str, ModelClass]
) -> ModelClass:
    bases = [ast.unparse(base).split(".")[-1] for base in node.bases]
    parents = [own[base] for base in bases if base in own]
    config = _constant(node, "config") or _constant(node, "config_class")
    model_type = types.get(str(config), "") if config else ""
    tied = _constant(node, "_tied_weights_keys")
    inherited = next((parent.tied for parent in parents if parent.tied), [])
    members: dict[str, set[str]] = {}
    weight = ""
    for inner in ast.walk(node):
        if not isinstance(inner, (ast.Assign, ast.AnnAssign)) or inner.value is None:
            continue
        targets = inner.targets if isinstance(inner, ast.Assign) else [inner.target]
        calls = {
            ast.unparse(call.func).split(".")[-1]
            for call in ast.walk(inner.value)
            if isinstance(call, ast.Call)
        }
        for target in targets:
            if isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self":
                members.setdefault(target.attr, set()).update(calls)
                if target.attr == "weight" and "Parameter" in calls:
                    weight = "other"
    if "Linear" in bases or any(parent.weight == "linear" for parent in parents):
        weight = "linear"
    elif "Embedding" in bases or any(parent.weight == "other" for parent in parents):
        weight = "other"
    return ModelClass(
        node.name,
        folder,
        bases,
        model_type or next((p.model_type for p in parents if p.model_type), ""),
        sorted({*tied, *tied.values()}) if isinstance(tied, dict) else inherited,
        str(_constant(node, "base_model_prefix") or "")
        or next((p.prefix for p in parents if p.prefix), ""),
        weight,
        members,
        _members_read(node),
    )


def _members_read(node: ast.ClassDef) -> set[str]:
    found = set()
    for inner in ast.walk(node):
        if isinstance(inner, ast.Attribute) and inner.attr == "weight":
            owner = ast.unparse(inner.value)
            if re.fullmatch(r"(self|module)\.\w+", owner):
                found.add(owner.split(".")[1])
        elif isinstance(inner, ast.FunctionDef) and inner.name == "_init_weights":
            text = ast.unparse(inner)
            found.update(re.findall(r"\bmodule\.(\w+)", text))
            if "Linear" in text and "module.weight" in text:
                found.add("")
    return found


def _constant(node: ast.ClassDef, name: str) -> Any:
    """What a class assigns to a name: a constant, a dictionary, or the name of a class."""
    for item in node.body:
        if isinstance(item, ast.AnnAssign) and ast.unparse(item.target) == name:
            value = item.value if item.value is not None else item.annotation
        elif isinstance(item, ast.Assign) and ast.unparse(item.targets[0]) == name:
            value = item.value
        else:
            continue
        try:
            return ast.literal_eval(value)
        except ValueError:
            return ast.unparse(value).split(".")[-1].strip("'\"")
    return None


def _by_type(
    classes: list[ModelClass], get: Callable[[ModelClass], list[str]]
) -> dict[str, list[str]]:
    found: dict[str, set[str]] = {}
    for model in classes:
        if model.model_type and get(model):
            found.setdefault(model.model_type, set()).update(get(model))
    return {name: sorted(found[name]) for name in sorted(found)}


def _not_linear(classes: list[ModelClass]) -> dict[str, list[str]]:
    """Names that no linear layer of the same folder has, by model type."""
    kinds: dict[tuple[str, str], str] = {(c.folder, c.name): c.weight for c in classes}
    anywhere = {"Linear": "linear", "Embedding": "other", "Conv1D": "other"}
    names: dict[str, dict[str, set[str]]] = {}
    types: dict[str, set[str]] = {}
    for model in classes:
        types.setdefault(model.folder, set()).update({model.model_type} - {""})
        own = names.setdefault(model.folder, {"linear": set(), "other": set(), "": set()})
        for member, made in model.members.items():
            for name in made:
                own[anywhere.get(name) or kinds.get((model.folder, name), "")].add(member)
    found: dict[str, set[str]] = {}
    for folder, own in names.items():
        others = {name for name in own["other"] - own["linear"] if "norm" not in name.lower()}
        for model_type in types[folder]:
            found.setdefault(model_type, set()).update(others)
    return {name: sorted(found[name]) for name in sorted(found) if found[name]}


def _reading(classes: list[ModelClass]) -> set[str]:
    linear: dict[str, set[str]] = {}
    for model in classes:
        own = linear.setdefault(model.folder, {""})
        own.update(name for name, made in model.members.items() if "Linear" in made)
    folders = {model.folder for model in classes if model.read & linear[model.folder]}
    return {model.model_type for model in classes if model.folder in folders} - {""}


def _users_of(classes: list[ModelClass], name: str) -> set[str]:
    folders = {model.folder for model in classes if model.name == name}
    return {model.model_type for model in classes if model.folder in folders} - {""}


if __name__ == "__main__":
    main()
