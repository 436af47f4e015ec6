# mxkern/analysis/comparison.py: what every scheme and scale rule does to the values of a tensor.
from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Protocol

import ml_dtypes
import numpy as np
import numpy.typing as npt

from mxkern import _core
from mxkern.analysis.custom_comparison import add_own, fits_chunks, matrices_of
from mxkern.analysis.error_sums import ErrorSums, Values
from mxkern.arrays import adapter_of, way_to_array
from mxkern.arrays.adapter import PLAIN_DTYPES
from mxkern.ops.dequantize import dequantize
from mxkern.ops.quantize import quantize, tensor_amax
from mxkern.values import errors
from mxkern.values.block_scaled import BlockScaled
from mxkern.values.custom_scheme import any_scheme_of
from mxkern.values.names import ScaleRule, SchemeName
from mxkern.values.options import SCALE_RULES
from mxkern.values.scheme import Scheme
from mxkern.values.scheme import schemes as all_schemes
from mxkern.values.table import format_table

# Elements of a chunk: its float32 copies stay in a core's cache, and a call costs nothing beside.
CHUNK = 1 << 18

Tensor = npt.NDArray[Any]


class Stored(Protocol):
    """A tensor that is read in parts."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    def parts(self, elements: int, within: int | None = None) -> Iterator[Tensor]: ...


class Case(NamedTuple):
    """A way to quantize. NVFP4 has one scale rule of its own: scale_rule is None."""

    scheme: Scheme
    scale_rule: ScaleRule | None


@dataclass(frozen=True)
class CompareRecord:
    """The error of one scheme and scale rule; `compare` defines each figure."""

    scheme: str
    scale_rule: ScaleRule | None
    bits_per_element: float
    sqnr_db: float
    relative_rmse: float
    max_error: float
    saturated: float
    flushed: float
    poisoned: float
    elements: int


class Comparison(tuple[CompareRecord, ...]):
    """The records of a comparison, in the order of schemes and rules; prints as a table."""

    __slots__ = ()

    @property
    def records(self) -> list[dict[str, Any]]:
        """The same as to_dicts(): pandas.DataFrame(result.records) is a data frame."""
        return self.to_dicts()

    def to_dicts(self) -> list[dict[str, Any]]:
        """The records as plain dicts: for a data frame, or for JSON that takes Infinity and NaN."""
        return [asdict(record) for record in self]

    def __repr__(self) -> str:
        headers = ["scheme", "scale rule", "bits/element", "SQNR dB", "rel. RMSE", "max error"]
        headers += ["saturated", "flushed"]
        poisoned = any(record.poisoned for record in self)
        if poisoned:
            headers.append("poisoned")
        rows = [
            [
                record.scheme,
                record.scale_rule or "-",
                f"{record.bits_per_element:.2f}",
                f"{record.sqnr_db:.2f}",
                f"{record.relative_rmse:.3e}",
                f"{record.max_error:.3e}",
                f"{record.saturated:.3%}",
                f"{record.flushed:.3%}",
            ]
            + ([f"{record.poisoned:.3%}"] if poisoned else [])
            for record in self
        ]
        return format_table(headers, rows, left=("scheme", "scale rule"))


def compare(
    x: Any,
    schemes: SchemeName | Scheme | Iterable[SchemeName | Scheme] | None = None,
    rules: ScaleRule | Iterable[ScaleRule] | None = None,
    *,
    axis: int = -1,
) -> Comparison:
    """Quantizes x in every scheme and scale rule and measures what that does to its values.

    x: a NumPy, torch or JAX array on the CPU, float32, float16, bfloat16 or float64, [..., K];
    blocks run along K, or the axis that is named. schemes, rules: a name or several; None means all
    of mxkern.schemes and all rules. Scales that are no powers of two have one rule of their own.
    Works chunk by chunk: memory stays bounded whatever the size of x, but for schemes whose blocks
    have several rows, whole rows, or no power of two of columns.

    One CompareRecord each, where d is x quantized and dequantized to float32:
      bits_per_element  bytes of codes, scales and tensor scale, times 8, over the elements
      sqnr_db           10 log10(sum x^2 / sum (x - d)^2): each factor of ten in noise is 10 dB
      relative_rmse     sqrt(sum (x - d)^2 / sum x^2)
      max_error         max |x - d|
      saturated         share of elements with |x| > 1.000001 times the largest that fits the block
      flushed           share of elements with x != 0 and d = 0
      poisoned          share of elements in a block with a NaN or Inf: they decode to NaN and
                        count in no other figure; where all are, errors are NaN
    Raises TypeError and ValueError as quantize does.

    >>> import mxkern, numpy as np
    >>> x = np.random.default_rng(0).standard_normal((64, 256), np.float32)
    >>> [record] = mxkern.compare(x, schemes="mxfp8_e4m3", rules="rceil")
    >>> record.bits_per_element, record.sqnr_db > 31
    (8.25, True)
    """
    cases = select_cases("compare", schemes, rules)
    array = as_numpy("compare", x)
    axis = errors.integer("compare", "axis", axis, -array.ndim, array.ndim - 1)
    if axis not in (-1, array.ndim - 1):
        array = np.ascontiguousarray(np.moveaxis(array, axis, -1))
    sums = measure(array, cases)
    return comparison_of(cases, sums)


def comparison_of(cases: Sequence[Case], sums: Sequence[ErrorSums]) -> Comparison:
    """The records of what `measure` found."""
    return Comparison(
        CompareRecord(scheme=case.scheme.name, scale_rule=case.scale_rule, **found.figures())
        for case, found in zip(cases, sums, strict=True)
    )


def select_cases(
    function: str,
    schemes: SchemeName | Scheme | Iterable[SchemeName | Scheme] | None,
    rules: ScaleRule | Iterable[ScaleRule] | None,
) -> list[Case]:
    """Every chosen scheme with every chosen rule, each once, in the order given."""
    chosen = [any_scheme_of(function, scheme) for scheme in _several(schemes, all_schemes)]
    names = _several(rules, SCALE_RULES)
    if not names:
        raise ValueError(
            f"{function}: rules is empty; expected {errors.listed(SCALE_RULES)}; leave rules out "
            "for all of them"
        )
    for name in names:
        if not isinstance(name, str) or name not in SCALE_RULES:
            raise errors.unknown_name(function, "rules", name, SCALE_RULES)
    cases = [
        Case(scheme, rule)
        for scheme in chosen
        for rule in (names if scheme.scale_format.endswith("m0") else [None])
    ]
    if not cases:
        raise ValueError(
            f"{function}: nothing to compare; expected a scheme and a rule; omit schemes= and "
            "rules= for all of them"
        )
    return list(dict.fromkeys(cases))


def _several(given: Any, every: Iterable[Any]) -> list[Any]:
    """One thing or several as a list, and every one for None."""
    if given is None:
        return list(every)
    return list(given) if isinstance(given, Iterable) and not isinstance(given, str) else [given]


def measure(
    x: Tensor | Stored, cases: Sequence[Case], advance: Callable[[int], None] = lambda amount: None
) -> list[ErrorSums]:
    """The sums of each case over x, float64 too; calls advance with the elements done, times the
    cases."""
    sums = [ErrorSums() for _ in cases]
    with np.errstate(all="ignore"):  # x is measured as it is, whatever the caller has set
        _core.in_float_environment(lambda: _measure_chunks(x, cases, sums, advance))
    for case, total in zip(cases, sums, strict=True):
        if case.scheme.tensor_scale_of == "tensor":
            total.stored_bytes += np.dtype(np.float32).itemsize
    return sums


def _measure_chunks(
    x: Tensor | Stored, cases: Sequence[Case], sums: list[ErrorSums], advance: Callable[[int], None]
) -> None:
    amax = None
    if any(case.scheme.tensor_scale_of == "tensor" for case in cases):
        chunks = (_narrow(chunk) for chunk in chunks_of(x))
        amax = max((float(tensor_amax(chunk)) for chunk in chunks), default=0.0)
    together = [case for case in cases if fits_chunks(case.scheme, CHUNK)]
    total_of = dict(zip(cases, sums, strict=True))
    for chunk in map(_narrow if not isinstance(x, np.ndarray) else np.asarray, chunks_of(x)):
        values = Values.of(_narrow(chunk).astype(np.float32, copy=False))
        for case in together:
            _add_chunk(total_of[case], case, chunk, values, amax)
            advance(chunk.size)
    for case in [case for case in cases if case not in together]:
        whole = x if isinstance(x, np.ndarray) else _whole(x)
        for matrix in matrices_of(whole, case.scheme):
            add_own(total_of[case], case.scheme, case.scale_rule, matrix, amax)
            advance(matrix.size)


def _whole(x: Stored) -> Tensor:
    """All of a tensor that is read in parts."""
    parts = [_narrow(part).reshape(-1) for part in chunks_of(x)]
    return np.concatenate(parts).reshape(x.shape) if parts else np.zeros(x.shape, np.float32)


def _narrow(chunk: Tensor) -> Tensor:
    """What quantize takes: float64 is rounded to float32. A .npy file often has it."""
    return chunk.astype(np.float32) if chunk.dtype == np.float64 else chunk


def _add_chunk(
    total: ErrorSums, case: Case, chunk: Tensor, values: Values, amax: float | None
) -> None:
    scheme, rule = case
    if scheme.core is not None or chunk.dtype == np.float64:
        return add_own(total, scheme, rule, chunk, amax)
    if rule is None:
        q = quantize(chunk, scheme, amax=amax)
        scale = np.float32(q.tensor_scale)
    else:
        q = quantize(chunk, scheme, scale_rule=rule)
        scale = np.float32(1)
    decoded = dequantize(q)
    # A limit beyond float32 is no limit.
    largest = q.scales.astype(np.float32) * np.float32(scheme.max_value) * scale
    total.add(values, decoded, largest, scheme.block)
    total.stored_bytes += q.codes.nbytes + q.scales.nbytes


def chunks_of(x: Tensor | Stored) -> Iterator[Tensor]:
    """x in pieces [rows, columns] of some CHUNK elements that begin at whole blocks: views, or what
    is read."""
    if not isinstance(x, np.ndarray):
        row = x.shape[-1] if x.shape else 1
        columns = min(row, CHUNK)
        elements = max(CHUNK // max(columns, 1), 1) * columns
        parts = x.parts(elements, row if row > CHUNK else None)
        yield from (part.reshape(-1, min(part.size, columns)) for part in parts)
        return
    if x.size == 0:
        return
    if x.ndim == 1:
        x = x[np.newaxis]
    if x.ndim > 2 and x.flags.c_contiguous:
        x = x.reshape(-1, x.shape[-1])
    if x.ndim > 2:
        for part in x:
            yield from chunks_of(part)
        return
    columns = min(x.shape[1], CHUNK)
    rows = max(CHUNK // columns, 1)
    for row in range(0, x.shape[0], rows):
        for column in range(0, x.shape[1], columns):
            yield x[row : row + rows, column : column + columns]


def as_numpy(function: str, x: Any) -> Tensor:
    """x as a NumPy array, without a copy where the framework has it on the CPU."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor):
        return _numpy_of_torch(function, torch, x)
    jax = sys.modules.get("jax")
    if jax is not None and isinstance(x, jax.Array):
        if isinstance(x, jax.core.Tracer):
            adapter_of(function, "x", x).enter(function, "x", x)  # raises, and names the way out
        x = np.asarray(x)
    if not isinstance(x, np.ndarray):
        if isinstance(x, BlockScaled):
            adapter_of(function, "x", x)  # raises, and names the way out
        way_out = way_to_array("x", x)
        if hasattr(type(x), "__cuda_array_interface__"):
            way_out = "; convert with cupy.asnumpy(x)"
        elif hasattr(type(x), "__dlpack__") and hasattr(type(x), "__dlpack_device__"):
            way_out = "; convert with numpy.from_dlpack(x)"
        raise TypeError(
            f"{function}: x is {errors.described(x)}; expected a NumPy, torch or JAX array on the "
            f"CPU{way_out}"
        )
    adapter_of(function, "x", x)  # refuses what is more than an array
    if not x.dtype.isnative:
        x = x.astype(x.dtype.newbyteorder("="))
    if x.dtype not in (np.float32, np.float16, ml_dtypes.bfloat16, np.float64):
        raise TypeError(
            f"{function}: x has dtype {x.dtype}; expected float32, float16, bfloat16 or float64; "
            "convert with x.astype(numpy.float32)"
        )
    if x.ndim == 0:
        raise ValueError(
            f"{function}: x has no dimension; expected [..., K]; pass x.reshape(1), or a tensor"
        )
    return np.asarray(x)


def _numpy_of_torch(function: str, torch: Any, x: Any) -> Tensor:
    if x.device.type not in ("cpu", "meta"):
        raise ValueError(f"{function}: x is on {x.device}; expected the CPU; pass x.cpu()")
    adapter = adapter_of(function, "x", x)
    x = adapter.enter(function, "x", x).detach()
    if x.dtype not in adapter.plain_dtypes and x.dtype != torch.float64:
        adapter.refuse_dtype(function, "x", x, (*PLAIN_DTYPES, "float64"))
    if x.dtype == torch.bfloat16:  # NumPy's buffers know no bfloat16
        return as_numpy(function, x.view(torch.int16).numpy().view(ml_dtypes.bfloat16))
    return as_numpy(function, x.numpy())
