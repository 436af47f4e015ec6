# mxkern/faults/experts.py: the errors of what mixtures of experts take beside operands.
from __future__ import annotations

import math
from typing import NoReturn

from mxkern.values.scheme import Shape


def row_numbers(function: str, argument: str, got: Shape, count: int) -> NoReturn:
    """Of a number for each row; count: -1 where there may be any number of rows."""
    wanted = "(M,), one for each row of the product" if count < 0 else f"{(count,)}"
    alike = math.prod(got) == (max(got, default=1) if count < 0 else count)
    way_out = f"; reshape it with {argument}.reshape(-1)" if alike else ""
    rest = "" if count < 0 else ", one for each row"
    raise ValueError(f"{function}: {argument} has shape {got}; expected {wanted}{rest}{way_out}")


def rows_of_columns(function: str, b: Shape) -> NoReturn:
    raise ValueError(
        f"{function}: rows is given, and b has shape {b}, whose columns belong to groups; expected "
        "[G, N, K]; leave rows out, and quantize_columns the rows in the order of groups"
    )


def no_gates(function: str, argument: str, shape: Shape) -> NoReturn:
    raise ValueError(
        f"{function}: {argument} has shape {shape}; expected an even last axis, half of it gates"
    )


def copies_shape(function: str, y: Shape) -> NoReturn:
    raise ValueError(f"{function}: y has shape {y}; expected [M, N], a row for each copy")


def expert_shapes(function: str, x: Shape, gate_up: Shape, down: Shape) -> NoReturn:
    """[T, H], [E, 2 F, H] and [E, N, F] go together."""
    for argument, shape, count, wanted in (
        ("x", x, 2, "[T, H], a row for each token"),
        ("gate_up", gate_up, 3, "[E, 2 F, H], a matrix for each expert"),
        ("down", down, 3, "[E, N, F], a matrix for each expert"),
    ):
        if len(shape) != count:
            raise ValueError(f"{function}: {argument} has shape {shape}; expected {wanted}")
    if gate_up[2] != x[1]:
        raise ValueError(
            f"{function}: x has shape {x} and gate_up {gate_up}; expected the same last axis: "
            f"{x[1]} and {gate_up[2]}"
        )
    if gate_up[1] % 2:
        raise ValueError(
            f"{function}: gate_up has shape {gate_up}; expected an even number of rows a matrix, "
            "half of them gates"
        )
    raise ValueError(
        f"{function}: gate_up has shape {gate_up} and down {down}; expected "
        f"{(gate_up[0], down[1], gate_up[1] // 2)} for down, with as many experts and half as many "
        "columns as gate_up has rows"
    )
