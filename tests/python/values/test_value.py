# tests/python/values/test_value.py: BlockScaled and PreparedOperand as values: fields that stay,
# identity, copies, pickles, devices, and what a former user of tuples reads.
from __future__ import annotations

import copy
import multiprocessing
import pickle
import re
import weakref
from typing import Any, get_origin

import numpy as np
import pytest
from another_process import decode

import mxkern
from support import (
    SCHEMES,
    array_of,
    assert_same,
    assert_same_parts,
    framework_params,
    random_values,
    raw,
    refused,
)

X = random_values((4, 90), "float32")
Q = mxkern.quantize(X, "nvfp4")
VALUES = [Q, mxkern.prepare_operand(Q)]
kinds = pytest.mark.parametrize("value", VALUES, ids=["BlockScaled", "PreparedOperand"])


@kinds
def test_fields_stay(value: Any) -> None:
    kind = type(value).__name__
    for name in value.__slots__:
        before = getattr(value, name)
        way_out = f"{kind} is immutable; .replace({name}=...) gives another one"
        refused(AttributeError, lambda name=name: setattr(value, name, 1), way_out)
        refused(AttributeError, lambda name=name: delattr(value, name), way_out)
        assert getattr(value, name) is before
    refused(AttributeError, lambda: setattr(value, "other", 1), f"{kind} has no field 'other'")
    assert not hasattr(value, "__dict__")


@kinds
def test_it_is_equal_to_itself_alone(value: Any) -> None:
    same = value.replace()
    assert value == value and same != value and hash(value) == hash(value)
    assert len({value, same, value}) == 2
    assert value  # there is no length that could be 0


@kinds
def test_it_is_no_tuple(value: Any) -> None:
    message = f"{type(value).__name__} is not a tuple; take its fields: .{value.__slots__[0]}, ."
    for call in (lambda: value[0], lambda: value[:2], lambda: [*value]):
        refused(TypeError, call, message)
    refused(TypeError, lambda: len(value), "has no len()")
    assert not isinstance(value, tuple)


@kinds
def test_replace(value: Any) -> None:
    for name in value.__slots__:
        other = value.replace(**{name: "another"})
        assert type(other) is type(value) and getattr(other, name) == "another"
        rest = [each for each in value.__slots__ if each != name]
        assert all(getattr(other, each) is getattr(value, each) for each in rest)
    expected = f"{type(value).__name__}.replace: there is no field 'code'; expected "
    refused(TypeError, lambda: value.replace(code=1), expected, ", shape")
    if hasattr(copy, "replace"):
        assert copy.replace(value, scheme="mxfp4").scheme == "mxfp4"


@kinds
def test_copies_and_references(value: Any) -> None:
    shallow = copy.copy(value)
    assert shallow is not value
    assert all(getattr(shallow, name) is getattr(value, name) for name in value.__slots__)
    deep = copy.deepcopy({"a": value, "b": value})
    assert deep["a"] is deep["b"] and deep["a"] is not value
    assert_same(mxkern.gemm(X, deep["a"]), mxkern.gemm(X, value), "deep copy")
    given = value.replace()
    reference = weakref.ref(given)
    assert reference() is given
    del given
    assert reference() is None


def test_patterns() -> None:
    match Q:
        case mxkern.BlockScaled(codes, scales, scheme="nvfp4"):
            assert codes is Q.codes and scales is Q.scales
        case _:
            pytest.fail("no match")
    assert mxkern.BlockScaled(*Q.parts, *Q.facts).shape == Q.shape


@kinds
@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_pickles(value: Any, protocol: int) -> None:
    same = pickle.loads(pickle.dumps(value, protocol))
    assert type(same) is type(value) and same.shape == value.shape
    assert_same(mxkern.gemm(X, same), mxkern.gemm(X, value), "pickled")


def test_processes() -> None:
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=decode, args=(there,))
    process.start()
    here.send(Q)
    assert here.poll(120)
    same, values = here.recv()
    process.join()
    assert_same_parts(same, Q, "from another process")
    assert_same(values, mxkern.dequantize(Q), "there")


def test_subclasses() -> None:
    class Named(mxkern.BlockScaled):
        name = "w"

    q = Named(*Q.parts, *Q.facts)
    assert isinstance(q, mxkern.BlockScaled) and q.name == "w"
    for same in (q.replace(), q.map(np.copy), copy.copy(q), q.to("cpu")):
        assert type(same) is Named
    assert_same(q.dequantize(), Q.dequantize(), "values")
    refused(AttributeError, lambda: setattr(q, "codes", None), "Named is immutable")
    out = Named(*Q.map(np.zeros_like).parts, *Q.facts)
    assert mxkern.quantize(X, "nvfp4", out=out) is out
    assert_same_parts(out, Q, "out")


@kinds
def test_brackets_are_for_type_checkers(value: Any) -> None:
    kind = type(value)
    assert get_origin(kind[np.ndarray]) is kind
    assert [base.__name__ for base in kind.__mro__] == [kind.__name__, "Value", "object"]
    fields = [getattr(value, name) for name in value.__slots__]
    assert type(kind[np.ndarray](*fields)) is kind

    class Named(kind[np.ndarray]):  # type: ignore[misc]
        pass

    assert type(Named(*fields).replace()) is Named


@pytest.mark.parametrize("framework", framework_params())
@pytest.mark.parametrize("scheme", SCHEMES)
def test_dequantize(scheme: str, framework: str) -> None:
    q = mxkern.quantize(array_of(framework, X), scheme)
    assert_same(raw(q.dequantize()), raw(mxkern.dequantize(q)), scheme)
    assert_same(raw(q.dequantize("bfloat16")), raw(mxkern.dequantize(q, dtype="bfloat16")), scheme)


@pytest.mark.parametrize("framework", framework_params())
def test_devices(framework: str) -> None:
    q = mxkern.quantize(array_of(framework, X), "nvfp4")
    there = q.to(q.device)
    assert there.device == q.device
    assert_same_parts(there, q, framework)
    assert_same_parts(q.to("cpu"), q, framework)
    wrong: list[Any] = [None, np.float32, np.dtype("float32"), q.codes, q.codes.dtype]
    for device in wrong:
        refused(TypeError, lambda d=device: q.to(d), "BlockScaled.to: device is ", "keep their dty")


def test_devices_that_are_not_there() -> None:
    refused(ValueError, lambda: Q.to("cuda"), "BlockScaled.to: device is 'cuda'; expected 'cpu'")
    jax = pytest.importorskip("jax")
    q = mxkern.quantize(jax.numpy.asarray(X), "mxfp8")
    for name in ("nowhere", "cpu:99", "cpu:one"):
        refused(ValueError, lambda name=name: q.to(name), f"device is '{name}'", "jax.devices()")


def test_html() -> None:
    text = Q._repr_html_()
    for part in ("nvfp4", "(4, 90)", "row_major", "uint8 (4, 48)", "float8_e4m3fn (4, 6)", "bytes"):
        assert part in text, text
    assert set(re.findall(r"</?(\w+)>", text)) == {"table", "tr", "th", "td"}
    bad = Q.replace(scheme="<script>alert(1)</script>")._repr_html_()
    assert "<script>" not in bad and "&lt;script&gt;" in bad and bad.startswith("<pre>")
