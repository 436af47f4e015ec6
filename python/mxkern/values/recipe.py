# mxkern/values/recipe.py: how a linear layer is trained: which operands are quantized, and how.
"""Recipes: frozen values that PyTorch's and JAX's layers share.

    Y = X W^T        X [M, K], W [N, K]; rows of X times rows of W
    dX = G W         G [M, N]; rows of G times columns of W
    dW = G^T X       columns of G times columns of X

"Rows" have blocks along the last axis, "columns" along the first.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, Self, TypeVar

from mxkern.values import errors
from mxkern.values.custom_scheme import any_scheme_of
from mxkern.values.dtypes import ROUNDINGS
from mxkern.values.names import Block, BlockError, Rounding, ScaleRule, SchemeName
from mxkern.values.options import hadamard_of, options_of, position

Product = Literal["quantized", "plain"]
Backward = Literal["quantized", "dequantized", "plain"]
SaveWeight = Literal["columns", "requantize"]
Precision = Literal["fast", "auto", "exact", "folded"]

_CHOICES = {
    "forward": ("quantized", "plain"),
    "dgrad": ("quantized", "plain"),
    "wgrad": ("quantized", "plain"),
    "backward": ("quantized", "dequantized", "plain"),
    "save": ("quantized", "plain"),
    "save_weight": ("columns", "requantize"),
    "precision": ("fast", "auto", "exact", "folded"),
}
_Frozen = TypeVar("_Frozen")


def _changed(value: _Frozen, changes: dict[str, Any]) -> _Frozen:
    known = [f.name for f in fields(value) if f.init]  # type: ignore[arg-type]
    for name in changes:
        if name not in known:
            raise errors.unknown_name(f"{type(value).__name__}.with_", "field", name, known)
    return replace(value, **changes)  # type: ignore[type-var]


@dataclass(frozen=True)
class Operand:
    """How one operand is quantized, in both directions.

    scheme         "mxfp8_e4m3", ... or an alias of one
    scale_rule     of MX schemes; NVFP4 has one rule of its own
    block          None: blocks along one axis; "32x32" or "16x16": square blocks, so that both
                   directions see the same values
    hadamard       size of the random Hadamard transform of the columns; rows have none
    sign_mask      its signs, bit i for element i; by default those of mxkern.random_hadamard
    rounding       "nearest" or "stochastic"
    four_over_six  NVFP4's choice of a block's largest code; True, "mse" or "mae"

    Raises what mxkern.quantize raises for options that do not fit the scheme.
    """

    scheme: SchemeName
    scale_rule: ScaleRule = "rceil"
    block: Block = None
    hadamard: int | None = None
    sign_mask: int | None = None
    rounding: Rounding = "nearest"
    four_over_six: bool | BlockError = False
    # Keyword arguments of mxkern.quantize but those of random bits and of the transform, and those
    # of mxkern.quantize_both but those of random bits.
    options: dict[str, Any] = field(init=False, repr=False, compare=False)
    both_options: dict[str, Any] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        scheme = any_scheme_of("Operand", self.scheme)
        object.__setattr__(self, "scheme", scheme.name)
        block = self.block
        if isinstance(block, tuple) and all(isinstance(extent, int) for extent in block):
            object.__setattr__(self, "block", "x".join(map(str, block)))
        check_options(self)
        options: dict[str, Any] = {"block": self.block}
        if scheme.core is None and scheme.has_tensor_scale:
            options["four_over_six"] = self.four_over_six
        elif scheme.scale_format.endswith("m0") or self.scale_rule != "rceil":
            options["scale_rule"] = self.scale_rule
        object.__setattr__(self, "options", options)
        transform = {"hadamard": self.hadamard, "sign_mask": self.sign_mask}
        if self.hadamard is None:
            transform = {}
        object.__setattr__(self, "both_options", {**options, **transform})

    def __str__(self) -> str:
        named = (f"{name}={getattr(self, name)}" for name in ("block", "hadamard", "four_over_six"))
        said = [text for text in named if not text.endswith(("=None", "=False"))]
        said += [self.scale_rule] if self.scale_rule != "rceil" else []
        said += [self.rounding] if self.rounding != "nearest" else []
        return " ".join([self.scheme, *said])

    def with_(self, **changes: Any) -> Self:
        """The same operand with other fields."""
        return _changed(self, changes)


_QUANTIZE_OPTIONS = [f.name for f in fields(Operand) if f.init and f.name != "scheme"]


def check_options(operand: Operand) -> None:
    """Raises what mxkern.quantize raises. A function of its own, as compilers cannot look inside of
    what reads options: the layers for them put something else in its place."""
    options = {name: getattr(operand, name) for name in _QUANTIZE_OPTIONS}
    if operand.rounding == "stochastic":
        options["seed"] = 0
    record = any_scheme_of("Operand", operand.scheme)
    if record.core is None:
        options_of("Operand", record, **options)
        return
    # A scheme of the user's own: mxkern.quantize has what there is to say of the rest.
    position("Operand", "rounding", operand.rounding, ROUNDINGS)
    hadamard_of("Operand", "hadamard", operand.hadamard, operand.sign_mask)
    if operand.four_over_six is not False:
        raise ValueError(
            f"Operand: four_over_six is for nvfp4, but the scheme is {record.name}; leave it out"
        )


@dataclass(frozen=True)
class Recipe:
    """How a linear layer is trained. Hashable; `with_` gives a changed one.

    input, weight, gradient  how X, W and G are quantized
    forward, dgrad, wgrad    each product: "quantized", or "plain", of 16-bit operands
    backward     "dequantized": gradients of the quantized layer, from decoded X and W and a plain G
                 (quantization-aware training); "plain": dgrad and wgrad are plain
    save         for wgrad: columns of X, "quantized", or X as it is, "plain", quantized in backward
    save_weight  for dgrad: the weight's "columns" until backward, or "requantize" it there
    precision    of the products. "fast": FP8 tensor cores on Hopper where the schemes allow it
                 (precision="folded"), exact elsewhere; the others are those of mxkern.gemm

    Raises ValueError for unknown names, and for a Hadamard transform on one side of wgrad alone.
    """

    input: Operand
    weight: Operand
    gradient: Operand
    forward: Product = "quantized"
    dgrad: Product = "quantized"
    wgrad: Product = "quantized"
    backward: Backward = "quantized"
    save: Product = "quantized"
    save_weight: SaveWeight = "columns"
    precision: Precision = "fast"
    # Derived from the fields above, once.
    is_plain: bool = field(init=False, repr=False, compare=False)  # no product is quantized
    is_stochastic: bool = field(init=False, repr=False, compare=False)  # seed and step matter
    # Y is a product of compiled schemes, rounded to nearest: one call computes it.
    is_one_call: bool = field(init=False, repr=False, compare=False)
    # What backward takes of X and of W: their "rows", "columns", the tensors "itself", or nothing,
    # by whether the gradients of X and of W are wanted.
    kept: dict[tuple[bool, bool], tuple[str | None, str | None]] = field(
        init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        for name in ("input", "weight", "gradient"):
            operand = getattr(self, name)
            if not isinstance(operand, Operand):
                raise TypeError(
                    f"Recipe: {name} is {errors.described(operand)}; expected an Operand; pass "
                    f"Operand({operand!r})"
                    if isinstance(operand, str)
                    else f"Recipe: {name} is {errors.described(operand)}; expected an Operand"
                )
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            if not isinstance(value, str) or value not in choices:
                raise errors.unknown_name("Recipe", name, value, choices)
        self._check_transforms()
        quantizes = self.quantizes_dgrad or self.quantizes_wgrad or self.backward == "dequantized"
        object.__setattr__(self, "is_plain", self.forward == "plain" and not quantizes)
        operands = (self.input, self.weight, self.gradient)
        object.__setattr__(self, "is_stochastic", any(o.rounding != "nearest" for o in operands))
        is_one_call = self.forward == "quantized" and all(
            o.rounding == "nearest" and any_scheme_of("Recipe", o.scheme).core is None
            for o in operands[:2]
        )
        object.__setattr__(self, "is_one_call", is_one_call)
        kept_x = self._kept(self.wgrad, "columns" if self.save == "quantized" else "itself")
        kept_w = self._kept(self.dgrad, "columns" if self.save_weight == "columns" else "itself")
        kept = {
            (needs_x, needs_w): (kept_x if needs_w else None, kept_w if needs_x else None)
            for needs_x in (False, True)
            for needs_w in (False, True)
        }
        object.__setattr__(self, "kept", kept)

    def _kept(self, product: Product, quantized: str) -> str:
        """What of an operand backward takes; quantized: what a quantized product takes."""
        way = "plain" if product == "plain" else self.backward
        return {"quantized": quantized, "dequantized": "rows", "plain": "itself"}[way]

    def _check_transforms(self) -> None:
        if self.weight.hadamard is not None:
            raise ValueError(
                f"Recipe: weight.hadamard is {self.weight.hadamard}; expected None, as a transform "
                "belongs to both sides of a product: wgrad's, of input and gradient"
            )
        left, right = self.gradient, self.input
        if self.quantizes_wgrad and (left.hadamard, left.sign_mask) != (
            right.hadamard,
            right.sign_mask,
        ):
            raise ValueError(
                f"Recipe: gradient.hadamard is {left.hadamard} with sign_mask {left.sign_mask}, "
                f"and input.hadamard {right.hadamard} with {right.sign_mask}; expected the same on "
                "both sides of wgrad, where transforms cancel; change both, or pass wgrad='plain'"
            )

    @property
    def quantizes_dgrad(self) -> bool:
        """Whether dX comes of quantized G and W."""
        return self.backward == "quantized" and self.dgrad == "quantized"

    @property
    def quantizes_wgrad(self) -> bool:
        """Whether dW comes of quantized G and X."""
        return self.backward == "quantized" and self.wgrad == "quantized"

    def __str__(self) -> str:
        """Its operands, and what differs from the usual."""
        operands = f"x: {self.input}, w: {self.weight}, g: {self.gradient}"
        others = {f.name: getattr(self, f.name) for f in fields(self) if f.name in _CHOICES}
        said = [
            f"{n}={v}" for n, v in others.items() if v != Recipe.__dataclass_fields__[n].default
        ]
        return ", ".join([operands, *said])

    def with_(self, **changes: Any) -> Self:
        """The same recipe with other fields: recipe.with_(forward="plain")."""
        return _changed(self, changes)


def _same(scheme: SchemeName, **options: Any) -> Recipe:
    operand = Operand(scheme, **options)
    return Recipe(operand, operand, operand)


_MXFP8_FORMATS: dict[str, tuple[SchemeName, SchemeName]] = {
    "e4m3": ("mxfp8_e4m3", "mxfp8_e4m3"),
    "e5m2": ("mxfp8_e5m2", "mxfp8_e5m2"),
    "hybrid": ("mxfp8_e4m3", "mxfp8_e5m2"),
}


def mx(scheme: SchemeName, *, scale_rule: ScaleRule = "rceil", **switches: Any) -> Recipe:
    """A recipe with one MX scheme for all operands: "mxfp6_e2m3", "mxint8", ...

    switches  fields of Recipe, as forward="plain"
    """
    if any_scheme_of("mx", scheme).has_tensor_scale:
        raise ValueError(f"mx: scheme is {scheme!r}; expected an MX scheme; call nvfp4()")
    return _same(scheme, scale_rule=scale_rule).with_(**switches)


def mxfp8(
    format: str = "e4m3",
    *,
    weight_block: Block = None,
    scale_rule: ScaleRule = "rceil",
    **switches: Any,
) -> Recipe:
    """MXFP8 training: the bytes of Transformer Engine's MXFP8BlockScaling and of torchao's recipe.

    format        "e4m3", "e5m2", or "hybrid": gradients in e5m2
    weight_block  "32x32": both directions of a weight see the same values
    switches      fields of Recipe, as wgrad="plain"

    >>> mxfp8("hybrid").gradient.scheme
    'mxfp8_e5m2'
    """
    if not isinstance(format, str) or format not in _MXFP8_FORMATS:
        raise errors.unknown_name("mxfp8", "format", format, _MXFP8_FORMATS)
    scheme, gradient = _MXFP8_FORMATS[format]
    operand = Operand(scheme, scale_rule)
    recipe = Recipe(operand, operand.with_(block=weight_block), operand.with_(scheme=gradient))
    return recipe.with_(**switches)


def nvfp4(
    *,
    hadamard: int | None = 16,
    sign_mask: int | None = None,
    weight_block: Block = "16x16",
    rounding: Rounding = "stochastic",
    four_over_six: bool | BlockError = False,
    **switches: Any,
) -> Recipe:
    """NVFP4 training: Transformer Engine's NVFP4BlockScaling.

    hadamard       size of the transform of the columns of x and of the gradient; None: none
    weight_block   "16x16", or None for blocks of 1x16
    rounding       of the gradient
    four_over_six  of x and the weight
    switches       fields of Recipe

    Models keep their last layers and the LM head in 16 bits: mxkern.torch.all_but_last.
    """
    plain = Operand("nvfp4", four_over_six=four_over_six)
    transformed = {"hadamard": hadamard, "sign_mask": sign_mask}
    gradient = Operand("nvfp4", rounding=rounding, **transformed)  # type: ignore[arg-type]
    recipe = Recipe(plain.with_(**transformed), plain.with_(block=weight_block), gradient)
    return recipe.with_(**switches)


def mxfp4(
    *,
    scale_rule: ScaleRule = "rceil",
    hadamard: int | None = 32,
    sign_mask: int | None = None,
    weight_block: Block = None,
    rounding: Rounding = "stochastic",
    **switches: Any,
) -> Recipe:
    """MXFP4 training: gradients rounded stochastically, a Hadamard transform of wgrad's operands.

    Arguments are those of nvfp4 and mxfp8.
    """
    plain = Operand("mxfp4", scale_rule)
    transformed = plain.with_(hadamard=hadamard, sign_mask=sign_mask)
    gradient = transformed.with_(rounding=rounding)
    return Recipe(transformed, plain.with_(block=weight_block), gradient).with_(**switches)
