"""
The C++ library mxkern over plain addresses. The package mxkern checks arguments.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import mxkern.values.block_scaled
import mxkern.values.prepared_operand

def scheme_facts() -> list[dict[str, Any]]: ...
def names() -> dict[str, tuple[str, ...]]: ...
def hadamard_sizes() -> tuple[int, ...]: ...
def default_sign_mask() -> tuple[int, int]: ...

class AnyFormat:
    def __init__(
        self,
        exponent_bits: int,
        mantissa_bits: int,
        is_signed: bool,
        is_integer: bool,
        specials: int,
    ) -> None: ...
    @property
    def is_in_float32(self) -> bool: ...
    @property
    def width(self) -> int: ...
    @property
    def stored_bits(self) -> int: ...
    @property
    def max_value(self) -> float: ...
    @property
    def min_subnormal(self) -> float: ...
    def decode(self, code: int) -> float: ...
    def encode(self, options: AnyOptions, value: float, random: int = 0) -> int: ...

class AnyOptions:
    def __init__(
        self,
        rounding: int = 0,
        random_bits: int = 16,
        subnormals: bool = True,
        saturates: bool = True,
        rule: int = 0,
        threshold: float = 0.0,
        mse: bool = False,
        seed: int = 0,
        offset: int = 0,
        square: bool = False,
        transposed: bool = False,
    ) -> None: ...

class CustomScheme:
    def __init__(
        self,
        element: AnyFormat,
        scale_kind: int,
        scale_exponent_bits: int,
        scale_mantissa_bits: int,
        block_rows: int,
        block_columns: int,
        tensor_scales: int,
        name: str,
        codes: int,
        scales: int,
    ) -> None: ...
    @property
    def nan_scale(self) -> int: ...
    @property
    def scale_bits(self) -> int: ...
    @property
    def is_exact_in_bfloat16(self) -> bool: ...
    def decode_scale(self, code: int) -> float: ...
    def code_row_bytes(self, columns: int) -> int: ...

def any_names() -> tuple[str, ...]: ...
def info() -> dict[str, Any]: ...

most_threads: int = 4096

def num_threads() -> int: ...
def set_num_threads(n: int) -> None: ...
def version() -> str: ...
def built_with_cuda() -> bool: ...
def in_float_environment(function: object) -> object: ...

class QuantizeOptions:
    def __init__(self, numbers: Sequence[int]) -> None: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def chooses_for_squares(self) -> bool: ...
    @property
    def is_nearest(self) -> bool: ...
    def with_offset(self, offset: int) -> QuantizeOptions: ...
    @property
    def hadamard_size(self) -> int: ...
    @property
    def numbers(self) -> tuple[int, ...]: ...

class OffsetOptions(QuantizeOptions):
    def __init__(self, options: QuantizeOptions, array: object, address: object | None) -> None: ...
    @property
    def array(self) -> object: ...
    def without_array(self) -> QuantizeOptions: ...

def float32_bits(value: float) -> int: ...
def prepared_form(wanted: int, scheme: int, device: int) -> int: ...
def prepared_bytes(form: int, scheme: int, batch: int, rows: int, columns: int) -> int: ...

class GemmPlan:
    @property
    def workspace_bytes(self) -> int: ...

def plan_gemm_problem(
    left: tuple[int, ...],
    right: tuple[int, ...],
    out: tuple[int, int, int, int],
    precision: int,
    device: int,
) -> GemmPlan: ...
def grouped_gemm_problem_bytes(
    left: tuple[int, ...],
    right: tuple[int, ...],
    out: tuple[int, int, int, int],
    groups: int,
    of_columns: bool,
    precision: int,
    device: int,
) -> int: ...

class Signature:
    def __init__(
        self,
        function: str,
        names: Sequence[object],
        defaults: Sequence[object],
        taken: Sequence[object],
    ) -> None: ...
    @property
    def function(self) -> str: ...

class Calls:
    def __init__(self, **given: object) -> None: ...

def read_numpy(
    calls: Calls, adapter: object, array_type: object, empty: object, dtypes: Sequence[object]
) -> None: ...
def read_torch(
    calls: Calls, adapter: object, samples: Sequence[object], **given: object
) -> None: ...
def quantize(
    calls: Calls,
    signature: Signature,
    columns: bool,
    x: object,
    scheme: object,
    keywords: Mapping[str, object],
) -> mxkern.values.block_scaled.BlockScaled: ...
def quantize_both(
    calls: Calls, signature: Signature, x: object, scheme: object, keywords: Mapping[str, object]
) -> tuple[mxkern.values.block_scaled.BlockScaled, mxkern.values.block_scaled.BlockScaled]: ...
def fake_quantize(
    calls: Calls,
    signature: Signature,
    x: object,
    scheme: object,
    keywords: Mapping[str, object],
    through: bool = True,
) -> Any: ...
def tensor_amax(
    calls: Calls,
    x: object | None,
    size: int,
    sign_mask_low: int,
    sign_mask_high: int,
    columns: bool,
    out: object | None,
    stream: object | None,
) -> Any: ...
def dequantize(
    calls: Calls, q: object | None, dtype: object | None, out: object | None, stream: object | None
) -> Any: ...
def gemm(
    calls: Calls,
    a: object | None,
    b: object | None,
    dtype: object | None,
    out: object | None,
    alpha: object | None,
    beta: object | None,
    bias: object | None,
    precision: object | None,
    stream: object | None,
) -> Any: ...
def grouped_gemm(
    calls: Calls,
    a: object | None,
    b: object | None,
    ends: object | None,
    dtype: object | None,
    out: object | None,
    alpha: object | None,
    beta: object | None,
    factors: object | None,
    bias: object | None,
    rows: object | None,
    precision: object | None,
    stream: object | None,
) -> Any: ...
def explain_gemm(
    calls: Calls,
    function: str,
    a: object | None,
    b: object | None,
    dtype: object | None,
    precision: object | None,
    beta: object | None,
    device: object | None,
    form: object | None,
) -> Any: ...
def explain_grouped_gemm(
    calls: Calls,
    a: object | None,
    b: object | None,
    ends: object | None,
    dtype: object | None,
    precision: object | None,
    device: object | None,
    form: object | None,
) -> tuple[Any, ...]: ...
def operand_views(
    calls: Calls, function: str, a: object | None, b: object | None
) -> tuple[Any, ...]: ...
def grouped_views(
    calls: Calls,
    function: str,
    a: object | None,
    b: object | None,
    ends: object | None,
    factors: object | None,
) -> tuple[Any, ...]: ...
def swiglu(
    calls: Calls,
    x: object | None,
    alpha: object | None,
    limit: object | None,
    offset: object | None,
    interleaved: bool,
    out: object | None,
    stream: object | None,
) -> Any: ...
def combine(
    calls: Calls,
    y: object | None,
    rows: object | None,
    weights: object | None,
    tokens: int,
    dtype: object | None,
    out: object | None,
    stream: object | None,
) -> Any: ...
def expert_layer(
    calls: Calls,
    x: object | None,
    gate_up: object | None,
    down: object | None,
    ends: object | None,
    rows: object | None,
    weights: object | None,
    gate_up_bias: object | None,
    down_bias: object | None,
    gate_up_factors: object | None,
    down_factors: object | None,
    alpha: object | None,
    limit: object | None,
    offset: object | None,
    interleaved: bool,
    scheme: object | None,
    options: QuantizeOptions | None,
    precision: object | None,
    dtype: object | None,
    out: object | None,
    stream: object | None,
) -> Any: ...
def prepare_operand(
    calls: Calls,
    x: object,
    scheme: object,
    options: QuantizeOptions | None,
    form: int,
    keep_source: bool,
    data: object,
    stream: object,
) -> mxkern.values.prepared_operand.PreparedOperand: ...
def prepare_both(
    calls: Calls,
    x: object | None,
    scheme: object | None,
    options: QuantizeOptions,
    stream: object | None,
) -> tuple[Any, ...]: ...
def random_hadamard(
    calls: Calls,
    x: object | None,
    size: int,
    sign_mask_low: int,
    sign_mask_high: int,
    inverse: bool,
    out: object | None,
    stream: object | None,
) -> Any: ...
def move_scales(
    calls: Calls,
    function: str,
    scales: object | None,
    rows: int,
    blocks: int,
    out: object | None,
    stream: object | None,
) -> Any: ...
def plain_view(calls: Calls, function: str, argument: str, x: object | None) -> tuple[Any, ...]: ...
def quantized_view(
    calls: Calls, function: str, argument: str, q: object | None
) -> tuple[Any, ...]: ...
def custom_quantize(
    calls: Calls,
    function: str,
    x: object | None,
    scheme: CustomScheme,
    options: AnyOptions,
    layout: int,
    given: Sequence[object],
    out: object | None,
    stream: object | None,
) -> Any: ...
def custom_fake_quantize(
    calls: Calls,
    function: str,
    x: object | None,
    scheme: CustomScheme,
    options: AnyOptions,
    given: Sequence[object],
    out: object | None,
    stream: object | None,
) -> Any: ...
def custom_round(
    calls: Calls,
    function: str,
    x: object | None,
    format: AnyFormat,
    options: AnyOptions,
    out: object | None,
    stream: object | None,
) -> Any: ...
def custom_dequantize(
    calls: Calls,
    function: str,
    q: object | None,
    scheme: CustomScheme,
    dtype: int,
    out: object | None,
    stream: object | None,
) -> Any: ...
def custom_view(
    calls: Calls, function: str, argument: str, q: object | None, scheme: CustomScheme
) -> tuple[Any, ...]: ...
def custom_gemm(
    calls: Calls,
    a: object | None,
    b: object | None,
    dtype: object | None,
    out: object | None,
    alpha: object | None,
    beta: object | None,
    bias: object | None,
    scales: object | None,
    accumulate: object | None,
    options: AnyOptions,
    stream: object | None,
) -> Any: ...
def custom_gemm_in_bfloat16(
    calls: Calls,
    a: object | None,
    b: object | None,
    scheme: CustomScheme,
    dtype: object | None,
    out: object | None,
    alpha: object | None,
    beta: object | None,
    bias: object | None,
    precision: object | None,
    stream: object | None,
) -> Any: ...
def linear_forward(
    calls: Calls,
    x: object,
    weight: object,
    bias: object,
    signature: Signature,
    x_scheme: object,
    x_options: Mapping[str, object],
    x_kept: int,
    x_folds: bool,
    weight_scheme: object,
    weight_options: Mapping[str, object],
    weight_kept: int,
    weight_folds: bool,
    dtype: object,
    precision: object,
) -> tuple[Any, list[Any], list[Any]]: ...
def xla_version() -> tuple[int, int] | None: ...
def xla_alignment() -> int: ...
def xla_handlers() -> dict[str, tuple[object, object]]: ...
