# tests/python/pytorch/models/test_compare_layers.py: schemes compared on weights and activations.
from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import mxkern  # noqa: E402
import mxkern.torch as mxt  # noqa: E402

ONLY = {"schemes": ["mxfp8", "mxfp4", "nvfp4"], "rules": "rceil"}


def model() -> Any:
    torch.manual_seed(0)
    layers = [torch.nn.Linear(70, 48), torch.nn.ReLU(), torch.nn.Linear(48, 8)]
    return torch.nn.Sequential(*layers)


def assert_close(found: Any, wanted: Any) -> None:
    for got, one in zip(found, wanted, strict=True):
        assert vars(got) == pytest.approx(vars(one))


def test_weights_and_inputs_have_the_figures_of_compare() -> None:
    net, batches = model(), [torch.randn(6, 70), torch.randn(3, 2, 70)]
    plain = [net(batch) for batch in batches]
    with mxt.compare_layers(net, schemes=["mxfp8", "mxfp4"], rules="rceil") as found:
        outputs = [net(batch) for batch in batches]
    assert all(torch.equal(a, b) for a, b in zip(plain, outputs, strict=True))
    assert list(found.weights) == list(found.inputs) == ["0", "2"]
    schemes = ["mxfp8", "mxfp4"]
    for name in ("0", "2"):
        wanted = mxkern.compare(net[int(name)].weight, schemes, "rceil")
        assert found.weights[name] == wanted
    rows = torch.cat([batch.reshape(-1, 70) for batch in batches])
    assert_close(found.inputs["0"], mxkern.compare(rows, schemes, "rceil"))
    assert_close(found.inputs["2"], mxkern.compare(net[:2](rows), schemes, "rceil"))


def test_nothing_stays_in_the_model() -> None:
    net = model()
    with mxt.compare_layers(net, **ONLY) as found:
        net(torch.randn(2, 70))
    before = found.inputs["0"][0].elements
    net(torch.randn(2, 70))
    assert found.inputs["0"][0].elements == before == 140
    with pytest.raises(ZeroDivisionError), mxt.compare_layers(net, **ONLY) as found:
        raise ZeroDivisionError
    net(torch.randn(2, 70))
    assert len(found.inputs) == 0
    assert not any(module._forward_pre_hooks for module in net.modules())


def test_entering_again_adds_inputs() -> None:
    net = model()
    found = mxt.compare_layers(net, **ONLY)
    for _ in range(2):
        with found:
            net(torch.randn(2, 70))
    assert found.inputs["0"][0].elements == 280
    assert found.weights["0"][0].elements == 48 * 70


def test_a_filter_and_a_model_that_is_a_layer() -> None:
    net = model()
    with mxt.compare_layers(net, lambda module, name: name == "2", **ONLY) as found:
        net(torch.randn(2, 70))
    assert list(found.inputs) == list(found.weights) == ["2"]
    with mxt.compare_layers(net[0], **ONLY) as found:
        net[0](input=torch.randn(2, 70))
    assert list(found.inputs) == [""] and found.inputs[""][0].elements == 140


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_dtypes(dtype: Any) -> None:
    net = model().to(dtype)
    with torch.inference_mode(), mxt.compare_layers(net, **ONLY) as found:
        net(torch.randn(2, 70, dtype=dtype))
    assert found.inputs["2"][0].elements == 96 and found.inputs["2"][0].sqnr_db > 25


def test_layers_that_do_not_run_have_weights_alone() -> None:
    net = torch.nn.ModuleDict({"used": torch.nn.Linear(32, 8), "unused": torch.nn.Linear(32, 8)})
    with mxt.compare_layers(net, **ONLY) as found:
        net["used"](torch.zeros(0, 32))  # nothing to measure
        net["used"](torch.randn(4, 32))
    assert list(found.weights) == ["used", "unused"] and list(found.inputs) == ["used"]
    assert found.inputs["used"][0].elements == 128
    names = [one.tensor for one in found.advice(sqnr_db=15)]
    assert names == ["used.weight", "used.input", "unused.weight"]


def test_gradients_flow_as_without_it() -> None:
    net, x = model(), torch.randn(4, 70, requires_grad=True)
    with mxt.compare_layers(net, **ONLY):
        net(x).sum().backward()
    got = x.grad.clone()
    x.grad = None
    net(x).sum().backward()
    assert torch.equal(got, x.grad)


def test_advice_records_and_tables() -> None:
    net = model()
    with mxt.compare_layers(net, **ONLY) as found:
        net(torch.randn(16, 70))
    advice = found.advice(relative_rmse=0.06)
    assert {one.scheme for one in advice} == {"mxfp8_e4m3"} and len(advice) == 4
    assert len(found.records) == 2 * 2 * 3
    first = found.records[0]
    assert (first["layer"], first["operand"], first["scheme"]) == ("0", "weight", "mxfp8_e4m3")
    assert str(found).startswith("weights: 2 tensors") and "\n\ninputs: 2 tensors" in str(found)


def test_the_error_of_a_product_follows_from_those_of_its_operands() -> None:
    """The sentence of the docstring."""
    torch.manual_seed(1)
    layer, x = torch.nn.Linear(512, 256, bias=False), torch.randn(128, 512)
    with torch.no_grad(), mxt.compare_layers(layer, **ONLY) as found:
        exact = layer(x)
        for of_weight, of_input in zip(found.weights[""], found.inputs[""], strict=True):
            name = of_weight.scheme
            rounded = (
                mxkern.fake_quantize(x, name),
                mxkern.fake_quantize(layer.weight.detach(), name),
            )
            error = float((rounded[0] @ rounded[1].T - exact).norm() / exact.norm())
            expected = (of_weight.relative_rmse**2 + of_input.relative_rmse**2) ** 0.5
            assert error == pytest.approx(expected, rel=0.05), name


def test_bad_arguments() -> None:
    with pytest.raises(TypeError, match=r"compare_layers: model is a str|model is 'x'"):
        mxt.compare_layers("x")
    with pytest.raises(ValueError, match=r"compare_layers: the model has no linear layer"):
        mxt.compare_layers(torch.nn.ReLU())
    with pytest.raises(ValueError, match=r"no linear layer to compare"):
        mxt.compare_layers(model(), lambda module, name: False)
    with pytest.raises(ValueError, match=r"compare_layers: scheme is 'mxfp5'"):
        mxt.compare_layers(model(), schemes="mxfp5")
    with pytest.raises(ValueError, match=r"compare_layers: rules is 'flor'"):
        mxt.compare_layers(model(), rules="flor")
