# mxkern/ops/custom_request.py: the keyword arguments of a quantization by code that knows its
# scheme at run time.
from __future__ import annotations

import math
import numbers
from typing import Any, NamedTuple

from mxkern import _core, faults
from mxkern.arrays import Adapter, adapter_of
from mxkern.values import errors
from mxkern.values.custom_scheme import any_scheme_of, core_of
from mxkern.values.dtypes import ROUNDINGS
from mxkern.values.keywords import DEFAULTS
from mxkern.values.options import (
    LARGEST_SEED,
    SCALE_RULES,
    check_offset_dtype,
    hadamard_of,
    is_array,
    is_square,
    position,
    seed_of,
)
from mxkern.values.scheme import Scheme

_RULES = (*SCALE_RULES, "mse")


class Request(NamedTuple):
    """A quantization: everything but x."""

    scheme: Scheme
    core: _core.CustomScheme
    options: dict[str, Any]  # of _core.AnyOptions
    given: tuple[Any, Any, Any, Any]  # scales, block amaxes, amax, tensor scale
    transform: tuple[int, int, int]  # size and the halves of the sign mask

    def made_options(self, *, transposed: bool) -> _core.AnyOptions:
        return _core.AnyOptions(**self.options, transposed=transposed)


def rounding_options(
    function: str,
    *,
    rounding: Any,
    random_bits: Any,
    subnormals: Any,
    saturate: Any,
    seed: Any,
    offset: Any,
) -> dict[str, Any]:
    """The numbers of how elements are rounded."""
    way = position(function, "rounding", rounding, ROUNDINGS)
    bits = errors.integer(function, "random_bits", random_bits, 1, 16)
    if rounding != "stochastic" and bits != DEFAULTS["random_bits"]:
        raise ValueError(
            f"{function}: random_bits is {bits}, and rounding {rounding!r}; pass "
            "rounding='stochastic', or leave random_bits out"
        )
    if is_array(offset):
        check_offset_dtype(function, offset)
        shape = errors.shape_of(offset)
        if math.prod(shape) != 1:
            raise ValueError(
                f"{function}: offset has shape {tuple(shape)}; expected an int, or an array of "
                "one element"
            )
        offset = int(offset.reshape(())) % 2**64
    offset = errors.integer(function, "offset", offset, 0, LARGEST_SEED)
    return {
        "rounding": way,
        "random_bits": bits,
        "subnormals": errors.flag(function, "subnormals", subnormals),
        "saturates": errors.flag(function, "saturate", saturate),
        "seed": seed_of(function, rounding, seed, offset != 0),
        "offset": offset,
    }


def _scale_options(function: str, scheme: Scheme, rule: Any, threshold: Any) -> dict[str, Any]:
    """The numbers of how scales follow from the largest magnitudes of blocks."""
    position(function, "scale_rule", rule, {name: 0 for name in _RULES})
    is_power = scheme.scale_format.endswith("m0")
    mse = rule == "mse"
    plain = DEFAULTS["scale_rule"] if mse else rule
    if not is_power and plain != DEFAULTS["scale_rule"]:
        raise ValueError(
            f"{function}: scale_rule is {rule!r}, but the {scheme.scale_format} scales of "
            f"{scheme.name} are rounded to nearest; pass 'mse', or leave scale_rule out"
        )
    limit = 0.0
    if threshold is not None:
        if isinstance(threshold, bool) or not isinstance(threshold, numbers.Real):
            raise errors.no_number(function, "threshold", threshold)
        limit = errors.real(function, "threshold", threshold)
        if not 1.0 <= limit < 2.0:
            raise ValueError(
                f"{function}: threshold is {limit}; expected 1 <= threshold < 2, the amax / max "
                "up to which a scale stays"
            )
        if not is_power or plain != DEFAULTS["scale_rule"]:
            raise ValueError(
                f"{function}: threshold is {limit} with scale_rule {rule!r} and "
                f"{scheme.scale_format} scales; expected scales that are powers of two, under the "
                "rule rceil; leave threshold out"
            )
    return {"rule": SCALE_RULES[plain], "threshold": limit, "mse": mse}


def _float32(
    function: str, argument: str, value: Any, scheme: Scheme, adapter: Adapter, like: Any
) -> Any:
    """amax or tensor_scale as a float32 array; a number stands for all rows."""
    if value is None:
        return None
    if not scheme.has_tensor_scale:
        raise ValueError(
            f"{function}: {argument} is for schemes with a tensor scale, but the scheme is "
            f"{scheme.name}; leave it out"
        )
    if scheme.tensor_scale_of == "row":
        if isinstance(value, numbers.Real):
            raise TypeError(
                f"{function}: {argument} is {errors.described(value)}; expected a float32 array "
                "[..., 1] with one for each row"
            )
        return value
    return faults.float32_scalar(function, argument, value, adapter, like)


def request_of(function: str, x: Any, scheme: Any, keywords: dict[str, Any]) -> Request:
    given = DEFAULTS | keywords
    record = any_scheme_of(function, scheme)
    adapter = adapter_of(function, "x", x)
    if given["four_over_six"] is not False:
        raise ValueError(
            f"{function}: four_over_six goes with nvfp4 and the roundings 'nearest' and "
            "'stochastic'; leave it out, or pass scale_rule='mse', which looks at neighbouring "
            "scales"
        )
    options = rounding_options(
        function,
        **{
            name: given[name]
            for name in ("rounding", "random_bits", "subnormals", "saturate", "seed", "offset")
        },
    )
    options |= _scale_options(function, record, given["scale_rule"], given["threshold"])
    options["square"] = is_square(function, record, given["block"])
    transform = hadamard_of(function, "hadamard", given["hadamard"], given["sign_mask"])
    if transform[0] and (options["square"] or record.block_rows != 1):
        raise ValueError(
            f"{function}: hadamard is {transform[0]} with blocks of several rows; expected one of "
            "them, as a transform along one axis leaves no square that both directions share"
        )
    for one, other in (("scales", "block_amax"), ("amax", "tensor_scale")):
        if given[one] is not None and given[other] is not None:
            raise ValueError(
                f"{function}: {one} and {other} are both given, and each implies the other; pass "
                "one of them"
            )
    if given["scales"] is not None and options["mse"]:
        raise ValueError(f"{function}: scales are given, and scale_rule is 'mse'; pass one of them")
    like = adapter.enter(function, "x", x)
    arrays = (
        given["scales"],
        given["block_amax"],
        _float32(function, "amax", given["amax"], record, adapter, like),
        _float32(function, "tensor_scale", given["tensor_scale"], record, adapter, like),
    )
    return Request(record, core_of(record), options, arrays, transform)
