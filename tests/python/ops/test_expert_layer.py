# tests/python/ops/test_expert_layer.py: the layer of a mixture of experts against float64 and
# against the functions that it consists of, and what is refused.
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_gemm import exact
from test_swiglu import GPT_OSS, wanted

import mxkern
from support import (
    DTYPES,
    NUMPY_DTYPES,
    SCHEMES,
    array_of,
    assert_same,
    framework_params,
    random_values,
    raw,
    refused,
)

T, H, F, N, M = 17, 100, 48, 30, 50
ENDS = np.array([0, 9, 9, 40, 46], np.int32)  # experts without copies, and copies of no expert
ALL_OF_ONE = np.array([0, 0, 50, 50, 50], np.int32)
E = len(ENDS)
GENERATOR = np.random.default_rng(1)
ROWS = GENERATOR.integers(0, T - 1, M).astype(np.int32)
WEIGHTS = GENERATOR.standard_normal(M).astype(np.float32)


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def weights(scheme: str) -> tuple[Any, Any]:
    return (
        mxkern.quantize(normal(E, 2 * F, H, seed=2), scheme, scale_layout="swizzled"),
        mxkern.quantize(normal(E, N, F, seed=3), scheme),
    )


def others(dtype: str) -> dict[str, Any]:
    kind = NUMPY_DTYPES[dtype]
    return {
        "gate_up_bias": normal(E, 2 * F, seed=4).astype(kind),
        "down_bias": normal(E, N, seed=5).astype(kind),
        "gate_up_factors": normal(E, seed=6),
        "down_factors": normal(E, seed=7),
    }


def in_float64(x: Any, gate_up: Any, down: Any, ends: Any, **options: Any) -> Any:
    x, gate_up, down = exact(x), exact(gate_up), exact(down)
    activation = {name: options[name] for name in GPT_OSS if name in options}
    out, begin = np.zeros((T, N)), 0
    for e, end in enumerate(ends):
        for i in range(begin, end):
            up = gate_up[e] @ x[ROWS[i]] * options.get("gate_up_factors", np.ones(E))[e]
            up = up + options.get("gate_up_bias", np.zeros((E, 2 * F)))[e].astype(float)
            y = down[e] @ wanted(up, **activation) * options.get("down_factors", np.ones(E))[e]
            y = y + options.get("down_bias", np.zeros((E, N)))[e].astype(float)
            out[ROWS[i]] += WEIGHTS[i] * y
        begin = max(begin, end)
    return out


def composed(
    x: Any, gate_up: Any, down: Any, ends: Any, scheme: Any, dtype: str, **options: Any
) -> Any:
    """By the functions that the docstring names."""
    activation = {name: options[name] for name in GPT_OSS if name in options}

    def product(a: Any, b: Any, name: str, **more: Any) -> Any:
        if scheme is not None and not isinstance(a, mxkern.BlockScaled):
            a = mxkern.quantize(a, scheme)
        bias, factors = options.get(f"{name}_bias"), options.get(f"{name}_factors")
        return mxkern.grouped_gemm(a, b, ends, dtype=dtype, bias=bias, factors=factors, **more)

    up = product(x, gate_up, "gate_up", rows=ROWS)
    y = product(mxkern.swiglu(up, **activation), down, "down")
    used = int(ends[-1])
    return mxkern.combine(y[:used], ROWS[:used], WEIGHTS[:used], T)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_is_what_it_consists_of(scheme: str) -> None:
    gate_up, down = weights(scheme)
    for turn, rows_scheme in enumerate([None, *SCHEMES]):
        dtype = DTYPES[turn % 3]
        x = normal(T, H, seed=8).astype(NUMPY_DTYPES[DTYPES[turn // 2 % 3]])
        options = others(dtype) if turn % 2 else {}
        options |= GPT_OSS if turn % 3 else {}
        ends = ENDS if turn % 4 else ALL_OF_ONE
        got = mxkern.expert_layer(
            x, gate_up, down, ends, ROWS, WEIGHTS, scheme=rows_scheme, dtype=dtype, **options
        )
        want = composed(x, gate_up, down, ends, rows_scheme, dtype, **options)
        assert_same(got, want, f"{scheme}, {rows_scheme}, {dtype}")


@pytest.mark.parametrize("options", [{}, GPT_OSS | others("float32")], ids=["plain", "gpt-oss"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_agrees_with_float64(scheme: str, options: dict[str, Any]) -> None:
    gate_up, down = weights(scheme)
    x = normal(T, H, seed=8)
    for ends in (ENDS, ALL_OF_ONE):
        got = mxkern.expert_layer(x, gate_up, down, ends, ROWS, WEIGHTS, **options)
        want = in_float64(x, gate_up, down, ends, **options)
        assert np.linalg.norm(got - want) <= 1e-5 * np.linalg.norm(want)
        assert not got[T - 1].any()


@pytest.mark.parametrize("scheme", ["mxfp8", "mxfp4", "mxint8"])
def test_scales_that_run_against_each_other(scheme: str) -> None:
    """Blocks that are small in the tokens and large in the weights, over 40 octaves."""
    octaves = np.repeat(np.linspace(-20, 20, 4), 32)[:H]
    x = normal(T, H, seed=8) * np.exp2(octaves).astype(np.float32)
    gate_up = mxkern.quantize(
        normal(E, 2 * F, H, seed=2) * np.exp2(-octaves).astype(np.float32), scheme
    )
    down = weights(scheme)[1]
    got = mxkern.expert_layer(x, gate_up, down, ENDS, ROWS, WEIGHTS)
    want = in_float64(x, gate_up, down, ENDS)
    assert np.linalg.norm(got - want) <= 2e-5 * np.linalg.norm(want)


def test_poisoned_blocks_stay_with_their_expert() -> None:
    gate_up, down = weights("mxfp4")
    down.scales.view(np.uint8)[3, 7, 0] = 255
    got = mxkern.expert_layer(normal(T, H), gate_up, down, ENDS, ROWS, WEIGHTS)
    touched = np.zeros((T, N), bool)
    touched[ROWS[9:40], 7] = True
    assert (np.isnan(got) == touched).all()


@pytest.mark.parametrize("threads", [1, 4])
def test_the_number_of_threads_changes_nothing(threads: int) -> None:
    gate_up, down = weights("mxfp4")
    call = lambda: mxkern.expert_layer(  # noqa: E731
        normal(T, H), gate_up, down, ENDS, ROWS, WEIGHTS, scheme="mxfp8", dtype="bfloat16"
    )
    want, before = call(), mxkern.get_num_threads()
    try:
        mxkern.set_num_threads(threads)
        assert_same(call(), want, "threads")
    finally:
        mxkern.set_num_threads(before)


@pytest.mark.parametrize("framework", framework_params())
def test_frameworks(framework: str) -> None:
    def run(name: str | None) -> Any:
        own = (lambda a: a) if name is None else (lambda a: array_of(name, a))
        gate_up = mxkern.quantize(own(normal(E, 2 * F, H, seed=2)), "mxfp4")
        down = mxkern.prepare_operand(mxkern.quantize(own(normal(E, N, F, seed=3)), "mxfp4"))
        x = own(random_values((T, H), "bfloat16", 1))
        return mxkern.expert_layer(x, gate_up, down, own(ENDS), own(ROWS), own(WEIGHTS))

    assert_same(raw(run(framework)), raw(run(None)), framework)


def test_dtypes_and_out() -> None:
    gate_up, down = weights("mxfp4")
    x = random_values((T, H), "float16", 1)
    operands = (gate_up, down, ENDS, ROWS)
    assert mxkern.expert_layer(x, *operands).dtype == np.float16
    q = mxkern.quantize(x, "mxfp8")
    assert mxkern.expert_layer(q, *operands).dtype == NUMPY_DTYPES["bfloat16"]
    want = mxkern.expert_layer(x, *operands, dtype="bfloat16", scheme="mxfp8")
    assert_same(mxkern.expert_layer(q, *operands, scheme="mxfp8"), want, "quantized ahead")
    out = np.empty((T, 2 * N), np.float32)[:, :N]
    assert mxkern.expert_layer(x, *operands, out=out) is out
    assert_same(out, mxkern.expert_layer(x, *operands, dtype="float32"), "out")


def test_no_copies_and_no_experts() -> None:
    gate_up, down = weights("mxfp4")
    x, none = normal(T, H), np.zeros(E, np.int32)
    assert not mxkern.expert_layer(x, gate_up, down, none, ROWS, WEIGHTS).any()
    assert not mxkern.expert_layer(x, gate_up, down, none, ROWS[:0]).any()
    empty = [q.replace(codes=q.codes[:0], shape=(0, *q.shape[1:])) for q in (gate_up, down)]
    empty = [mxkern.quantize(np.ones((0, *q.shape[1:]), "f4"), "mxfp4") for q in empty]
    assert not mxkern.expert_layer(x, *empty, none[:0], ROWS).any()


GATE_UP, DOWN = weights("mxfp4")
X = normal(T, H)
BAD: list[tuple[dict[str, Any], type[Exception], list[str]]] = [
    ({"ends": ENDS[::-1].copy()}, ValueError, ["ends[1] is 40; expected 46 to 50"]),
    ({"ends": ENDS[:4]}, ValueError, ["ends has shape (4,)", "(5,)"]),
    ({"ends": None}, TypeError, ["ends is None"]),
    ({"rows": ROWS + 10}, ValueError, ["rows[", "expected 0 to 16"]),
    ({"rows": ROWS.astype(np.int64)}, TypeError, ["rows has dtype int64"]),
    ({"rows": ROWS[None]}, ValueError, ["rows has shape (1, 50)", "(M,)"]),
    ({"weights": WEIGHTS[:7]}, ValueError, ["weights has shape (7,)", "(50,)"]),
    ({"x": X[0]}, ValueError, ["x has shape (100,)", "[T, H]"]),
    ({"x": X[:, :96]}, ValueError, ["x has shape (17, 96)", "the same last axis"]),
    ({"gate_up": X}, TypeError, ["gate_up is", "BlockScaled"]),
    ({"down": X}, TypeError, ["down is", "BlockScaled"]),
    ({"down": GATE_UP}, ValueError, ["down (5, 96, 100)", "expected (5, 96, 48) for down"]),
    (
        {"gate_up": mxkern.quantize(normal(E, 7, H), "mxfp4")},
        ValueError,
        ["gate_up has shape (5, 7, 100)", "even number of rows"],
    ),
    ({"gate_up_bias": normal(E, F)}, ValueError, ["gate_up_bias has shape (5, 48)", "(5, 96)"]),
    ({"down_bias": normal(N)}, ValueError, ["down_bias has shape (30,)", "(5, 30)"]),
    ({"down_factors": normal(3)}, ValueError, ["down_factors has shape (3,)", "(5,)"]),
    ({"scheme": "fp8"}, ValueError, ["scheme is 'fp8'"]),
    ({"scale_rule": "floor"}, ValueError, ["scale_rule is 'floor', but scheme is None"]),
    ({"scheme": "mxfp8", "scale_rule": "up"}, ValueError, ["scale_rule is 'up'"]),
    ({"limit": -1}, ValueError, ["limit is -1"]),
    ({"precision": "auto"}, ValueError, ["precision is 'auto'", "exact or folded"]),
    ({"precision": "folded"}, RuntimeError, ["precision is folded, and the CPU's"]),
    ({"dtype": "float64"}, ValueError, ["dtype is 'float64'"]),
    ({"out": np.empty((T, N + 1), "f4")}, ValueError, ["out has shape (17, 31)", "(17, 30)"]),
]


@pytest.mark.parametrize("case", BAD, ids=lambda case: case[2][0])
def test_bad_arguments(case: tuple[dict[str, Any], type[Exception], list[str]]) -> None:
    changes, kind, parts = case
    given: dict[str, Any] = {"x": X, "gate_up": GATE_UP, "down": DOWN, "ends": ENDS}
    given |= {"rows": ROWS, "weights": WEIGHTS} | changes
    refused(kind, lambda: mxkern.expert_layer(**given), "expert_layer: ", *parts)


def test_out_apart_from_inputs() -> None:
    memory = np.zeros((T, N), np.float32)
    weights = memory.reshape(-1)[:M]
    refused(
        ValueError,
        lambda: mxkern.expert_layer(X, GATE_UP, DOWN, ENDS, ROWS, weights, out=memory),
        "expert_layer: out overlaps",
    )
