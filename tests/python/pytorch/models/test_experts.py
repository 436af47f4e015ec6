# tests/python/pytorch/models/test_experts.py: converted experts of other libraries against
# themselves.
from __future__ import annotations

import copy
import importlib
import pickle
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from layer_cases import assert_equal, decibels, gradients, normal  # noqa: E402

import mxkern.torch as mxt  # noqa: E402
from support import mostly_slow  # noqa: E402

TOKENS, HIDDEN, INNER, EXPERTS, TOP = 37, 48, 40, 5, 2
MODULES = {
    "gpt_oss": ("GptOssExperts", "GptOssConfig", {"intermediate_size": INNER}),
    "qwen2_moe": ("Qwen2MoeExperts", "Qwen2MoeConfig", {"num_experts": EXPERTS}),
    "qwen3_moe": ("Qwen3MoeExperts", "Qwen3MoeConfig", {"num_experts": EXPERTS}),
    "mixtral": ("MixtralExperts", "MixtralConfig", {"intermediate_size": INNER}),
    "deepseek_v3": ("DeepseekV3Experts", "DeepseekV3Config", {}),
    "nemotron_h": ("NemotronHExperts", "NemotronHConfig", {"n_routed_experts": EXPERTS}),
    "openai_privacy_filter": (
        "OpenAIPrivacyFilterExperts",
        "OpenAIPrivacyFilterConfig",
        {"intermediate_size": INNER},
    ),
}


def part_of_transformers(model: str, kind: str, config: str, sizes: dict[str, int]) -> Any:
    pytest.importorskip("transformers", minversion="5.0", reason="transformers 5 is not installed")
    package = f"transformers.models.{model}"
    configuration = importlib.import_module(f"{package}.configuration_{model}")
    modeling = importlib.import_module(f"{package}.modeling_{model}")
    made = getattr(configuration, config)(**sizes)
    made._experts_implementation = "eager"
    if not hasattr(modeling, kind):
        pytest.skip(f"transformers has no {kind}")
    return getattr(modeling, kind)(made)


def with_values(module: Any) -> Any:
    for number, parameter in enumerate(module.parameters()):
        with torch.no_grad():
            parameter.copy_(0.3 * normal(*parameter.shape, dtype=torch.float32, seed=number))
    return module


def experts_of(model: str) -> Any:
    kind, config, sizes = MODULES[model]
    sizes = {"hidden_size": HIDDEN, **sizes}
    if "intermediate_size" not in sizes:
        sizes["moe_intermediate_size"] = INNER
    if "num_experts" not in sizes:
        sizes["num_local_experts"] = EXPERTS
    return with_values(part_of_transformers(model, kind, config, sizes))


def routing(dtype: Any = torch.float32) -> tuple[Any, Any, Any]:
    """x, the experts of each token, of which one has none, and their weights."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.rand(TOKENS, EXPERTS, generator=generator)
    scores[:, 3] = -1
    weights, index = scores.topk(TOP)
    x = normal(TOKENS, HIDDEN, dtype=dtype)
    return x, index, weights.to(dtype).detach().requires_grad_()


def results(module: Any, x: Any, index: Any, weights: Any) -> list[Any]:
    y = module(x, index, weights)
    upstream = normal(*y.shape, dtype=y.dtype, seed=9, grad=False)
    return [y.detach(), *gradients(y, (x, weights, *module.parameters()), upstream)]


def assert_close(got: list[Any], wanted: list[Any]) -> None:
    for ours, theirs in zip(got, wanted, strict=True):
        bound = 1e-5 * float(theirs.detach().abs().max())
        torch.testing.assert_close(ours, theirs, rtol=0, atol=bound)


@pytest.mark.parametrize("model", mostly_slow(MODULES, "gpt_oss", "qwen3_moe"))
def test_transformers(model: str) -> None:
    module, inputs = experts_of(model), routing()
    kind, parameters = type(module), dict(module.named_parameters())
    wanted = results(module, *inputs)
    assert mxt.unconverted_experts(module) == ""
    assert mxt.convert_experts(module, None)
    assert isinstance(module, kind) and type(module).__name__ == kind.__name__
    assert all(parameters[name] is p for name, p in module.named_parameters())
    assert_close(results(module, *inputs), wanted)
    plain = mxt.mxfp8(forward="plain", backward="plain")
    assert mxt.convert_experts(module, plain)
    assert_close(results(module, *inputs), wanted)
    for recipe, bar in ((mxt.mxfp8(), 21), (mxt.nvfp4(), 8)):
        assert mxt.convert_experts(module, recipe, seed=1)
        got = results(module, *inputs)
        assert all(decibels(w, g) >= bar for w, g in zip(wanted, got, strict=True))
        assert not torch.equal(got[0], wanted[0])
        assert_equal(results(copy.deepcopy(module), *inputs), got)
        assert_equal(results(pickle.loads(pickle.dumps(module)), *inputs), got)
    with mxt.autocast(enabled=False):
        assert_close(results(module, *inputs), wanted)
    assert mxt.restore_experts(module) is module and type(module) is kind
    assert_equal(results(module, *inputs), wanted)


def test_products_of_gpt_oss() -> None:
    """To the bit what its products give, of weights that lie transposed."""
    module, (x, index, weights) = experts_of("gpt_oss"), routing(torch.bfloat16)
    module.bfloat16()
    recipe = mxt.mxfp8("hybrid")
    mxt.convert_experts(module, recipe)
    y = module(x, router_indices=index, routing_weights=weights)
    total = torch.zeros(TOKENS, TOP, HIDDEN, dtype=torch.bfloat16)
    for expert in range(EXPERTS):
        token, place = torch.where(index == expert)
        first = module.gate_up_proj[expert].t().contiguous(), module.gate_up_proj_bias[expert]
        second = module.down_proj[expert].t().contiguous(), module.down_proj_bias[expert]
        hidden = module._apply_gate(mxt.linear(x[token], *first, recipe))
        total[token, place] = mxt.linear(hidden, *second, recipe) * weights[token, place, None]
    assert torch.equal(y, total.sum(1))


def test_experts_of_other_ranks() -> None:
    reason = "experts of older versions fail on tokens of other ranks"
    pytest.importorskip("transformers", minversion="5.24", reason=reason)
    module, (x, index, weights) = experts_of("qwen3_moe"), routing()
    index = index.clone()
    index[::3, 1] = EXPERTS
    wanted = results(module, x, index, weights)
    mxt.convert_experts(module, None)
    assert_close(results(module, x, index, weights), wanted)
    mxt.convert_experts(module, mxt.mxfp8())
    got = results(module, x, index, weights)
    assert not got[2][::3, 1].any(), "the routing weight of an expert that is not here"


@pytest.mark.parametrize("backend", mostly_slow(["aot_eager", "inductor"]))
def test_compiled(backend: str) -> None:
    torch._dynamo.reset()
    module, inputs = experts_of("gpt_oss"), routing()
    mxt.convert_experts(module, mxt.mxfp8())
    wanted = results(module, *inputs)
    got = results(torch.compile(module, fullgraph=True, backend=backend), *inputs)
    if backend == "inductor":  # the activation in other last places
        assert all(decibels(w, g) >= 40 for w, g in zip(wanted, got, strict=True))
    else:
        assert_equal(got, wanted)


def test_hooks_and_the_step() -> None:
    module, inputs = experts_of("qwen3_moe"), routing()
    seen: list[int] = []
    module.register_forward_hook(lambda *_: seen.append(1))
    step = mxt.Step()
    mxt.convert_experts(module, mxt.mxfp4(), seed=3, step=step)
    first = results(module, *inputs)
    assert_equal(results(module, *inputs), first)
    step.advance()
    assert not torch.equal(results(module, *inputs)[1], first[1])
    assert len(seen) == 3
    assert "recipe=" in repr(module) and module.explained() == str(mxt.mxfp4())


class GroupedExperts(torch.nn.Module):  # type: ignore[misc]
    """With the layout of torchtitan's."""

    def __init__(self, names: tuple[str, str, str] = ("w1", "w2", "w3")) -> None:
        super().__init__()
        self.names = names
        shapes = ((INNER, HIDDEN), (HIDDEN, INNER), (INNER, HIDDEN))
        for name, shape in zip(names, shapes, strict=True):
            setattr(self, name, torch.nn.Parameter(torch.empty(EXPERTS, *shape)))

    def forward(self, x: Any, num_tokens_per_expert: Any) -> Any:
        w1, w2, w3 = (getattr(self, name) for name in self.names)
        held = x[: num_tokens_per_expert.sum()]
        parts = []
        for g, own in enumerate(held.split(num_tokens_per_expert.tolist())):
            hidden = torch.nn.functional.silu(own @ w1[g].t()) * (own @ w3[g].t())
            parts.append(hidden @ w2[g].t())
        return torch.cat([*parts, x.new_zeros(len(x) - len(held), HIDDEN)])


class Mixture(torch.nn.Module):  # type: ignore[misc]
    """A router, experts, and what is none."""

    def __init__(self) -> None:
        super().__init__()
        self.router, self.experts = torch.nn.Linear(HIDDEN, EXPERTS), GroupedExperts()
        others = {"w13": torch.ones(2, 3, 4), "token": torch.ones(9, 1, 4)}
        self.other = torch.nn.ParameterDict(others)
        self.convolution = torch.nn.Conv1d(3, 4, 2)
        self.grouped = mxt.GroupedLinear(2, 8, 4, recipe=mxt.mxfp8())


def test_quantize_a_model() -> None:
    model = Mixture()
    experts, parameters = model.experts, dict(model.named_parameters())
    table = mxt.explain(model)
    assert mxt.quantize_(model, mxt.Training(mxt.nvfp4())) is model
    assert model.experts is experts and model.router.step is experts._mxkern.step
    assert all(parameters[name] is p for name, p in model.named_parameters())
    after = mxt.explain(model)

    def said(table: str) -> dict[str, str]:
        rows = [line.split(maxsplit=1) for line in table.splitlines()[2:]]
        return {name: rest for name, rest in rows}

    assert said(table).keys() == said(after).keys() == {"router", "experts", "other", "grouped"}
    assert said(table)["experts"].startswith("GroupedExperts") and "plain" in said(table)["experts"]
    assert "5x40x48, 5x48x40, 5x40x48" in said(after)["experts"]
    assert str(mxt.nvfp4()) in said(after)["experts"]
    assert "an unknown layout" in said(after)["other"]
    stored = mxt.quantize_(Mixture(), mxt.WeightOnly("mxfp4"))
    assert type(stored.experts) is GroupedExperts, "experts are trained, and not stored"


@pytest.mark.slow
@pytest.mark.parametrize("model", ["gpt_oss", "qwen3_moe"])
def test_a_model_trains(model: str) -> None:
    """A small model of transformers, whose loss falls as that of the original does."""
    kind, config = {
        "gpt_oss": ("GptOssForCausalLM", "GptOssConfig"),
        "qwen3_moe": ("Qwen3MoeForCausalLM", "Qwen3MoeConfig"),
    }[model]
    sizes = {
        "vocab_size": 32,
        "hidden_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "num_experts_per_tok": 2,
        "intermediate_size": 64,
        "moe_intermediate_size": 64,
        "num_local_experts" if model == "gpt_oss" else "num_experts": 4,
    }
    torch.manual_seed(0)
    original = part_of_transformers(model, kind, config, sizes)
    converted = mxt.quantize_(copy.deepcopy(original), mxt.Training(mxt.mxfp8()))
    text = torch.arange(64)[None].repeat(2, 1) ** 2 % 31
    losses: list[list[float]] = [[], []]
    for network, own in zip((original, converted), losses, strict=True):
        optimizer = torch.optim.AdamW(network.parameters(), lr=3e-3)
        for _ in range(20):
            loss = network(input_ids=text, labels=text).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            own.append(float(loss.detach()))
    assert all(own[-1] < 0.5 * own[0] for own in losses), losses
    assert abs(sum(losses[1]) - sum(losses[0])) < 0.03 * sum(losses[0]), losses


class Dispatching(torch.nn.Module):  # type: ignore[misc]
    """Where the module's own forward dispatches tokens."""

    def forward(self, x: Any, scores: Any, indices: Any, shared_experts: Any = None) -> Any:
        order = indices.argsort(stable=True)
        counts = torch.bincount(indices, minlength=EXPERTS)
        out = self._experts_forward(x[order], counts)
        return torch.empty_like(out).index_copy(0, order, out) * scores[:, None]


@pytest.mark.parametrize("names", [("w1", "w2", "w3"), ("w1_EFD", "w2_EDF", "w3_EFD")])
def test_torchtitan(names: tuple[str, str, str]) -> None:
    module = with_values(GroupedExperts(names))
    counts, x = torch.tensor([3, 0, 20, 7, 5]), normal(TOKENS, HIDDEN, dtype=torch.float32)
    upstream = normal(TOKENS, HIDDEN, dtype=torch.float32, seed=9, grad=False)

    def run() -> list[Any]:
        y = module(x, counts)
        return [y.detach(), *gradients(y, (x, *module.parameters()), upstream)]

    wanted = run()
    assert mxt.convert_experts(module, None)
    assert_close(run(), wanted)
    mxt.convert_experts(module, mxt.mxfp8())
    got = run()
    assert all(decibels(w, g) >= 21 for w, g in zip(wanted, got, strict=True))
    assert not got[0][35:].any() and not got[1][35:].any()


def test_torchtitan_dispatching() -> None:
    own = {"forward": Dispatching.forward, "_experts_forward": GroupedExperts.forward}
    kind = type("GroupedExperts", (GroupedExperts,), own)
    module = with_values(kind())
    x, indices = normal(TOKENS, HIDDEN, dtype=torch.float32), torch.arange(TOKENS) % EXPERTS
    scores = torch.linspace(0.5, 1, TOKENS)
    wanted = module(x, scores, indices)
    assert mxt.convert_experts(module, None)
    assert_close([module(x, scores, indices)], [wanted])


def test_left_alone() -> None:
    class Raw(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.w13 = torch.nn.Parameter(torch.ones(2, 3, 4))

    replaced = experts_of("qwen3_moe")
    replaced.forward = replaced.forward
    clamped, more, doubles = GroupedExperts(), GroupedExperts(), GroupedExperts().double()
    clamped.swiglu_limit = 7.0
    more.b1 = torch.nn.Parameter(torch.ones(EXPERTS, INNER))
    cases = {
        "no experts": torch.nn.Linear(3, 4),
        "Raw with w13: an unknown layout": Raw(),
        "its forward was replaced": replaced,
        "GroupedExperts with w1, w2, w3: unknown parameters or options": more,
        "w1 has dtype float64": doubles,
    }
    assert mxt.unconverted_experts(clamped) == mxt.unconverted_experts(more)
    for reason, module in cases.items():
        kind = type(module)
        assert mxt.unconverted_experts(module) == reason
        assert not mxt.convert_experts(module, mxt.mxfp8())
        assert type(module) is kind
    with pytest.raises(TypeError, match=r"convert_experts: recipe is 'mxfp8'; expected a Recipe"):
        mxt.convert_experts(Raw(), "mxfp8")  # type: ignore[arg-type]
