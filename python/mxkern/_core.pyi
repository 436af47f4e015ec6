"""
The C++ library mxkern over plain addresses. The package mxkern checks arguments.
"""

from collections.abc import Sequence

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
    def built_with_cuda(self) -> bool: ...
    @property
    def cuda(self) -> str: ...
    @property
    def blackwell(self) -> str: ...
    @property
    def devices(self) -> list[str]: ...

def info() -> Info: ...
def version() -> str: ...
def built_with_cuda() -> bool: ...
def in_float_environment(function: object) -> object: ...

class QuantizeOptions:
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
def quantize(
    x: tuple[object, int, int, int, int, int, int, int],
    out: tuple[int, int, int, int, int, int, object, object, object],
    options: QuantizeOptions,
    amax: object | None,
    tensor_scale: object | None,
    found_amax: object | None,
    stream: object | None,
) -> None: ...
def quantize_columns(
    x: tuple[object, int, int, int, int, int, int, int],
    out: tuple[int, int, int, int, int, int, object, object, object],
    options: QuantizeOptions,
    amax: object | None,
    tensor_scale: object | None,
    found_amax: object | None,
    stream: object | None,
) -> None: ...
def quantize_both(
    x: tuple[object, int, int, int, int, int, int, int],
    rows: tuple[int, int, int, int, int, int, object, object, object],
    columns: tuple[int, int, int, int, int, int, object, object, object],
    row_options: QuantizeOptions,
    column_options: QuantizeOptions,
    row_amax: object | None,
    column_amax: object | None,
    row_tensor_scale: object | None,
    column_tensor_scale: object | None,
    row_found_amax: object | None,
    column_found_amax: object | None,
    stream: object | None,
) -> None: ...
def fake_quantize(
    x: tuple[object, int, int, int, int, int, int, int],
    scheme: int,
    out: tuple[object, int, int, int, int, int, int, int],
    options: QuantizeOptions,
    amax: object | None,
    tensor_scale: object | None,
    found_amax: object | None,
    stream: object | None,
) -> None: ...
def tensor_amax(
    x: tuple[object, int, int, int, int, int, int, int], amax: object, stream: object | None
) -> None: ...
def dequantize(
    q: tuple[int, int, int, int, int, int, object, object, object],
    out: tuple[object, int, int, int, int, int, int, int],
    stream: object | None,
) -> None: ...
def random_hadamard(
    x: tuple[object, int, int, int, int, int, int, int],
    out: tuple[object, int, int, int, int, int, int, int],
    size: int,
    sign_mask_low: int,
    sign_mask_high: int,
    inverse: bool,
    stream: object | None,
) -> None: ...
def default_sign_mask() -> tuple[int, int]: ...
def swizzle_scales(
    scales: object,
    out: object,
    batch: int,
    rows: int,
    blocks: int,
    device: int,
    stream: object | None,
) -> None: ...
def unswizzle_scales(
    scales: object,
    out: object,
    batch: int,
    rows: int,
    blocks: int,
    device: int,
    stream: object | None,
) -> None: ...
def gemm(
    a: tuple[int, int, int, int, int, int, object, object, object]
    | tuple[object, int, int, int, int, int, int, int]
    | tuple[int, tuple[int, int, int, int, int, int, object, object, object], object, int],
    b: tuple[int, int, int, int, int, int, object, object, object]
    | tuple[int, tuple[int, int, int, int, int, int, object, object, object], object, int],
    out: tuple[object, int, int, int, int, int, int, int],
    alpha: float,
    beta: float,
    bias: tuple[object, int, int, int, int, int, int, int] | None,
    precision: int,
    plan: GemmPlan | None,
    workspace: object | None,
    stream: object | None,
) -> None: ...

class GemmExplanation:
    @property
    def device(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def reason(self) -> str: ...
    @property
    def left(self) -> str: ...
    @property
    def right(self) -> str: ...
    @property
    def kernel(self) -> str: ...
    @property
    def error(self) -> str: ...
    @property
    def workspace_bytes(self) -> int: ...

class GemmPlan:
    @property
    def workspace_bytes(self) -> int: ...
    def explain(self) -> GemmExplanation: ...

def plan_gemm(
    a: tuple[int, int, int, int, int, int, object, object, object]
    | tuple[object, int, int, int, int, int, int, int]
    | tuple[int, tuple[int, int, int, int, int, int, object, object, object], object, int],
    b: tuple[int, int, int, int, int, int, object, object, object]
    | tuple[int, tuple[int, int, int, int, int, int, object, object, object], object, int],
    out: tuple[object, int, int, int, int, int, int, int],
    beta: float,
    precision: int,
    device: str,
) -> GemmPlan: ...
def plan_gemm_problem(
    left: tuple[int, ...],
    right: tuple[int, ...],
    out: tuple[int, int, int, int],
    precision: int,
    device: int,
) -> GemmPlan: ...
def prepared_form(wanted: int, scheme: int, device: int) -> int: ...
def prepared_bytes(form: int, scheme: int, batch: int, rows: int, columns: int) -> int: ...
def prepare_operand(
    out: tuple[int, tuple[int, int, int, int, int, int, object, object, object], object, int],
    stream: object | None,
) -> None: ...
def quantize_prepared(
    x: tuple[object, int, int, int, int, int, int, int],
    out: tuple[int, tuple[int, int, int, int, int, int, object, object, object], object, int],
    options: QuantizeOptions,
    stream: object | None,
) -> None: ...
def grouped_gemm(
    a: tuple[int, int, int, int, int, int, object, object, object]
    | tuple[object, int, int, int, int, int, int, int]
    | tuple[int, tuple[int, int, int, int, int, int, object, object, object], object, int],
    b: tuple[int, int, int, int, int, int, object, object, object]
    | tuple[int, tuple[int, int, int, int, int, int, object, object, object], object, int],
    ends: object | None,
    count: int,
    of_columns: bool,
    out: tuple[object, int, int, int, int, int, int, int],
    alpha: float,
    beta: float,
    factors: object | None,
    bias: tuple[object, int, int, int, int, int, int, int] | None,
    precision: int,
    workspace: object | None,
    workspace_bytes: int,
    stream: object | None,
) -> None: ...
def grouped_gemm_workspace_bytes(
    a: tuple[int, int, int, int, int, int, object, object, object]
    | tuple[object, int, int, int, int, int, int, int]
    | tuple[int, tuple[int, int, int, int, int, int, object, object, object], object, int],
    b: tuple[int, int, int, int, int, int, object, object, object]
    | tuple[int, tuple[int, int, int, int, int, int, object, object, object], object, int],
    ends: object | None,
    count: int,
    of_columns: bool,
    out: tuple[object, int, int, int, int, int, int, int],
    precision: int,
) -> int: ...
def grouped_gemm_problem_bytes(
    left: tuple[int, ...],
    right: tuple[int, ...],
    out: tuple[int, int, int, int],
    groups: int,
    of_columns: bool,
    precision: int,
    device: int,
) -> int: ...
def explain_grouped_gemm(
    a: tuple[int, int, int, int, int, int, object, object, object]
    | tuple[object, int, int, int, int, int, int, int]
    | tuple[int, tuple[int, int, int, int, int, int, object, object, object], object, int],
    b: tuple[int, int, int, int, int, int, object, object, object]
    | tuple[int, tuple[int, int, int, int, int, int, object, object, object], object, int],
    ends: object | None,
    count: int,
    of_columns: bool,
    out: tuple[object, int, int, int, int, int, int, int],
    precision: int,
    device: str,
) -> GemmExplanation: ...
def extent(array_struct: object) -> tuple[int, int]: ...

class NumpyCalls:
    def __init__(
        self,
        array_type: object,
        empty: object,
        block_scaled: object,
        plain_dtypes: Sequence[object],
        code_dtypes: Sequence[object],
        scale_dtypes: Sequence[object],
        scheme_names: Sequence[object],
        layout_names: Sequence[object],
    ) -> None: ...
    def quantize(
        self,
        x: object | None,
        scheme: int,
        layout: int,
        options: QuantizeOptions,
        columns: bool,
        amax: object | None,
        tensor_scale: object | None,
        out: object | None,
    ) -> object: ...
    def quantize_both(
        self,
        x: object | None,
        scheme: int,
        layout: int,
        row_options: QuantizeOptions,
        column_options: QuantizeOptions,
        amax: object | None,
        tensor_scale: object | None,
    ) -> object: ...
    def fake_quantize(
        self,
        x: object | None,
        scheme: int,
        options: QuantizeOptions,
        amax: object | None,
        tensor_scale: object | None,
        out: object | None,
    ) -> object: ...
    def dequantize(self, q: object | None, dtype: int, out: object | None) -> object: ...
    def gemm(
        self,
        a: object | None,
        b: object | None,
        dtype: int,
        alpha: float,
        beta: float,
        bias: object | None,
        precision: int,
        out: object | None,
    ) -> object: ...

class TorchCudaCalls:
    def __init__(
        self,
        tensor_type: object,
        empty: object,
        current_device: object | None,
        current_stream: object,
        recorders: Sequence[object],
        samples: Sequence[object],
        block_scaled: object,
        prepared_operand: object,
        plain_elements: Sequence[int],
        code_elements: Sequence[int],
        scale_elements: Sequence[int],
        end_element: int,
        scheme_names: Sequence[object],
        layout_names: Sequence[object],
        form_names: Sequence[object],
    ) -> None: ...
    def quantize(
        self,
        x: object | None,
        scheme: int,
        layout: int,
        options: QuantizeOptions,
        columns: bool,
        amax: object | None,
        tensor_scale: object | None,
        out: object | None,
    ) -> object: ...
    def quantize_both(
        self,
        x: object | None,
        scheme: int,
        layout: int,
        row_options: QuantizeOptions,
        column_options: QuantizeOptions,
        amax: object | None,
        tensor_scale: object | None,
    ) -> object: ...
    def fake_quantize(
        self,
        x: object | None,
        scheme: int,
        options: QuantizeOptions,
        amax: object | None,
        tensor_scale: object | None,
        out: object | None,
    ) -> object: ...
    def dequantize(self, q: object | None, dtype: int, out: object | None) -> object: ...
    def gemm(
        self,
        a: object | None,
        b: object | None,
        dtype: int,
        alpha: float,
        beta: float,
        bias: object | None,
        precision: int,
        out: object | None,
    ) -> object: ...
    def grouped_gemm(
        self,
        a: object | None,
        b: object | None,
        ends: object | None,
        factors: object | None,
        bias: object | None,
        dtype: int,
        alpha: float,
        beta: float,
        precision: int,
        out: object | None,
    ) -> object: ...

def xla_version() -> tuple[int, int] | None: ...
def xla_alignment() -> int: ...
def xla_handlers() -> dict[str, tuple[object, object]]: ...
