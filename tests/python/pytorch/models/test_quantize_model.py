# tests/python/pytorch/models/test_quantize_model.py: what quantize_ makes of models, and what it
# leaves.
from __future__ import annotations

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from layer_cases import data, decibels, normal  # noqa: E402
from torch import nn  # noqa: E402

import mxkern.torch as mxt  # noqa: E402

pytestmark = pytest.mark.usefixtures("device")


class Block(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(64, 128), nn.Linear(128, 64, bias=False)

    def forward(self, x: Any) -> Any:
        return x + self.down(nn.functional.gelu(self.up(x)))


class Model(nn.Module):  # type: ignore[misc]
    """A stack of blocks between an embedding and a head."""

    def __init__(self, blocks: int = 4, tied: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(96, 64)
        self.layers = nn.ModuleList([Block() for _ in range(blocks)])
        self.lm_head = nn.Linear(64, 96, bias=False)
        if tied:
            self.lm_head.weight = self.embedding.weight

    def forward(self, tokens: Any) -> Any:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(x)


def tokens() -> Any:
    return torch.arange(48).reshape(3, 16) * 7 % 96


def kinds(model: Any) -> dict[str, str]:
    return {n: type(m).__name__ for n, m in model.named_modules() if isinstance(m, nn.Linear)}


def test_training_keeps_parameters_and_optimizers() -> None:
    model = Model()
    before = dict(model.named_parameters())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    wanted = model(tokens()).detach()
    assert mxt.quantize_(model, mxt.Training(mxt.mxfp8())) is model
    assert set(kinds(model).values()) == {"Linear"} and type(model.lm_head) is mxt.Linear
    after = dict(model.named_parameters())
    assert before.keys() == after.keys()
    assert all(after[name] is parameter for name, parameter in before.items())
    assert list(model.state_dict()) == list(before)
    logits = model(tokens())
    assert 20 < decibels(wanted, logits) < 60
    old = model.lm_head.weight.detach().clone()
    logits.logsumexp(-1).sum().backward()
    assert all(parameter.grad is not None for parameter in before.values())
    optimizer.step()
    assert not torch.equal(old, model.lm_head.weight)
    plain = model.lm_head.to_linear()
    assert type(plain) is nn.Linear and plain.weight is model.lm_head.weight


def test_filters_and_names() -> None:
    model = mxt.quantize_(Model(), mxt.Training(), lambda module, name: name.endswith("up"))
    assert [
        type(m).__module__.startswith("mxkern") for m in (model.layers[0].up, model.layers[0].down)
    ] == [True, False]
    choices = {
        r"re:layers\.0\.": None,
        "lm_head": None,
        "layers.1.*": mxt.Training(mxt.nvfp4()),
        "*": mxt.Training(),
    }
    model = mxt.quantize_(Model(), mxt.by_name(choices))
    assert type(model.layers[0].up) is nn.Linear and type(model.lm_head) is nn.Linear
    assert model.layers[1].down.recipe == mxt.nvfp4()
    assert model.layers[2].up.recipe == mxt.mxfp8()
    with pytest.raises(ValueError, match=r"'layer\.1' fits no layer"):
        mxt.quantize_(Model(), mxt.by_name({"layer.1": None, "*": mxt.Training()}))


@pytest.mark.parametrize(("fraction", "kept"), [(0.15, 3), (0.5, 2), (0, 4), (1, 0)])
def test_all_but_last(fraction: float, kept: int) -> None:
    model = Model()
    fits = mxt.all_but_last(model, fraction)
    names = [n for n, m in model.named_modules() if isinstance(m, nn.Linear) and fits(m, n)]
    assert names == [f"layers.{i}.{part}" for i in range(kept) for part in ("up", "down")]
    with pytest.raises(ValueError, match=r"no torch.nn.ModuleList"):
        mxt.all_but_last(nn.Linear(2, 2))


def test_hooks_stay() -> None:
    model, seen = Model(), []
    handle = model.lm_head.register_forward_hook(lambda m, i, o: seen.append(type(m)))
    mxt.quantize_(model, mxt.Training())
    model(tokens())
    assert seen == [mxt.Linear]
    handle.remove()
    model(tokens())
    assert len(seen) == 1


def test_tied_weights() -> None:
    model = mxt.quantize_(Model(tied=True), mxt.Training())
    assert model.lm_head.weight is model.embedding.weight
    with pytest.raises(ValueError, match=r"'embedding.weight' or 'lm_head.weight' are one"):
        mxt.quantize_(Model(tied=True), mxt.WeightOnly("mxfp8"))
    chosen = mxt.by_name({"lm_head": None, "*": mxt.WeightOnly("mxfp8")})
    model = mxt.quantize_(Model(tied=True), chosen)
    assert model.lm_head.weight is model.embedding.weight


def test_a_module_used_twice() -> None:
    shared = nn.Linear(64, 64)
    model = mxt.quantize_(nn.Sequential(shared, nn.ReLU(), shared), mxt.Training())
    assert model[0] is model[2] and type(model[0]) is mxt.Linear


def test_a_model_that_is_a_layer() -> None:
    layer = nn.Linear(64, 32)
    made = mxt.quantize_(layer, mxt.Training(mxt.nvfp4()))
    assert type(made) is mxt.Linear and made.weight is layer.weight
    made(normal(16, 64, dtype=torch.float32)).sum().backward()


def test_what_is_left_alone_is_listed() -> None:
    class Own(nn.Linear):  # type: ignore[misc]
        pass

    model = nn.ModuleDict(
        {
            "plain": nn.Linear(32, 32),
            "own": Own(32, 32),
            "attention": nn.MultiheadAttention(32, 2),
            "normed": nn.utils.parametrizations.weight_norm(nn.Linear(32, 32)),
        }
    )
    mxt.quantize_(model, mxt.Training())
    lines = {line.split()[0]: line for line in mxt.explain(model).splitlines()[2:]}
    assert "mxfp8_e4m3" in lines["plain"]
    assert "a subclass: Own" in lines["own"]
    assert "MultiheadAttention" in lines["attention.out_proj"]
    assert "a subclass: Parametrized" in lines["normed"]
    assert kinds(model)["own"] == "Own"


def test_refusals() -> None:
    for wrong, text in (
        (mxt.mxfp8(), r"config is .*pass Training\(recipe\)"),
        ("mxfp8", "config is 'mxfp8'; expected Training"),
    ):
        with pytest.raises(TypeError, match=text):
            mxt.quantize_(Model(), wrong)
    with pytest.raises(TypeError, match=r"expected a torch.nn.Module"):
        mxt.quantize_([Model()], mxt.Training())
    with pytest.raises(ValueError, match=r"no layer is converted, of 9 linear layers"):
        mxt.quantize_(Model(), mxt.Training(), lambda module, name: False)
    with pytest.raises(TypeError, match="recipe is 'mxfp8'"):
        mxt.Training("mxfp8")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"nothing to calibrate.*Dynamic"):
        mxt.Static("mxfp8")
    with pytest.raises(ValueError, match="has seen no inputs"):
        mxt.quantize_(Model(), mxt.Static("nvfp4", step="convert"))
    with pytest.raises(TypeError, match=r"Dynamic: a scheme is missing"):
        mxt.Dynamic(input="mxfp8")


def test_meta_and_copies() -> None:
    with torch.device("meta"):
        model = mxt.quantize_(Model(), mxt.Training(mxt.nvfp4()))
    assert {p.device.type for p in model.parameters()} == {"meta"}
    model.to_empty(device=torch.get_default_device())
    model.load_state_dict(Model().state_dict())
    other = mxt.quantize_(Model(), mxt.Training(mxt.nvfp4()))
    assert torch.equal(model(tokens()), other(tokens()))
    assert torch.equal(copy.deepcopy(other)(tokens()), other(tokens()))
    assert "nvfp4" in repr(other) and "stochastic" in repr(other)


def linear_model() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 128)).bfloat16()


INFERENCE = {
    "mxfp8": (mxt.Dynamic("mxfp8"), 25),
    "mxfp4": (mxt.Dynamic("mxfp4"), 12),
    "nvfp4": (mxt.Dynamic("nvfp4"), 15),
    "mxfp8 x mxfp4": (mxt.Dynamic(input="mxfp8", weight="mxfp4"), 15),
    "weights, mxfp4": (mxt.WeightOnly("mxfp4"), 18),
    "weights, mxfp8": (mxt.WeightOnly("mxfp8"), 25),
    "weights, nvfp4": (mxt.WeightOnly("nvfp4"), 18),
}


@pytest.mark.parametrize("name", INFERENCE)
def test_inference(name: str, device: str) -> None:
    """One layer of normal data, as other libraries' bars are for."""
    torch._dynamo.reset()
    config, bar = INFERENCE[name]
    x, w, b, _ = data(128, 256, 512)
    layer = nn.Linear(512, 256, dtype=torch.bfloat16)
    layer.weight, layer.bias = nn.Parameter(w.detach()), nn.Parameter(b.detach())
    wanted = layer(x).detach()
    made = mxt.quantize_(layer, config)
    with torch.no_grad():
        y = made(x)
        assert decibels(wanted, y) >= bar
        compiled = torch.compile(made, fullgraph=True, backend="aot_eager")
        if device == "cpu":
            assert torch.equal(compiled(x), y)
        else:  # eager products read what is prepared, and add in another order
            assert decibels(y, compiled(x)) > 45
    assert made.weight.requires_grad is False and "inputs" in mxt.explain(nn.Sequential(made))


def test_static() -> None:
    model = linear_model()
    batches = [normal(64, 512, seed=i, grad=False) for i in range(3)]
    wanted = model(batches[0]).detach()
    mxt.quantize_(model, mxt.Static("nvfp4", step="prepare"))
    for batch in batches:
        model(batch)
    seen = max(batch.float().abs().max() for batch in batches)
    assert torch.equal(model[0].input_amax, seen)
    mxt.quantize_(model, mxt.Static("nvfp4", step="convert"))
    assert "0.input_amax" in model.state_dict()
    dynamic = mxt.quantize_(linear_model(), mxt.Dynamic("nvfp4"))
    with torch.no_grad():
        y = model(batches[0])
        assert decibels(wanted, y) > 13
        assert abs(decibels(wanted, y) - decibels(wanted, dynamic(batches[0]))) < 2


@pytest.mark.parametrize("recipe", [mxt.mxfp8(), mxt.mxfp4(), mxt.nvfp4()], ids=str)
def test_qat(recipe: Any) -> None:
    model = linear_model()
    x = normal(64, 512, grad=False)
    prepared = mxt.quantize_(model, mxt.QAT(recipe))
    y = prepared(x)
    y.float().square().sum().backward()
    assert prepared[0].weight.grad is not None
    converted = mxt.quantize_(copy.deepcopy(prepared), mxt.QAT(recipe, step="convert"))
    with torch.no_grad():
        assert torch.equal(converted(x), y)
