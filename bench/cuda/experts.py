# bench/cuda/experts.py: whole layers of experts with MXFP4 weights, and their products, beside
# Humming 0.1.19 where it is installed: the same codes, scales and routings;
# python -m bench.cuda.experts [FILE [TOKENS... WORDS...]] writes the records, of all ways or of
# those whose names have one of the words in them.
from __future__ import annotations

import importlib
import importlib.metadata
import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch

import mxkern
from bench import machine
from bench.cuda.grouped import ROUTINGS
from bench.cuda.rivals import find
from bench.cuda.timing import SETTLE_SECONDS, copy_bytes_per_second, median_seconds


class Model(NamedTuple):
    """Experts, how many a token has, columns of tokens, and columns between the products."""

    experts: int
    chosen: int
    hidden: int
    between: int


MODELS = {
    "gpt-oss-120b": Model(128, 4, 2880, 2880),
    "DeepSeek-V4-Flash": Model(256, 6, 4096, 2048),
}
TOKENS = (1, 8, 64, 256, 1024, 4096, 8192)
# The goal of a layer by numbers of tokens: its time over that of Humming with quantized rows.
GOALS = {1: None, 8: {"gpt-oss-120b": 0.95, "DeepSeek-V4-Flash": 1.0}, 64: 1.0}
USUAL_GOAL = 0.95
SECONDS_OF_ONE_TOKEN = {"gpt-oss-120b": 28e-6, "DeepSeek-V4-Flash": 36e-6}
EXACT, FOLDED, WIDE = "exact", "folded, weights of 4 bits", "folded, weights of 8 bits"
WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    EXACT: ("few_tokens", {}),
    FOLDED: ("few_tokens", {"scheme": "mxfp8", "precision": "folded"}),
    WIDE: ("folded", {"scheme": "mxfp8", "precision": "folded"}),
}
Call = Callable[[], Any]


class Routing(NamedTuple):
    """Where the copies of tokens go: those for an expert lie next to one another."""

    ids: torch.Tensor  # [T, chosen], experts of a token
    weights: torch.Tensor  # of the sorted copies
    rows: torch.Tensor  # the token of a sorted copy
    ends: torch.Tensor
    active: int


def goal_of(model: str, tokens: int) -> float | None:
    """Of Humming's time with quantized rows."""
    goal = GOALS.get(tokens, USUAL_GOAL)
    return goal.get(model) if isinstance(goal, dict) else goal


def routing_of(model: Model, tokens: int, turn: int, generator: torch.Generator) -> Routing:
    """One in which some experts are liked more than others. Few tokens go to experts that have had
    none for a while, so that their weights are not in the cache."""
    copies = tokens * model.chosen
    if copies <= model.experts // 2:
        order = torch.randperm(model.experts, generator=torch.Generator().manual_seed(0))
        ids = order.roll(-turn * copies)[:copies].view(tokens, model.chosen).cuda()
    else:
        liking = 0.5 * torch.randn(model.experts, device="cuda", generator=generator)
        noise = torch.rand(tokens, model.experts, device="cuda", generator=generator)
        ids = (liking - torch.log(-torch.log(noise))).topk(model.chosen, dim=1).indices
    weights = torch.softmax(
        torch.randn(tokens, model.chosen, device="cuda", generator=generator), -1
    )
    order = torch.argsort(ids.flatten(), stable=True)
    counts = torch.bincount(ids.flatten(), minlength=model.experts)
    return Routing(
        ids.int().contiguous(),
        weights.flatten()[order].contiguous(),
        (order // model.chosen).int(),
        counts.cumsum(0).int(),
        int((counts > 0).sum()),
    )


def run(numbers: Sequence[int] = TOKENS, words: Sequence[str] = ("",)) -> Iterator[dict[str, Any]]:
    """One record a model, number of tokens and way that has one of the words in its name."""
    speed = copy_bytes_per_second()
    for name, model in MODELS.items():
        torch.cuda.empty_cache()
        generator = torch.Generator("cuda").manual_seed(1)
        quantized = []
        for n, k in ((2 * model.between, model.hidden), (model.hidden, model.between)):
            w = torch.randn(
                model.experts, n, k, device="cuda", dtype=torch.bfloat16, generator=generator
            )
            quantized.append(mxkern.quantize(w.mul_(k**-0.5), "mxfp4"))
            del w
        makers: dict[str, Callable[..., Callable[[Routing, torch.Tensor], Call]]] = {}
        for way, (form, options) in WAYS.items():
            if not _is_wanted(way, words):
                continue
            ready = [mxkern.prepare_operand(q, form=form, keep_source=False) for q in quantized]
            makers[way] = partial(_own_layer, ready, options)
        try:
            makers |= _humming(model, quantized, words)
        except ImportError as error:
            yield {"rival": "Humming", "failed": f"{type(error).__name__}: {error}"}
        for tokens in numbers:
            yield from _measure(name, model, quantized, makers, tokens, speed, generator)


def _is_wanted(way: str, words: Sequence[str]) -> bool:
    return any(word in way for word in words)


def _own_layer(
    ready: list[Any], options: dict[str, Any], x: torch.Tensor
) -> Callable[[Routing, torch.Tensor], Call]:
    def layer(routing: Routing, out: torch.Tensor) -> Call:
        return lambda: mxkern.expert_layer(
            x, *ready, routing.ends, routing.rows, routing.weights, out=out, **options
        )

    return layer


def _measure(
    name: str,
    model: Model,
    quantized: list[Any],
    makers: dict[str, Any],
    tokens: int,
    speed: float,
    generator: torch.Generator,
) -> Iterator[dict[str, Any]]:
    x = torch.randn(tokens, model.hidden, device="cuda", dtype=torch.bfloat16, generator=generator)
    out = torch.empty_like(x)
    turns = ROUTINGS if tokens < 1024 else ROUTINGS // 2
    routings = [routing_of(model, tokens, turn, generator) for turn in range(turns)]
    active = sum(one.active for one in routings) / turns
    read = sum(q.nbytes for q in quantized) / model.experts * active
    wanted = _wanted(model, quantized, x, routings[0])
    for way, make in makers.items():
        layer = make(x)
        out.fill_(math.nan)
        layer(routings[0], out)()
        error = ((out[: len(wanted)].double() - wanted).norm() / wanted.norm()).item()
        # Quantizing the rows of a product to MXFP8 costs an error of 2.6e-2, and a layer has two
        # products; rounding to bfloat16 between them costs 2e-3.
        assert error <= (6e-3 if way == EXACT else 6e-2), f"{name}, {way}, {tokens}: {error:.1e}"
        seconds = median_seconds([layer(one, out) for one in routings], SETTLE_SECONDS)
        yield {
            "model": name,
            "tokens": tokens,
            "way": way,
            "seconds": seconds,
            "error": error,
            "experts_with_tokens": active,
            "floor_share": read / speed / seconds,
            "goal_of_humming": goal_of(name, tokens),
            "goal_seconds": SECONDS_OF_ONE_TOKEN[name] if tokens == 1 else None,
        }


def _wanted(
    model: Model, quantized: list[Any], x: torch.Tensor, routing: Routing, tokens: int = 2
) -> torch.Tensor:
    """The first outputs in double precision."""
    results = []
    for token in range(min(tokens, len(x))):
        total = torch.zeros(model.hidden, dtype=torch.float64, device="cuda")
        for copy in (routing.rows == token).nonzero().flatten().tolist():
            expert = int(
                torch.bucketize(torch.tensor(copy, device="cuda"), routing.ends, right=True)
            )
            up, down = (mxkern.dequantize(_matrix(q, expert)).double() for q in quantized)
            gate, linear = (up @ x[token].double()).chunk(2)
            total += routing.weights[copy].double() * (
                down @ (torch.nn.functional.silu(gate) * linear)
            )
        results.append(total)
    return torch.stack(results)


def _matrix(q: Any, expert: int) -> Any:
    return q.replace(codes=q.codes[expert], scales=q.scales[expert], shape=q.shape[1:])


def _humming(model: Model, quantized: list[Any], words: Sequence[str]) -> dict[str, Any]:
    """Humming's layers of rows in 16 bits and of quantized ones, which it compiles at run time."""
    find()
    layers = importlib.import_module("humming.layer")
    name = f"Humming {importlib.metadata.version('humming-kernels')}"
    makers = {}
    for way, rows in (("16-bit rows", None), ("quantized rows", {"dtype": "float8e4m3"})):
        if not _is_wanted(f"{name}, {way}", words):
            continue
        made = []
        for q in quantized:
            experts, n, k = q.shape
            with torch.device("cuda"):
                layer = layers.HummingLayer(
                    shape_n=n,
                    shape_k=k,
                    weight_config={"quant_method": "mxfp4"},
                    input_config=rows,
                    num_experts=experts,
                    pad_n_to_multiple=256,
                    pad_k_to_multiple=128,
                    torch_dtype=torch.bfloat16,
                )
            layer.load_from_tensors({"weight": q.codes, "weight_scale": q.scales.view(torch.uint8)})
            layer.transform()
            made.append(layer)
        makers[f"{name}, {way}"] = partial(_humming_layer, model, made)
    return makers


def _humming_layer(
    model: Model, layers: list[Any], x: torch.Tensor
) -> Callable[[Routing, torch.Tensor], Call]:
    tune = importlib.import_module("humming.tune")
    forward = importlib.import_module("humming.forward")
    copies = len(x) * model.chosen
    choices = []
    for layer in layers:
        found = tune.get_heuristics_config(layer.humming_config, gemm_type="indexed")
        fitting = [list(one) for one in found if one[0] < copies <= one[1]][:1]
        fitting[0][0], fitting[0][1] = 0, 1 << 30  # it also looks up the number of tokens
        choices.append(fitting)
    silu = {
        "activation_type": "binary_split",
        "activation_impl": "(a / (1.f + expf(-a))) * b",
    }
    up = torch.empty(copies, 2 * model.between, device="cuda", dtype=torch.bfloat16)
    down = torch.empty(copies, model.hidden, device="cuda", dtype=torch.bfloat16)

    def layer(routing: Routing, out: torch.Tensor) -> Call:
        options = []
        for i, choice in enumerate(choices):
            sorted_ids, experts, padded = _in_blocks(model, routing, choice[0][2]["block_shape"][0])
            options.append(
                {
                    "compute_config": json.dumps({"gemm_type": "indexed"}),
                    "tuning_config": json.dumps(choice),
                    "valid_shape_m": copies,
                    "sorted_ids": sorted_ids,
                    "expert_ids": experts,
                    "num_tokens_padded": padded,
                    "top_k": model.chosen if i == 0 else 1,
                }
            )
        # Its results are in the order of tokens: each copy's place there is its own number.
        order = torch.argsort(routing.ids.flatten(), stable=True)
        places, weights = (order // model.chosen).int(), torch.empty_like(routing.weights)
        weights[order] = routing.weights
        own = torch.arange(copies, device="cuda").int() // model.chosen
        assert places.equal(routing.rows)

        def call() -> Any:
            layers[0](x, outputs=up, **options[0])
            hidden, group_scales, scales = forward.may_process_input(
                layers[1].humming_config, inputs=up, **silu
            )
            scale = group_scales if group_scales is not None else scales
            layers[1](hidden, outputs=down, input_scale=scale, **options[1])
            return mxkern.combine(down, own, weights, len(x), out=out)

        return call

    return layer


def _in_blocks(
    model: Model, routing: Routing, size: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The copies by experts, each expert's padded to whole blocks; the experts of the blocks; and
    how many copies that are, as vLLM lays them out."""
    flat = routing.ids.flatten().long()
    copies = len(flat)
    counts = torch.bincount(flat, minlength=model.experts)
    blocks = (counts + size - 1) // size
    first = blocks.cumsum(0) * size - blocks * size
    room = copies + model.experts * (size - 1)
    if copies < model.experts:
        room = min(copies * size, room)
    ids = torch.full((room,), copies, dtype=torch.int32, device="cuda")
    order = torch.argsort(flat, stable=True)
    within = torch.arange(copies, device="cuda") - (counts.cumsum(0) - counts)[flat[order]]
    ids[first[flat[order]] + within] = order.int()
    experts = torch.full((-(-room // size),), -1, dtype=torch.int32, device="cuda")
    owners = torch.repeat_interleave(torch.arange(model.experts, device="cuda"), blocks)
    experts[: len(owners)] = owners.int()
    return ids, experts, (blocks.sum() * size).int().reshape(1)


def main() -> None:
    """Prints the records, and writes them with what they were measured on."""
    numbers = [int(word) for word in sys.argv[2:] if word.isdigit()] or TOKENS
    words = [word for word in sys.argv[2:] if not word.isdigit()] or [""]
    records = []
    for record in run(numbers, words):
        print(record, flush=True)
        records.append(record)
    if len(sys.argv) > 1:
        with open(sys.argv[1], "w") as file:
            json.dump({"machine": machine.describe(), "records": records}, file, indent=1)


if __name__ == "__main__":
    main()
