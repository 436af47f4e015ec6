# mxkern/values/options.py: the options of quantization, from keyword arguments to the library's.
from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from numbers import Integral
from typing import Any

from mxkern import _core
from mxkern.values import errors
from mxkern.values.names import (
    BlockError,
    DtypeName,
    GemmPrecision,
    PreparedForm,
    Rounding,
    ScaleLayout,
    ScaleRule,
)
from mxkern.values.scheme import Scheme


def _positions(names: Iterable[str]) -> dict[Any, int]:
    """A list of the library's. The types of its names are in names.py, where a test compares."""
    return {name: i for i, name in enumerate(names)}


_NAMES = _core.names()
SCALE_RULES: dict[ScaleRule, int] = _positions(_NAMES["scale_rule"])
ROUNDINGS: dict[Rounding, int] = _positions(_NAMES["rounding"])
BLOCK_ERRORS: dict[BlockError, int] = _positions(_NAMES["block_error"])
SCALE_LAYOUTS: dict[ScaleLayout, int] = _positions(_NAMES["scale_layout"])
PRECISIONS: dict[GemmPrecision, int] = _positions(_NAMES["precision"])
FORMS: dict[PreparedForm, int] = _positions(_NAMES["form"])
PREPARED_FORMS: dict[Any, int] = {name: form for name, form in FORMS.items() if name != "source"}
ASKED_FORMS: dict[Any, int] = {"auto": -1} | PREPARED_FORMS
DTYPES: dict[DtypeName, int] = _positions(_NAMES["dtype"])

_DEFAULT_RULE = "rceil"
LARGEST_SEED = 2**64 - 1
ANY_SIZE = 2**256  # of a transform: those that there are come in the message
_OTHER_DTYPE = re.compile(r"(float|bfloat|u?int|complex)\d+\w*|bool|double|[<=>]?(f8|d)")
# NumPy's other names, which look like names of other dtypes here.
_SHORT_DTYPES = {"f2": "float16", "e": "float16", "half": "float16"}
_SHORT_DTYPES |= {"f4": "float32", "f": "float32", "single": "float32"}
OFFSET_DTYPES = ("int64", "uint64", "int32", "uint32")


def position(function: str, argument: str, name: Any, names: Mapping[Any, int]) -> int:
    """Where a name stands in one of the library's lists."""
    try:
        return names[name]
    except (KeyError, TypeError, ValueError):  # ValueError: some that have no hash
        raise errors.unknown_name(function, argument, name, names) from None


def name_of_dtype(dtype: Any) -> Any:
    """What a framework calls a dtype, as torch.bfloat16; None for what is no dtype."""
    name = getattr(dtype, "name", None) or getattr(dtype, "__name__", None)
    if name is None and type(dtype).__module__ == "torch" and type(dtype).__name__ == "dtype":
        return str(dtype).removeprefix("torch.")
    return name


def dtype_position(function: str, dtype: Any) -> int:
    """Where a dtype stands in the library's list: its name, or what a framework calls it."""
    try:
        return DTYPES[dtype]
    except (KeyError, TypeError, ValueError):
        name = name_of_dtype(dtype)
        wanted = dtype if name is None else name
        if isinstance(wanted, str) and wanted not in DTYPES and _OTHER_DTYPE.fullmatch(wanted):
            raise ValueError(
                f"{function}: dtype is {wanted!r}; expected {errors.listed(DTYPES)}; take float32 "
                "and convert the result"
            ) from None
        if isinstance(wanted, str) and (meant := _SHORT_DTYPES.get(wanted.lstrip("<=>"))):
            raise ValueError(
                f"{function}: dtype is {wanted!r}; expected {errors.listed(DTYPES)}; did you mean "
                f"{meant!r}?"
            ) from None
        return position(function, "dtype", wanted, DTYPES)


def options_of(
    function: str,
    scheme: Scheme,
    *,
    scale_rule: Any = _DEFAULT_RULE,
    rounding: Any = "nearest",
    seed: Any = None,
    offset: Any = 0,
    block: Any = None,
    hadamard: Any = None,
    sign_mask: Any = None,
    four_over_six: Any = False,
) -> _core.QuantizeOptions:
    """The library's options for the keyword arguments of a quantization."""
    rule = position(function, "scale_rule", scale_rule, SCALE_RULES)
    if scheme.has_tensor_scale and scale_rule != _DEFAULT_RULE:
        raise ValueError(
            f"{function}: scale_rule is {scale_rule!r}, but {scheme.name} has one rule of its own; "
            "leave scale_rule out"
        )
    way = position(function, "rounding", rounding, ROUNDINGS)
    array = None
    if is_array(offset):
        check_offset_dtype(function, offset)
        array, offset = offset, 0
    offset = errors.integer(function, "offset", offset, 0, LARGEST_SEED)
    seed = seed_of(function, rounding, seed, offset != 0 or array is not None)
    choice = four_over_six_of(function, four_over_six)
    if choice and not scheme.has_tensor_scale:
        raise ValueError(
            f"{function}: four_over_six is for nvfp4, but the scheme is {scheme.name}; leave it out"
        )
    size, low, high = hadamard_of(function, "hadamard", hadamard, sign_mask)
    square = is_square(function, scheme, block)
    if square and size:
        raise ValueError(
            f"{function}: block is {block!r} and hadamard is {size}; expected one of them, as a "
            "transform along one axis leaves no square that both directions share; leave one out"
        )
    numbers = rule, way, seed, offset, int(square), choice, size, low, high
    options = _core.QuantizeOptions(numbers)
    return options if array is None else _core.OffsetOptions(options, array, None)


def seed_of(function: str, rounding: Any, seed: Any, has_offset: bool) -> int:
    """The seed of stochastic rounding, which needs one; 0 for other roundings, which take none."""
    if rounding == "stochastic":
        if seed is None:
            raise ValueError(
                f"{function}: rounding is 'stochastic' and seed is None; expected an int; pass "
                "seed=..., another one for each tensor, step and rank"
            )
        return errors.integer(function, "seed", seed, 0, LARGEST_SEED)
    if seed is not None or has_offset:
        raise ValueError(
            f"{function}: seed and offset are for rounding='stochastic', but rounding is "
            f"{rounding!r}; pass rounding='stochastic' or leave them out"
        )
    return 0


def four_over_six_of(function: str, value: Any) -> int:
    """0 for False, else 1 and the position of the error by which a scale is the better one."""
    if isinstance(value, bool):
        return int(value)
    if not isinstance(value, str):
        raise TypeError(
            f"{function}: four_over_six is {errors.described(value)}; expected True, False, or "
            f"{errors.listed(map(repr, BLOCK_ERRORS))}"
        )
    return 1 + position(function, "four_over_six", value, BLOCK_ERRORS)


def is_array(value: Any) -> bool:
    """Whether a value has a shape and a dtype, and is no number of NumPy's."""
    if type(value) is int or not (hasattr(value, "shape") and hasattr(value, "dtype")):
        return False
    return not any(kind.__qualname__ == "generic" for kind in type(value).__mro__)


def check_offset_dtype(function: str, array: Any) -> None:
    """TypeError for an offset that is an array of anything but 32- or 64-bit integers."""
    name = str(array.dtype).removeprefix("torch.")
    if name not in OFFSET_DTYPES:
        raise TypeError(
            f"{function}: offset is {errors.described(array)}; expected an int, or an array of one "
            f"element of {errors.listed(OFFSET_DTYPES)}; its dtype is {name}: convert it to int64"
        )


def is_square(function: str, scheme: Scheme, block: Any) -> bool:
    """Whether block asks for block x block elements a scale, of schemes whose blocks are rows."""
    if block is None:
        return False
    rows, side = scheme.block_rows, scheme.block
    takes_squares = rows == 1 and side > 0 and scheme.tensor_scale_of != "row"
    is_name = isinstance(block, str)
    is_pair = isinstance(block, tuple) and all(isinstance(n, Integral) for n in block)
    if (is_name or is_pair) and rows and side:
        if block in (f"{rows}x{side}", (rows, side)):
            return False
        if takes_squares and block in (f"{side}x{side}", (side, side)):
            return True
    expected = f"'{rows}x{side}'" + (f" or '{side}x{side}'" if takes_squares else "")
    way_out = ""
    if scheme.core is not None:
        way_out = "; leave block out, or make another scheme with mxkern.Scheme(element, block=...)"
    failure = ValueError if is_name or is_pair else TypeError
    raise failure(
        f"{function}: block is {errors.described(block)}; expected {expected} for {scheme.name}"
        f"{way_out}"
    )


def check_hadamard_groups(
    function: str, where: str, extent: int, x: str, argument: str, size: int
) -> None:
    """A transform works on whole groups. `where`: what has the extent, `x`: what has to be padded;
    argument: the one that says size."""
    if not size or extent % size == 0:
        return
    fitting = [n for n in _core.hadamard_sizes() if extent % n == 0]
    smaller = f", or pass {argument}={max(fitting)}" if fitting else ""
    raise ValueError(
        f"{function}: {where} {extent}; expected a multiple of {argument}={size}; pad {x} with "
        f"zeros{smaller}"
    )


def hadamard_of(function: str, argument: str, size: Any, sign_mask: Any) -> tuple[int, int, int]:
    """A transform's size (0 for None) and the halves of its sign mask."""
    if size is None:
        if sign_mask is not None:
            raise ValueError(
                f"{function}: sign_mask is given without {argument}; pass {argument}=16, or leave "
                "sign_mask out"
            )
        return (0, 0, 0)
    sizes = _core.hadamard_sizes()
    if type(size) is not int:
        size = errors.integer(function, argument, size, -ANY_SIZE, ANY_SIZE)
    if size not in sizes:
        raise ValueError(
            f"{function}: {argument} is {errors.described(size)}; expected "
            f"{errors.listed(map(str, sizes))}"
        )
    if sign_mask is None:
        return (size, *_core.default_sign_mask())
    mask = errors.integer(function, "sign_mask", sign_mask, 0, 2**size - 1)
    return (size, mask & LARGEST_SEED, mask >> 64)


def usable_form(function: str, wanted: int, scheme: int, device: int) -> int:
    """The form, or `source` where the device's products do not read it. wanted: -1 for the best."""
    try:
        return _core.prepared_form(wanted, scheme, device)
    except ValueError as error:
        raise errors.renamed(error, "usable_prepared_form", function) from None
