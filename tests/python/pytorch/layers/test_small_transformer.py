# tests/python/pytorch/layers/test_small_transformer.py: a GPT of half a million parameters learns
# as well in few bits as without quantization.
from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import mxkern  # noqa: E402
from support import ROOT  # noqa: E402

# How far the mean loss of the last 50 steps may be from the one of plain training: bfloat16 on a
# GPU, float32 on a CPU.
BARS = {"mxfp8": 0.005, "hybrid": 0.005, "nvfp4": 0.025, "mxfp4": 0.03}
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """examples/train_gpt.py, on one thread: other tests run beside this one."""
    monkeypatch.syspath_prepend(ROOT / "examples")
    threads, own = torch.get_num_threads(), mxkern.get_num_threads()
    torch.set_num_threads(1)
    mxkern.set_num_threads(1)
    import train_gpt

    yield train_gpt
    torch.set_num_threads(threads)
    mxkern.set_num_threads(own)
    del sys.modules["train_gpt"]


def mean(losses: list[float]) -> float:
    return sum(losses) / len(losses)


def losses_of(example: Any, name: str, steps: int, **options: Any) -> list[float]:
    return list(example.train(example.RECIPES[name], steps, device=DEVICE, **options))


def test_a_few_steps(example: Any) -> None:
    size = example.SMALL._replace(batch=4)
    plain, ours = (losses_of(example, name, 20, size=size) for name in ("plain", "mxfp8"))
    assert ours != plain, "nothing was quantized"
    assert mean(ours[-5:]) < ours[0] - 1
    assert mean(ours[-5:]) == pytest.approx(mean(plain[-5:]), rel=0.02)


@pytest.mark.slow
def test_every_recipe(example: Any) -> None:
    """The bars are far above what chance does here: other initial weights by 1 % change the mean
    loss by 0.0003 of it."""
    wanted = mean(losses_of(example, "plain", 300)[-50:])
    assert wanted < 3
    far = {name: mean(losses_of(example, name, 300)[-50:]) / wanted - 1 for name in BARS}
    assert all(abs(far[name]) < bar for name, bar in BARS.items()), (wanted, far)
