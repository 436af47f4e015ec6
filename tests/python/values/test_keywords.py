# tests/python/values/test_keywords.py: one table of keyword arguments, and what types, signatures
# and the extension module say of them.
from __future__ import annotations

import copy
import functools
import inspect
import pickle
import pydoc
import re
from collections.abc import Callable
from typing import Any, get_args, get_overloads, get_type_hints

import pytest

import mxkern
from mxkern import _core
from mxkern.faults.operands import GROUPED_PRECISIONS
from mxkern.values import keywords, names
from mxkern.values.scheme import NAMES
from support import ROOT, assert_same, assert_same_parts, random_values, refused

TABLE = {name: (default, kind) for name, default, kind in keywords._TABLE}
KEYWORDS = {
    mxkern.quantize: keywords.QuantizeKeywords,
    mxkern.quantize_columns: keywords.QuantizeKeywords,
    mxkern.quantize_both: keywords.BothKeywords,
    mxkern.quantize_mxfp8: keywords.MxKeywords,
    mxkern.quantize_mxfp6: keywords.MxKeywords,
    mxkern.quantize_mxfp4: keywords.MxKeywords,
    mxkern.quantize_mxint8: keywords.MxKeywords,
    mxkern.quantize_nvfp4: keywords.NvfpKeywords,
    mxkern.fake_quantize: keywords.FakeKeywords,
}
# What each takes none of.
MISSING = {
    keywords.QuantizeKeywords: {"hadamard_rows", "axis"},
    keywords.BothKeywords: {"axis"},
    keywords.MxKeywords: {"hadamard_rows", "four_over_six", "amax", "tensor_scale", "axis"},
    keywords.NvfpKeywords: {"hadamard_rows", "scale_rule", "axis"},
    keywords.FakeKeywords: {"hadamard_rows", "hadamard", "sign_mask", "scale_layout"},
}
functions = pytest.mark.parametrize("function", KEYWORDS, ids=lambda f: f.__name__)

X = random_values((32, 64), "float32")


def called(function: Any, **options: Any) -> list[Any]:
    """What a function gives for X, as a list."""
    scheme = ("mxfp8",) if "scheme" in inspect.signature(function).parameters else ()
    result = function(X, *scheme, **options)
    return list(result) if isinstance(result, tuple) else [result]


def assert_same_results(got: list[Any], want: list[Any], what: str) -> None:
    for one, other in zip(got, want, strict=True):
        same = assert_same_parts if isinstance(one, mxkern.BlockScaled) else assert_same
        same(one, other, what)


def test_every_function_that_quantizes_is_here() -> None:
    found = {name for name in mxkern.__all__ if re.match("(fake_)?quantize", name)}
    assert found == {function.__name__ for function in KEYWORDS}


@pytest.mark.parametrize("kind", MISSING, ids=lambda kind: kind.__name__)
def test_types_are_those_of_the_table(kind: Any) -> None:
    assert kind.__optional_keys__ == TABLE.keys() - MISSING[kind] and not kind.__required_keys__
    for name, annotation in kind.__annotations__.items():
        assert annotation.__forward_arg__ == TABLE[name][1], name


@functions
def test_signatures_are_those_of_the_table(function: Any) -> None:
    taken = [name for name in TABLE if name in KEYWORDS[function].__optional_keys__]
    parameters = inspect.signature(function).parameters
    assert [name for name in parameters if name in TABLE] == taken
    assert parameters.keys() - TABLE.keys() <= {"x", "scheme", "format"}
    for name in taken:
        found = parameters[name]
        default, annotation = TABLE[name]
        assert found.kind is inspect.Parameter.KEYWORD_ONLY
        assert type(found.default) is type(default) and found.default == default, name
        assert found.annotation == annotation, name


def test_the_extension_module_has_the_same_order() -> None:
    header = (ROOT / "python" / "bindings" / "signature.h").read_text()
    body = re.search(r"enum class Keyword : int \{(.*?)\}", header, re.DOTALL)
    assert body is not None
    assert re.findall(r"\w+", body[1]) == [*keywords.NAMES, "count"]


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (mxkern.gemm, keywords.GemmKeywords),
        (mxkern.grouped_gemm, keywords.GroupedKeywords),
    ],
    ids=["gemm", "grouped_gemm"],
)
def test_products(function: Any, kind: Any) -> None:
    parameters = inspect.signature(function).parameters.values()
    named = {p.name: p.annotation for p in parameters if p.kind is p.KEYWORD_ONLY}
    assert named == {n: each.__forward_arg__ for n, each in kind.__annotations__.items()}


def test_overloads_take_what_their_functions_take() -> None:
    public = [function for function in vars(mxkern).values() if inspect.isfunction(function)]
    found = {function: get_overloads(function) for function in public}
    assert sum(map(len, found.values())) == 14
    for function, overloads in found.items():
        taken = inspect.signature(function).parameters
        for overload in overloads:
            own = [name for name in inspect.signature(overload).parameters if name in taken]
            missing = taken.keys() - own
            if function in (mxkern.gemm, mxkern.grouped_gemm):
                missing -= keywords.GroupedKeywords.__optional_keys__ | {"accumulate"}
            # A BlockScaled is prepared without a scheme and its rule.
            assert missing in (set(), {"scheme", "scale_rule"}), function
            assert own == [name for name in taken if name in own], function


@functions
def test_unknown_keywords(function: Any) -> None:
    others = TABLE.keys() - KEYWORDS[function].__optional_keys__
    for word in [*others, "scale_rules", "self", "keywords"]:
        message = f"{function.__name__}() got an unexpected keyword argument '{word}'"
        refused(TypeError, lambda word=word: called(function, **{word: 1}), message)


def test_wrong_arguments() -> None:
    message = "quantize_mxfp8() got an unexpected keyword argument 'amax'"
    refused(TypeError, lambda: mxkern.quantize_mxfp8(X, amax=1), message)
    refused(TypeError, lambda: mxkern.quantize(X, "mxfp8", "rceil"), "takes 2 positional arguments")
    refused(TypeError, lambda: mxkern.quantize(X), "missing 1 required positional argument")


@pytest.mark.parametrize("name", mxkern.__all__)
def test_annotations_can_be_read(name: str) -> None:
    public = getattr(mxkern, name)
    if inspect.isfunction(public) or inspect.isclass(public):
        get_type_hints(public)


@functions
def test_help(function: Any) -> None:
    text = pydoc.plain(pydoc.render_doc(function)).replace("'", "")  # Python 3.14 has fewer
    assert function.__name__ + "(x: " in text
    for name in KEYWORDS[function].__optional_keys__:
        assert f"{name}: {TABLE[name][1]} = {TABLE[name][0]}" in text, name


@functions
def test_functions_are_plain_functions(function: Any) -> None:
    want = called(function)
    copies: list[Callable[..., Any]] = [
        pickle.loads(pickle.dumps(function)),
        copy.copy(function),
        copy.deepcopy(function),
    ]
    assert all(other is function for other in copies)
    partial = functools.partial(function, stream=None, block=None)
    assert "rounding" in inspect.signature(partial).parameters
    assert_same_results(called(partial), want, "partial")
    again = pickle.loads(pickle.dumps(partial))
    assert_same_results(called(again), want, "pickled")


@functions
def test_defaults_that_are_given(function: Any) -> None:
    want = called(function)
    defaults = {name: TABLE[name][0] for name in KEYWORDS[function].__optional_keys__}
    assert_same_results(called(function, **defaults), want, "all")
    for name, default in defaults.items():
        # Another object of the same value too: an equal str, made here.
        equal = "".join(list(default)) if isinstance(default, str) else default
        got = called(function, **{name: equal})
        assert_same_results(got, want, name)


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        (names.SchemeName, tuple(NAMES)),
        (names.ScaleRule, _core.names()["scale_rule"]),
        (names.Rounding, _core.names()["rounding"]),
        (names.ScaleLayout, _core.names()["scale_layout"]),
        (names.BlockError, _core.names()["block_error"]),
        (names.GemmPrecision, _core.names()["precision"]),
        (names.GroupedPrecision, GROUPED_PRECISIONS),
        (names.PreparedForm, _core.names()["form"]),
        (names.AskedForm, _core.names()["form"][1:]),
        (names.DtypeName, _core.names()["dtype"]),
    ],
)
def test_names_are_those_of_the_library(kind: Any, found: tuple[str, ...]) -> None:
    assert get_args(kind) == found


def test_scheme_names_are_those_of_the_table_and_its_aliases() -> None:
    listed = get_args(names.SchemeName)
    assert listed[: len(mxkern.schemes)] == mxkern.schemes.names
    assert all(name in mxkern.schemes for name in listed)


def test_a_keyword_that_utf8_cannot_hold() -> None:
    x = random_values((1, 32), "float32")
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        mxkern.quantize(x, "mxfp8", **{"\ud800": 1})
