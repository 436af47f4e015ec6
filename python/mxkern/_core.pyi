"""
The C++ library mxkern over plain addresses. The package mxkern checks arguments.
"""

from collections.abc import Mapping, Sequence
from typing import Any, overload

import mxkern.block_scaled
import mxkern.prepared_operand

class SchemeFacts:
    @property
    def name(self) -> str: ...
    @property
    def format(self) -> str: ...
    @property
    def scale_format(self) -> str: ...
    @property
    def bits(self) -> int: ...
    @property
    def block(self) -> int: ...
    @property
    def block_bytes(self) -> int: ...
    @property
    def has_tensor_scale(self) -> bool: ...
    @property
    def max_value(self) -> float: ...
    @property
    def min_subnormal(self) -> float: ...
    @property
    def nan_scale(self) -> int: ...

def scheme_facts() -> list[SchemeFacts]: ...
def dtype_names() -> tuple[str, ...]: ...
def scale_rule_names() -> tuple[str, ...]: ...
def rounding_names() -> tuple[str, ...]: ...
def block_error_names() -> tuple[str, ...]: ...
def scale_layout_names() -> tuple[str, ...]: ...
def gemm_precision_names() -> tuple[str, ...]: ...
def prepared_form_names() -> tuple[str, ...]: ...
def hadamard_sizes() -> tuple[int, ...]: ...
def default_sign_mask() -> tuple[int, int]: ...

class Info:
    @property
    def version(self) -> str: ...
    @property
    def build(self) -> str: ...
    @property
    def instruction_set(self) -> str: ...
    @property
    def gemm_unit(self) -> str: ...
    @property
    def threads(self) -> int: ...
    @property
    def threads_from(self) -> str: ...
    @property
    def built_with_cuda(self) -> bool: ...
    @property
    def cuda(self) -> str: ...
    @property
    def blackwell(self) -> str: ...
    @property
    def devices(self) -> list[str]: ...

def info() -> Info: ...

most_threads: int = 4096

def num_threads() -> int: ...
def set_num_threads(n: int) -> None: ...
def version() -> str: ...
def built_with_cuda() -> bool: ...
def in_float_environment(function: object) -> object: ...

class QuantizeOptions:
    @overload
    def __init__(self) -> None: ...
    @overload
    def __init__(
        self,
        scale_rule: int,
        rounding: int,
        seed: int,
        offset: int,
        square: bool,
        four_over_six: int,
        hadamard_size: int,
        sign_mask_low: int,
        sign_mask_high: int,
    ) -> None: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def chooses_for_squares(self) -> bool: ...
    @property
    def is_nearest(self) -> bool: ...
    @property
    def is_symmetric(self) -> bool: ...
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
    def __init__(
        self,
        faults: object,
        adapter_of: object,
        block_scaled: object,
        prepared_operand: object,
        schemes: dict[object, int],
        scheme_names: Sequence[object],
        layout_names: Sequence[object],
        form_names: Sequence[object],
        dtype_names: Sequence[object],
        precision_names: Sequence[object],
        element_names: Sequence[object],
        code_elements: Sequence[int],
        scale_elements: Sequence[int],
    ) -> None: ...

def read_numpy(
    calls: Calls, adapter: object, array_type: object, empty: object, dtypes: Sequence[object]
) -> None: ...
def read_torch(
    calls: Calls,
    adapter: object,
    tensor_type: object,
    parameter_type: object,
    empty_cpu: object | None,
    empty_cuda: object | None,
    current_device: object | None,
    current_stream: object | None,
    increment_version: object | None,
    forward_ad: object,
    recorders: Sequence[object],
    samples: Sequence[object],
) -> None: ...
def quantize(
    calls: Calls,
    signature: Signature,
    columns: bool,
    x: object,
    scheme: object,
    keywords: Mapping[str, object],
) -> mxkern.block_scaled.BlockScaled: ...
def quantize_both(
    calls: Calls, signature: Signature, x: object, scheme: object, keywords: Mapping[str, object]
) -> tuple[mxkern.block_scaled.BlockScaled, mxkern.block_scaled.BlockScaled]: ...
def fake_quantize(
    calls: Calls,
    signature: Signature,
    x: object,
    scheme: object,
    keywords: Mapping[str, object],
    through: bool = True,
) -> Any: ...
def tensor_amax(calls: Calls, x: object, out: object, stream: object) -> Any: ...
def dequantize(calls: Calls, q: object, dtype: object, out: object, stream: object) -> Any: ...
def gemm(
    calls: Calls,
    a: object,
    b: object,
    dtype: object,
    out: object,
    alpha: object,
    beta: object,
    bias: object,
    precision: object,
    stream: object,
) -> Any: ...
def grouped_gemm(
    calls: Calls,
    a: object,
    b: object,
    ends: object,
    dtype: object,
    out: object,
    alpha: object,
    beta: object,
    factors: object,
    bias: object,
    precision: object,
    stream: object,
) -> Any: ...
def explain_gemm(
    calls: Calls,
    function: str,
    a: object,
    b: object,
    dtype: object,
    precision: object,
    beta: object,
    device: object,
    form: object,
) -> tuple[Any, ...]: ...
def explain_grouped_gemm(
    calls: Calls,
    a: object,
    b: object,
    ends: object,
    dtype: object,
    precision: object,
    device: object,
    form: object,
) -> tuple[Any, ...]: ...
def operand_views(calls: Calls, function: str, a: object, b: object) -> tuple[Any, ...]: ...
def grouped_views(
    calls: Calls, function: str, a: object, b: object, ends: object, factors: object
) -> tuple[Any, ...]: ...
def prepare_operand(
    calls: Calls,
    x: object,
    scheme: object,
    options: QuantizeOptions,
    form: int,
    keep_source: bool,
    stream: object,
) -> mxkern.prepared_operand.PreparedOperand: ...
def random_hadamard(
    calls: Calls,
    x: object,
    size: int,
    sign_mask_low: int,
    sign_mask_high: int,
    inverse: bool,
    out: object,
    stream: object,
) -> Any: ...
def move_scales(
    calls: Calls, function: str, scales: object, rows: int, blocks: int, out: object, stream: object
) -> Any: ...
def plain_view(calls: Calls, function: str, argument: str, x: object) -> tuple[Any, ...]: ...
def quantized_view(calls: Calls, function: str, argument: str, q: object) -> tuple[Any, ...]: ...
def xla_version() -> tuple[int, int] | None: ...
def xla_alignment() -> int: ...
def xla_handlers() -> dict[str, tuple[object, object]]: ...
