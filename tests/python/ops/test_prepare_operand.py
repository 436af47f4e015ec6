# tests/python/ops/test_prepare_operand.py: prepared operands on the CPU, and what explain_gemm says
# about products here and elsewhere.
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mxkern
from support import SCHEMES, array_of, available, framework_params, random_values, raw, refused

X = random_values((24, 96), "float32", 1)
W = random_values((40, 96), "float32", 2)
FORM_HERE = "source" if mxkern.info().instruction_set == "baseline" else "panels"
FOLDABLE = ("mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e3m2", "mxfp6_e2m3", "mxfp4")


@pytest.mark.parametrize("framework", framework_params())
@pytest.mark.parametrize("scheme", SCHEMES)
def test_gemm_takes_what_was_prepared(scheme: str, framework: str) -> None:
    x, w = array_of(framework, X), array_of(framework, W)
    a, b = mxkern.quantize(x, "mxfp8"), mxkern.quantize(w, scheme)
    want = raw(mxkern.gemm(a, b))
    for form in ("expanded", "few_tokens"):
        ready = mxkern.prepare_operand(b, form=form)
        assert ready.form == "source" and ready.data is None, "these forms are those of GPUs"
        assert ready.source is b and ready.nbytes == b.nbytes
        np.testing.assert_array_equal(raw(mxkern.gemm(a, ready)), want)
    ready = mxkern.prepare_operand(w, scheme, form="expanded")
    np.testing.assert_array_equal(raw(mxkern.gemm(mxkern.prepare_operand(a), ready)), want)
    np.testing.assert_array_equal(
        raw(mxkern.gemm(x, ready, dtype="float16")), raw(mxkern.gemm(x, b, dtype="float16"))
    )
    for form in ("auto", "panels"):
        ready = mxkern.prepare_operand(b, form=form)
        assert ready.form == FORM_HERE and ready.source is b
        assert_close(raw(mxkern.gemm(a, ready)), want)
    for keep_source in (True, False):
        ready = mxkern.prepare_operand(w, scheme, keep_source=keep_source)
        assert (ready.scheme, ready.shape, ready.form) == (scheme, (40, 96), FORM_HERE)
        kept = keep_source or scheme == "nvfp4" or FORM_HERE == "source"
        assert (ready.source is not None) == kept
        assert_close(raw(mxkern.gemm(mxkern.prepare_operand(a), ready)), want)
        assert_close(raw(mxkern.gemm(x, ready)), raw(mxkern.gemm(x, b)))
        assert_close(raw(mxkern.gemm(x[:3], ready)), raw(mxkern.gemm(x[:3], b)))


def assert_close(got: np.ndarray, want: np.ndarray) -> None:
    """Sums of panels are added up in an order of their own."""
    got, want = (np.ascontiguousarray(bytes_of).view(np.float32) for bytes_of in (got, want))
    assert np.linalg.norm(got - want) <= 1e-6 * np.linalg.norm(want)


@pytest.mark.skipif(FORM_HERE == "source", reason="this CPU has no vectors that read panels")
@pytest.mark.parametrize("scheme", SCHEMES)
def test_panels(scheme: str) -> None:
    b = mxkern.quantize(W, scheme)
    ready = mxkern.prepare_operand(b)
    assert ready.data.ctypes.data % 64 == 0, "vectors do not straddle cache lines"
    text = mxkern.explain_gemm(X[:1], ready)
    assert text.right == f"{scheme}, prepared as panels" and "panels" in text.kernel
    assert mxkern.explain_gemm(X[:1], b, form="panels").kernel == text.kernel
    assert mxkern.explain_gemm(X, b, device="sm_90", form="panels").right == (
        mxkern.explain_gemm(X, b, device="sm_90").right
    )
    # What no kernel multiplies from panels is multiplied from what was kept.
    swizzled = mxkern.prepare_operand(mxkern.quantize(W, scheme, scale_layout="swizzled"))
    np.testing.assert_array_equal(raw(swizzled.data), raw(ready.data))
    if scheme != "nvfp4":
        alone = mxkern.prepare_operand(b, keep_source=False)
        refused(RuntimeError, lambda: mxkern.gemm(alone, b), "a was prepared without its codes")
    data = np.empty(ready.data.size + 64, np.uint8)
    for first in (1, 4):  # wherever it lies, but on a multiple of 4
        moved = ready.replace(data=data[first : first + ready.data.size])
        moved.data[...] = ready.data
        call = lambda m=moved: mxkern.gemm(X[:3], m)  # noqa: E731
        if moved.data.ctypes.data % 4 == 0:
            np.testing.assert_array_equal(raw(call()), raw(mxkern.gemm(X[:3], ready)))
        else:
            refused(ValueError, call, "b.data", "aligned")


def test_plain_arrays_are_quantized_as_quantize_does() -> None:
    for rule in ("rceil", "floor", "even"):
        ready = mxkern.prepare_operand(W, "mxfp4", scale_rule=rule)
        want = mxkern.quantize(W, "mxfp4", scale_rule=rule)
        np.testing.assert_array_equal(ready.source.codes, want.codes)
        np.testing.assert_array_equal(raw(ready.source.scales), raw(want.scales))


def test_it_prints_what_it_is() -> None:
    ready = mxkern.prepare_operand(W, "nvfp4", form="expanded")
    assert "PreparedOperand nvfp4, shape (40, 96)" in repr(ready)
    assert "codes and scales alone" in repr(ready)
    both = ready.replace(form="expanded", data=np.zeros(9, "u1"))
    lines = repr(both).splitlines()
    assert lines[-1].endswith("codes and scales") and "elements, 9 bytes" in lines[-2]
    folded = ready.replace(form="folded", data=np.zeros(9, "u1"), source=None)
    assert "FP8 elements" in repr(folded) and folded.nbytes == 9
    for form, products in {
        "folded": "folded",
        "expanded": "exact",
        "few_tokens": "few rows",
        "panels": "on the CPU",
    }.items():
        assert products in repr(folded.replace(form=form)).splitlines()[-1]
    assert ready.source is not None
    assert repr(ready.replace(source=ready.source.parts)).endswith("source is no BlockScaled")  # type: ignore[arg-type]
    with pytest.raises(AttributeError):
        ready.form = "folded"


def test_bad_arguments() -> None:
    call = mxkern.prepare_operand
    q = mxkern.quantize(W, "mxfp8")
    refused(ValueError, lambda: call(q, form="fast"), "form is 'fast'", "few_tokens")
    refused(ValueError, lambda: call(q, "mxfp8"), "quantized already", "leave scheme out")
    refused(TypeError, lambda: call(W), "scheme is None", "BlockScaled")
    refused(TypeError, lambda: call(q, keep_source=1), "keep_source is 1")
    with pytest.raises(TypeError, match=r"x is PreparedOperand.*prepared from$"):  # on one line
        call(call(q))
    with pytest.raises(TypeError, match=r"q is PreparedOperand.*from_parts$"):
        mxkern.dequantize(call(q))
    refused(TypeError, lambda: call(3, "mxfp8"), "prepare_operand: x is 3")
    refused(TypeError, lambda: call(W.astype("i4"), "mxfp8"), "prepare_operand: x has dtype int32")
    q = mxkern.quantize(W, "mxfp8")
    late_rule = lambda: call(q, scale_rule="floor")  # noqa: E731
    refused(ValueError, late_rule, "scale_rule is 'floor', but x is quantized already")
    rules = lambda: call(q, scale_rule=np.array(["rceil"] * 2))  # noqa: E731
    refused(ValueError, rules, "scale_rule is a numpy.ndarray, but x is quantized already")
    for plain_or_quantized in ((q,), (W, "mxfp8")):
        with_stream = lambda x=plain_or_quantized: call(*x, stream="s")  # noqa: E731
        refused(TypeError, with_stream, "prepare_operand: stream is 's'; expected an int")
    call_with_rule = lambda: call(W, "mxfp8", scale_rule="flor")  # noqa: E731
    refused(ValueError, call_with_rule, "prepare_operand: scale_rule is 'flor'", "'floor'")
    refused(ValueError, lambda: call(W, "mxfp9"), "scheme is 'mxfp9'")
    for scheme in ("nvfp4", "mxint8"):
        bad = mxkern.quantize(W, scheme)
        refused(
            ValueError,
            lambda b=bad: call(b, form="folded"),
            "prepare_operand: form is folded",
            "expanded",
        )


def test_prepared_operands_that_do_not_fit() -> None:
    q = mxkern.quantize(W, "mxfp8")
    ready = mxkern.prepare_operand(q, form="expanded")

    def call(**changes: Any) -> Any:
        return lambda: mxkern.gemm(q, ready.replace(**changes))

    refused(ValueError, call(source=None), "has no source")
    refused(ValueError, call(shape=(4, 96)), "expected what prepare_operand returned")
    refused(ValueError, call(scheme="mxfp4"), "expected what prepare_operand returned")
    refused(ValueError, call(form="best"), "b.form is 'best'")
    refused(TypeError, call(shape=(), source=None), "b.shape is (); expected a tuple")
    refused(TypeError, call(shape=[], source=None), "b.shape is a list; expected a tuple")
    refused(ValueError, call(shape=(40, -1), source=None), "b.shape is (40, -1)", "from 0 to 2**48")
    assert (call(shape=list(q.shape))() == mxkern.gemm(q, q)).all()
    refused(TypeError, call(form="folded"), "b.data is None")
    refused(ValueError, call(form="folded", data=np.zeros(8, "u1")), "b.data has shape (8,)")
    refused(TypeError, call(form="folded", data=np.zeros(8, "f4")), "b.data has dtype float32")
    refused(TypeError, lambda: mxkern.gemm(q, (ready.form, ready.data)), "gemm: b is")


def test_folded_is_not_for_the_cpu() -> None:
    q = mxkern.quantize(W, "mxfp8")
    assert mxkern.gemm(q, q, precision="exact").shape == (40, 40)
    refused(RuntimeError, lambda: mxkern.gemm(q, q, precision="folded"), "CPU's products are exact")
    refused(ValueError, lambda: mxkern.gemm(q, q, precision="quick"), "precision is 'quick'")


def test_what_was_moved_here_without_its_source() -> None:
    data = np.zeros(1280, np.uint8)
    ready = mxkern.PreparedOperand("folded", data, None, "mxfp8_e4m3", (5, 64))
    x = np.ones((8, 64), np.float32)
    for call in (mxkern.gemm, mxkern.explain_gemm):
        refused(RuntimeError, lambda c=call: c(x, ready), "gemm: b was prepared without its codes")


class TestExplain:
    a = mxkern.quantize(X, "mxfp8")
    b = mxkern.quantize(W, "mxfp4")

    def test_here(self) -> None:
        text = mxkern.explain_gemm(self.a, self.b)
        assert text.device == "cpu" and text.path == "exact" and text.workspace_bytes > 0
        assert "gemm on cpu: exact" in str(text) and "tiles of" in repr(text)

    def test_what_is_added_to_takes_another_way(self) -> None:
        a = mxkern.quantize(np.ones((16, 4096), np.float32), "mxfp8")
        b = mxkern.quantize(np.ones((8192, 4096), np.float32), "mxfp8")

        def explained(**more: float) -> mxkern.GemmExplanation:
            return mxkern.explain_gemm(
                a, b, dtype="bfloat16", precision="exact", device="sm_90", **more
            )

        assert "decoded" in explained().right and explained(beta=0.0) == explained()
        added = explained(beta=0.5)
        assert "expanded" in added.right
        assert added.workspace_bytes > 8192 * 4096 * 2 > explained().workspace_bytes
        with pytest.raises(TypeError, match="explain_gemm: beta is"):
            mxkern.explain_gemm(a, b, beta="1")  # type: ignore[arg-type]

    @pytest.mark.parametrize("framework", framework_params("torch"))
    def test_tensors_that_require_grad(self, framework: str) -> None:
        """A record has no derivative to lose."""
        x = array_of(framework, X)
        b = mxkern.quantize(x, "mxfp8")
        want = mxkern.explain_gemm(x, b, device="sm_90")
        assert mxkern.explain_gemm(x.requires_grad_(), b, device="sm_90") == want

    @pytest.mark.parametrize("scheme", SCHEMES)
    def test_on_hopper(self, scheme: str) -> None:
        b = mxkern.quantize(W, scheme)
        for dtype in ("bfloat16", "float16", "float32"):
            text = mxkern.explain_gemm(self.a, b, dtype=dtype, device="sm_90")
            folds = scheme in FOLDABLE and dtype != "float32"
            assert text.path == ("folded or exact" if folds else "exact")
            assert "wgmma" in text.kernel and "clusters" in text.kernel
            exact = mxkern.explain_gemm(self.a, b, dtype=dtype, device="sm_90", precision="exact")
            assert exact.path == "exact" and exact.workspace_bytes >= 2 * (24 + 40) * 96
        assert mxkern.explain_gemm(self.a, b, device="cpu").device == "cpu"
        for device in ("sm_80", "sm_86", "sm_89", "sm_100", "sm_103", "sm_120", "sm_121"):
            text = mxkern.explain_gemm(self.a, b, device=device)
            # K = 96 is a multiple of what is copied at a time for 8 bits on both sides.
            is_pair = scheme.startswith("mxfp8") and device in ("sm_100", "sm_120")
            assert text.path == ("blackwell" if is_pair else "portable"), device
            assert text.device == device
        few = mxkern.explain_gemm(X.astype(np.float16), b, device="sm_90")
        assert few.path == "exact" and "2e-5" in few.error, "b was not reordered ahead"

    @pytest.mark.parametrize("scheme", SCHEMES)
    def test_as_though_prepared(self, scheme: str) -> None:
        b = mxkern.quantize(np.ones((4096, 4096), np.float32), scheme)
        for tokens, kernel in ((1, "mma.sync"), (16, "mma.sync"), (64, "wgmma")):
            x = np.ones((tokens, 4096), np.float16)
            text = mxkern.explain_gemm(x, b, device="sm_90", form="few_tokens")
            assert text.path == "few tokens" and text.right == f"{scheme}, prepared as few_tokens"
            assert text.kernel.startswith(kernel) and text.workspace_bytes == 0
        x = mxkern.quantize(np.ones((4096, 4096), np.float32), "mxfp8")
        as_it_is = mxkern.explain_gemm(x, b, device="sm_90", precision="exact")
        text = mxkern.explain_gemm(x, b, device="sm_90", precision="exact", form="expanded")
        assert text.right == f"{scheme}, prepared as expanded"
        assert as_it_is.workspace_bytes - text.workspace_bytes >= 2 * 4096**2
        if scheme in FOLDABLE:
            text = mxkern.explain_gemm(
                x, b, dtype="bfloat16", device="sm_90", precision="folded", form="folded"
            )
            assert text.path == "folded" and text.right == f"{scheme}, prepared as folded"
        # What to do is said where that would help: not for many rows, and not for float32.
        hint = "weights prepared as few_tokens would be read once"
        x16 = np.ones((16, 4096), np.float16)
        for device, helps in (("sm_90", True), ("sm_100", True), ("sm_80", False)):
            assert (hint in mxkern.explain_gemm(x16, b, device=device).reason) == helps, device
        many = np.ones((4096, 4096), np.float16)
        for rows in (many, x16.astype(np.float32)):
            assert hint not in mxkern.explain_gemm(rows, b, device="sm_90").reason
        # Where products do not read the form, it is what prepare_operand leaves: codes and scales.
        text = mxkern.explain_gemm(x, b, device="sm_80", form="few_tokens")
        assert text == mxkern.explain_gemm(x, b, device="sm_80")
        for device in ("cpu", None):
            refused(
                ValueError,
                lambda d=device: mxkern.explain_gemm(x, b, device=d, form="few_tokens"),
                "explain_gemm: form is 'few_tokens' and the device is the CPU",
                "device='sm_90'",
            )

    def test_names_of_devices(self) -> None:
        call = mxkern.explain_gemm
        for name in ("sm_90", "sm_100", "sm_120"):
            for suffix in "af":
                assert call(self.a, self.b, device=name + suffix) == call(
                    self.a, self.b, device=name
                )
        for name in ("cuda", "cuda:0"):
            parts = (f"explain_gemm: device is {name!r}, and b is on the CPU", "device='sm_90'")
            refused(ValueError, lambda d=name: call(self.a, self.b, device=d), *parts)
        for device in (0, b"cuda", ""):
            wrong = lambda d=device: call(self.a, self.b, device=d)  # noqa: E731
            refused(TypeError, wrong, "explain_gemm: device is", "'cuda:0'", "as 'sm_90'")
        for name in ("sm_90b", "asm_90a", "sm_75a", "cuda0"):
            refused(
                ValueError, lambda d=name: call(self.a, self.b, device=d), "expected cpu, sm_80"
            )

    def test_refuses_forms(self) -> None:
        call = mxkern.explain_gemm
        nvfp4 = mxkern.quantize(W, "nvfp4")
        folded = {"device": "sm_90", "form": "folded"}
        refused(
            ValueError,
            lambda: call(self.a, nvfp4, **folded),
            "explain_gemm: form is folded",
            "nvfp4",
        )
        refused(ValueError, lambda: call(self.a, self.b, form="source"), "explain_gemm: form is")
        refused(TypeError, lambda: call(self.a, self.b, form=1), "explain_gemm: form is 1")
        data = np.zeros(1280, np.uint8)
        ready = mxkern.PreparedOperand("folded", data, None, "mxfp8_e4m3", (5, 64))
        x = np.ones((8, 64), np.float32)
        refused(ValueError, lambda: call(x, ready, **folded), "form is given, but b is prepared")

    def test_refuses_what_gemm_would(self) -> None:
        call = mxkern.explain_gemm
        nvfp4 = mxkern.quantize(W, "nvfp4")
        refused(ValueError, lambda: call(self.a, self.b, device="sm_75"), "device is 'sm_75'")
        refused(TypeError, lambda: call(self.a, self.b, device=90), "device is 90")
        refused(ValueError, lambda: call(self.a, self.b, dtype="f"), "explain_gemm: dtype is 'f'")
        folded = {"precision": "folded"}
        refused(
            ValueError,
            lambda: call(self.a, nvfp4, device="sm_90", **folded),
            "explain_gemm: precision is folded, but b is nvfp4",
        )
        refused(
            RuntimeError,
            lambda: call(self.a, self.b, device="sm_89", **folded),
            "explain_gemm: ",
            "FP8 tensor cores of Hopper",
            "8.9",
        )
        other = mxkern.quantize(np.ones((4, 64), "f"), "mxfp8")
        refused(ValueError, lambda: call(self.a, other), "same last axis")


@pytest.mark.parametrize("framework", framework_params("numpy", "torch"))
@pytest.mark.parametrize("scheme", ["mxfp8_e4m3", "mxfp6_e2m3", "nvfp4"])
def test_refreshed_in_place(scheme: str, framework: str) -> None:
    """Of a plain array and of what is quantized: the same arrays, the new values."""
    old, new = (array_of(framework, random_values((5, 40), "float32", seed)) for seed in (1, 2))
    for layout in ("row_major", "swizzled"):
        options: Any = {"scale_layout": layout}
        want = mxkern.quantize(new, scheme, **options)
        for x in ((want,), (new, scheme)):
            ready = mxkern.prepare_operand(mxkern.quantize(old, scheme, **options))
            assert ready.source is not None
            parts = ready.source.parts
            assert mxkern.prepare_operand(*x, out=ready) is ready
            assert all(a is b for a, b in zip(ready.source.parts, parts, strict=True))
            for got, part in zip(parts, want.parts, strict=True):
                assert part is None or np.array_equal(raw(got), raw(part))
        # What it keeps is what it is prepared from, as a quantizer with out= leaves it.
        mxkern.quantize(old, scheme, out=ready.source, **options)
        assert mxkern.prepare_operand(ready.source, out=ready) is ready
        assert np.array_equal(
            raw(ready.source.codes), raw(mxkern.quantize(old, scheme, **options).codes)
        )


def test_the_rule_of_what_is_refreshed() -> None:
    ready = mxkern.prepare_operand(W, "mxfp8")
    assert mxkern.prepare_operand(W, "mxfp8", scale_rule="floor", out=ready) is ready
    assert ready.source is not None
    want = mxkern.quantize(W, "mxfp8", scale_rule="floor")
    assert np.array_equal(raw(ready.source.codes), raw(want.codes))


@pytest.mark.skipif(not available("torch"), reason="torch is not installed")
def test_pytorch_hears_of_it() -> None:
    import torch

    ready = mxkern.prepare_operand(torch.ones(4, 32), "nvfp4")
    assert ready.source is not None
    versions = [part._version for part in ready.source.parts]
    mxkern.prepare_operand(mxkern.quantize(torch.zeros(4, 32), "nvfp4"), out=ready)
    assert all(a._version > b for a, b in zip(ready.source.parts, versions, strict=True))


def test_what_is_not_refreshed() -> None:
    call, q = mxkern.prepare_operand, mxkern.quantize(W, "mxfp8")
    ready = call(q)
    other = mxkern.quantize(W, "mxfp4")
    refused(TypeError, lambda: call(q, out=q), "out is BlockScaled", "a PreparedOperand")
    refused(ValueError, lambda: call(other, out=ready), "out is mxfp8_e4m3", "and x mxfp4")
    refused(ValueError, lambda: call(W, "mxfp4", out=ready), "out is mxfp8_e4m3", "and x mxfp4")
    refused(ValueError, lambda: call(W[:4], "mxfp8", out=ready), "expected the same scheme and sh")
    alone = call(q, form="folded")
    for form in ("folded", "few_tokens"):  # which the CPU prepares as the source
        assert call(q, form=form, out=alone) is alone
    swizzled = mxkern.quantize(W, "mxfp8", scale_layout="swizzled")
    refused(ValueError, lambda: call(swizzled, out=ready), "x.scale_layout is 'swizzled'")
    frozen = q.map(np.copy)
    frozen.codes.flags.writeable = False
    refused(ValueError, lambda: call(q, out=call(frozen)), "out.source.codes is read-only")
    empty = alone.replace(source=None)
    refused(ValueError, lambda: call(q, out=empty), "out has no source")
    bytes_elsewhere = ready.replace(form="expanded", data=np.zeros(4096, np.uint8))
    refused(ValueError, lambda: call(q, out=bytes_elsewhere), "out.form is 'expanded'", "'source'")
    if available("jax"):
        jax = call(array_of("jax", W), "mxfp8")
        refused(TypeError, lambda: call(array_of("jax", W), "mxfp8", out=jax), "cannot be written")
    if available("torch"):
        mixed = array_of("torch", W)
        refused(TypeError, lambda: call(mixed, "mxfp8", out=ready), "prepare_operand: out")
