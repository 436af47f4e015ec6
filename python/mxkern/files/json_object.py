# mxkern/files/json_object.py: JSON that somebody else wrote.
from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NoReturn

Fail = Callable[[str, str], NoReturn]


def json_object(
    data: bytes | bytearray, name: str, content: str, fail: Fail, *, has_constants: bool = False
) -> dict[str, Any]:
    """The object of `content` that UTF-8 JSON spells; fail(found, wanted) where it spells none.
    has_constants: NaN and Infinity count as numbers, which Python writes and JSON has not."""
    value = _json_value(data, name, f"object of {content}", fail, has_constants)
    if not isinstance(value, dict):
        fail(f"{name} is a JSON {type(value).__name__}", f"a JSON object of {content}")
    return value


def json_list(data: bytes | bytearray, name: str, content: str, fail: Fail) -> list[Any]:
    """The same of a list."""
    value = _json_value(data, name, f"list of {content}", fail, False)
    if not isinstance(value, list):
        fail(f"{name} is a JSON {type(value).__name__}", f"a JSON list of {content}")
    return value


def _json_value(
    data: bytes | bytearray, name: str, wanted: str, fail: Fail, has_constants: bool
) -> Any:
    constant = None if has_constants else _no_constant
    try:
        text = data.decode("utf-8")
        return json.loads(text, object_pairs_hook=_unique_keys, parse_constant=constant)
    except RecursionError:
        fail(f"{name} is JSON nested too deeply", f"one {wanted}")
    except ValueError as error:  # of the decoder, the parser, or the two hooks
        fail(f"{name} is no valid JSON ({error})", f"one UTF-8 JSON {wanted}")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(pairs)
    if len(unique) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"duplicate key {shown(key)}")
            seen.add(key)
    for key in unique:
        key.encode("utf-8")  # JSON escapes can spell lone surrogates, which are no text
    return unique


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def shown(value: object) -> str:
    """What a header holds, for an error."""
    try:
        text = repr(value)
    except RecursionError:  # nesting that the parser could just follow
        text = f"a deeply nested {type(value).__name__}"
    return text if len(text) <= 80 else text[:77] + "..."
