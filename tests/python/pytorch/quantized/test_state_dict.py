# tests/python/pytorch/quantized/test_state_dict.py: a model with stored weights is written as plain
# tensors, and loaded from them and from the files of other tools.
from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import mxkern  # noqa: E402
from mxkern.torch import Operand, QuantizedTensor, plain_state_dict  # noqa: E402
from mxkern.torch.quantized.state_dict import install  # noqa: E402
from support import SCHEMES, refused  # noqa: E402

pytestmark = pytest.mark.usefixtures("device")

N, K = 48, 96


def plain(*shape: int, seed: int = 0) -> Any:
    values = torch.randn(shape, generator=torch.Generator().manual_seed(seed), device="cpu")
    return values.to(torch.get_default_device(), torch.bfloat16)


class Experts(torch.nn.Module):
    def __init__(self, seed: int) -> None:
        super().__init__()
        self.up = torch.nn.Parameter(plain(3, N, K, seed=seed))


def model(scheme: str, seed: int = 0, *, columns: bool = False, **options: Any) -> Any:
    """A model with an ordinary layer, a stored one, and stored experts."""
    linear = torch.nn.Linear(K, N, dtype=torch.bfloat16)
    layers = torch.nn.Sequential(torch.nn.LayerNorm(4), linear, Experts(seed + 1))
    linear.weight.data, linear.bias.data = plain(N, K, seed=seed), plain(N, seed=seed)
    return stored(layers, scheme, columns=columns, **options)


def stored(layers: Any, scheme: str, **options: Any) -> Any:
    for module, name in ((layers[1], "weight"), (layers[2], "up")):
        w = QuantizedTensor.from_float(getattr(module, name), scheme, **options)
        setattr(module, name, torch.nn.Parameter(w, requires_grad=False))
        assert install(module) is module
        install(module)  # again, without effect
    return layers


def same(got: Any, want: Any) -> None:
    for a, b in zip(got.parameters(), want.parameters(), strict=True):
        assert type(a) is type(b) and a.dtype == b.dtype and a.requires_grad == b.requires_grad
        if isinstance(a, QuantizedTensor):
            assert a.facts == b.facts
            a, b = a.parts, b.parts
        for part, other in zip(a, b, strict=True):
            assert (part is None) == (other is None)
            assert part is None or torch.equal(part, other)


def failed(kind: type[Exception], call: Any, *parts: str) -> None:
    refused(kind, call, "loading state_dict", *parts)


@pytest.mark.parametrize("columns", [False, True], ids=["rows", "columns"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_plain_tensors_out_and_in(scheme: str, columns: bool) -> None:
    layers = model(scheme, columns=columns)
    state = layers.state_dict()
    names = ["codes", "scales"] + ["tensor_scale"] * (scheme == "nvfp4")
    names += [f"column_{name}" for name in names] * columns + ["scheme"]
    wanted = {f"{start}.{name}" for start in ("1.weight", "2.up") for name in names}
    assert set(state) == {"0.weight", "0.bias", "1.bias"} | wanted
    for key, value in state.items():
        assert type(value) is torch.Tensor
        if key in wanted:
            assert value.dtype == (torch.float32 if "tensor_scale" in key else torch.uint8)
    text = bytes(state["2.up.scheme"].tolist())
    facts = {"scheme": scheme, "shape": [3, N, K], "scale_layout": "row_major"}
    assert json.loads(text) == facts and state["2.up.scheme"].device.type == "cpu"

    other = model(scheme, seed=5, columns=columns)
    before = other[1].weight
    addresses = [part.data_ptr() for part in before.parts if part is not None]
    assert str(other.load_state_dict(state)) == "<All keys matched successfully>"
    same(other, layers)
    assert other[1].weight is before  # in place
    assert addresses == [part.data_ptr() for part in other[1].weight.parts if part is not None]

    empty = copy.deepcopy(model(scheme, seed=6, columns=columns)).to("meta")
    empty.load_state_dict(state, assign=True)
    same(empty, layers)
    assert isinstance(empty[1].weight, torch.nn.Parameter)
    empty = copy.deepcopy(layers).to("meta").to_empty(device=before.device)
    empty.load_state_dict(state)
    same(empty, layers)


def test_copies_of_a_module_write_plain_tensors_too() -> None:
    layers = model("mxfp4")
    keys = list(layers.state_dict())
    other = copy.deepcopy(layers)
    assert list(other.state_dict()) == keys
    with torch.no_grad():
        other[1].weight.copy_(plain(N, K, seed=8))
    same(layers, model("mxfp4"))
    assert list(layers.half().state_dict(prefix="a.")) == [f"a.{key}" for key in keys]
    vars_ = layers.state_dict(keep_vars=True)
    assert vars_["1.weight.codes"].data_ptr() == layers[1].weight.codes.data_ptr()


def test_what_does_not_fit_is_refused() -> None:
    layers, state = model("mxfp4"), model("mxfp8").state_dict()
    before = copy.deepcopy(layers)
    for assign in (False, True):
        failed(
            RuntimeError,
            lambda assign=assign: layers.load_state_dict(state, assign=assign),
            "1.weight: the state dict has ('mxfp8_e4m3', (48, 96)); expected ('mxfp4', (48, 96))",
            "2.up: the state dict has ('mxfp8_e4m3', (3, 48, 96))",
        )
    # The same bytes in another scheme.
    near = {"mxfp6_e2m3": "mxfp6_e3m2", "mxfp8_e4m3": "mxfp8_e5m2"}
    for own, other in near.items():
        call = lambda own=own, other=other: model(own).load_state_dict(model(other).state_dict())  # noqa: E731
        failed(RuntimeError, call, own, other, "quantize the module")
    state = model("mxfp4").state_dict()
    for name, text in (
        ("scheme", "1.weight.scheme is missing"),
        ("scales", "1.weight.scales is missing"),
    ):
        part = {key: value for key, value in state.items() if key != f"1.weight.{name}"}
        failed(RuntimeError, lambda part=part: layers.load_state_dict(part), text)
    cut = state | {"1.weight.codes": state["1.weight.codes"][:-1]}
    failed(RuntimeError, lambda: layers.load_state_dict(cut), "codes", "(47, 48)")
    extra = state | {"1.weight.zeros": torch.zeros(1)}
    failed_keys = lambda: layers.load_state_dict(extra)  # noqa: E731
    refused(RuntimeError, failed_keys, "1.weight.zeros", "Unexpected")
    none = {key: value for key, value in state.items() if not key.startswith("1.weight")}
    refused(RuntimeError, lambda: layers.load_state_dict(none), "Missing", '"1.weight"')
    swizzled = model("mxfp4", scale_layout="swizzled")
    failed(
        RuntimeError, lambda: swizzled.load_state_dict(state), "layout", "swizzled", "assign=True"
    )
    same(layers, before)


def test_plain_weights_are_quantized_as_they_are_loaded() -> None:
    weights = {"1.weight": plain(N, K, seed=7), "2.up": plain(3, N, K, seed=8)}
    for columns in (False, True):
        want = model("nvfp4", columns=columns, four_over_six=True)
        state = {k: v for k, v in want.state_dict().items() if k[:4] not in ("1.we", "2.up")}
        with torch.no_grad():
            want[1].weight.copy_(weights["1.weight"])
            want[2].up.copy_(weights["2.up"])
        for meta in (False, True):
            layers = model("nvfp4", seed=3, columns=columns, four_over_six=True)
            if meta:
                layers.to("meta")
            layers.load_state_dict(state | weights, assign=meta)
            same(layers, want)


def test_a_quantized_checkpoint_resumes_in_16_bits() -> None:
    first = model("mxfp8", columns=True)
    state = plain_state_dict(first.state_dict())
    linear = torch.nn.Linear(K, N, dtype=torch.bfloat16)
    layers = torch.nn.Sequential(torch.nn.LayerNorm(4), linear, Experts(0))
    layers.load_state_dict(state)
    assert torch.equal(layers[1].weight, first[1].weight.dequantize())
    assert torch.equal(layers[2].up, first[2].up.dequantize())
    # And back: decoded values of these scales quantize to themselves.
    again = model("mxfp8", seed=9)
    again.load_state_dict(state)
    assert torch.equal(again[1].weight.dequantize(), first[1].weight.dequantize())
    assert "1.weight.codes" in first.state_dict(), "the given one stays"


def test_safetensors(tmp_path: Path) -> None:
    files = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")
    for scheme in ("nvfp4", "mxfp6", "mxint8"):
        layers = model(scheme, columns=True)
        files.save_file(layers.state_dict(), tmp_path / "model.safetensors")
        state = files.load_file(tmp_path / "model.safetensors")
        loaded = model(scheme, seed=4, columns=True).to("meta")
        loaded.load_state_dict(
            {k: v.to(torch.get_default_device()) for k, v in state.items()}, assign=True
        )
        same(loaded, layers)
        other = model(scheme, seed=4, columns=True)
        files.load_model(other, tmp_path / "model.safetensors")
        same(other, layers)


# Names of other tools. What torchao's tensors look like was compared with torchao 0.18.


def torchao(w: Any, scheme: str, *, swizzled: bool) -> dict[str, Any]:
    q = mxkern.quantize(w, scheme, **({"tensor_scale": 1.0} if scheme == "nvfp4" else {}))
    codes, scales = q.codes, q.scales
    if scheme.startswith("mxfp6"):
        codes = mxkern.unpack_codes(codes, scheme, w.shape[-1])
    if swizzled:
        rows, blocks = scales.flatten(0, -2).shape
        flat = mxkern.swizzle_scales(scales.reshape(rows, blocks).view(torch.uint8))
        shape = (*w.shape[:-2], 32 * -(-w.shape[-2] // 128), 16 * -(-blocks // 4))
        scales = flat.view(q.scales.dtype).reshape(shape)
    return {"qdata": codes, "scale": scales}


@pytest.mark.parametrize("swizzled", [False, True], ids=["row_major", "swizzled"])
@pytest.mark.parametrize("scheme", [s for s in SCHEMES if s != "mxint8"])
def test_names_of_torchao(scheme: str, swizzled: bool) -> None:
    for shape in ((N, K), (128, 256), (2, 128, 64)):
        w = plain(*shape, seed=2)
        layer = torch.nn.Module()
        fresh = QuantizedTensor.from_float(plain(*shape), scheme)
        layer.weight = torch.nn.Parameter(fresh, requires_grad=False)
        tensors = torchao(w, scheme, swizzled=swizzled)

        class Held:
            """As a tensor of torchao itself has them."""

            def __init__(self, tensors: Any = tensors, shape: Any = shape) -> None:
                self.__dict__ |= tensors | {"shape": shape}

        options = {"tensor_scale": 1.0} if scheme == "nvfp4" else {}
        want = mxkern.dequantize(mxkern.quantize(w, scheme, **options))
        for state in (
            {f"_weight_{name}": part for name, part in tensors.items()},
            {f"weight.{name}": part for name, part in tensors.items()},
            {"weight": Held()},
        ):
            for assign in (False, True):
                loaded = install(copy.deepcopy(layer))
                if assign:
                    loaded.to("meta")
                loaded.load_state_dict(state, assign=assign)
                assert torch.equal(loaded.weight.dequantize("float32"), want)
        if scheme == "nvfp4":
            state = {f"_weight_{name}": part for name, part in tensors.items()}
            state["_weight_per_tensor_scale"] = torch.tensor(0.25)
            install(layer).load_state_dict(state)
            assert torch.equal(layer.weight.dequantize("float32"), want * 0.25)
        else:
            other = "nvfp4" if scheme != "nvfp4" else "mxfp4"
            wrong = {f"_weight_{n}": p for n, p in torchao(w, other, swizzled=swizzled).items()}
            refused(
                RuntimeError, lambda w=wrong, m=layer: install(m).load_state_dict(w), "weight: "
            )


def compressed(w: Any, scheme: str) -> dict[str, Any]:
    """As the converter writes a weight."""
    q = mxkern.quantize(w, scheme)
    name = "weight" if scheme.startswith("mxfp8") else "weight_packed"
    codes = q.codes if scheme.startswith("mxfp8") else q.codes.view(torch.uint8)
    scales = q.scales if scheme == "nvfp4" else q.scales.view(torch.uint8)
    state = {name: codes, "weight_scale": scales}
    if scheme == "nvfp4":
        state["weight_global_scale"] = 1 / q.tensor_scale.reshape(1)
    return state


@pytest.mark.parametrize("scheme", ["mxfp8_e4m3", "mxfp6_e2m3", "mxfp4", "nvfp4"])
def test_names_of_compressed_tensors_and_modelopt(scheme: str) -> None:
    w = plain(N, K, seed=2)
    q = mxkern.quantize(w, scheme)
    layer = torch.nn.Linear(K, N, bias=False, dtype=torch.bfloat16)
    layer.weight = torch.nn.Parameter(
        QuantizedTensor.from_float(plain(N, K), scheme), requires_grad=False
    )
    install(layer)
    state = compressed(w, scheme)
    layer.load_state_dict(state)
    values = mxkern.dequantize(q)
    if scheme == "nvfp4":  # the file has one over the tensor scale
        torch.testing.assert_close(layer.weight.dequantize("float32"), values, rtol=3e-7, atol=0)
    else:
        assert torch.equal(layer.weight.dequantize("float32"), values)
    codes = state.pop("weight_packed") if "weight_packed" in state else state["weight"]
    modelopt = {"weight": codes, "weight_scale": state["weight_scale"]}
    if scheme == "nvfp4":
        modelopt["weight_scale_2"] = q.tensor_scale
    layer.to("meta").load_state_dict(modelopt, assign=True)
    assert torch.equal(layer.weight.dequantize("float32"), values)


def test_codes_of_other_tools_in_another_scheme() -> None:
    w = plain(N, K)
    for own, file in (
        ("mxfp6_e3m2", "mxfp6_e2m3"),
        ("mxfp8_e5m2", "mxfp8_e4m3"),
        ("mxint8", "mxfp8_e4m3"),
        ("mxfp4", "nvfp4"),
        ("nvfp4", "mxfp4"),
        ("mxfp8_e4m3", "mxfp4"),
    ):
        layer = torch.nn.Linear(K, N, bias=False, dtype=torch.bfloat16)
        layer.weight = torch.nn.Parameter(QuantizedTensor.from_float(w, own), requires_grad=False)
        before = layer.weight.dequantize()
        state = compressed(w, file)
        refused(RuntimeError, lambda: install(layer).load_state_dict(state), "weight")  # noqa: B023
        assert torch.equal(layer.weight.dequantize(), before)
    without = compressed(w, "nvfp4")
    del without["weight_global_scale"]
    layer.weight = torch.nn.Parameter(QuantizedTensor.from_float(w, "nvfp4"), requires_grad=False)
    refused(RuntimeError, lambda: layer.load_state_dict(without), "tensor_scale")
    # 8-bit floats without scales are no weights.
    layer.weight = torch.nn.Parameter(QuantizedTensor.from_float(w, "mxfp8"), requires_grad=False)
    alone = {"weight": mxkern.quantize(w, "mxfp8").codes}
    refused(RuntimeError, lambda: layer.load_state_dict(alone), "float8_e4m3fn")


def test_how_a_plain_weight_is_quantized_is_kept() -> None:
    layers = model("mxfp8", scale_rule="floor")
    empty = copy.deepcopy(layers).to("meta")
    empty.load_state_dict(layers.state_dict(), assign=True)
    assert empty[1].weight.facts.operand == Operand("mxfp8", "floor")


WORKER = Path(__file__).parent / "state_dict_worker.py"


@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_distributed_checkpoint(ranks: int, tmp_path: Path) -> None:
    if not torch.distributed.is_available():
        pytest.skip("this PyTorch has no torch.distributed")
    workers = [
        subprocess.Popen(
            [sys.executable, str(WORKER), str(rank), str(ranks), str(tmp_path)],
            env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},  # gloo is for the CPU
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(ranks)
    ]
    outputs = [worker.communicate(timeout=300)[0] for worker in workers]
    for rank, (worker, output) in enumerate(zip(workers, outputs, strict=True)):
        assert worker.returncode == 0, f"rank {rank}:\n{output}"
        assert output.splitlines()[-1] == "saved and loaded", output
