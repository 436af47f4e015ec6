"""tests/examples/test_pytorch_examples.py: the examples that train with PyTorch run, and learn."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("mxkern", reason="the mxkern package is not installed")

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
# Other tests run beside these ones.
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "MXKERN_NUM_THREADS": "1"}


def run(*command: str | Path) -> str:
    """The output of an example that has to succeed."""
    result = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, env=ENVIRONMENT
    )
    assert result.returncode == 0, f"{command}:\n{result.stdout}\n{result.stderr}"
    return result.stdout


@pytest.mark.slow
def test_train_gpt(tmp_path: Path) -> None:
    output = tmp_path / "losses.csv"
    options = ["--steps", "3", "--recipes", "plain", "nvfp4", "--device", "cpu", "--output", output]
    said = run(EXAMPLES / "train_gpt.py", *options)
    assert re.search(r"^nvfp4 +step +3 of 3   loss 5\.\d+ +\d+ tokens/s +0 s left$", said, re.M)
    header, row = output.read_text().splitlines()
    assert header == "plain,nvfp4"
    plain, ours = map(float, row.split(","))
    assert plain != ours and plain == pytest.approx(ours, rel=0.01)


def test_losses_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    import train_gpt

    losses = {"plain": [5.0, 4.0, 3.0], "mxfp8": [5.0, 4.25, 3.5]}
    table = tmp_path / "losses.csv"
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "matplotlib.figure", None)
        assert train_gpt.draw(losses, tmp_path / "losses.png") == table
    assert table.read_text() == "plain,mxfp8\n4.0,4.25\n"
    pytest.importorskip("matplotlib")
    picture = train_gpt.draw(losses, tmp_path / "losses.png")
    assert picture.read_bytes().startswith(b"\x89PNG")


def losses_of(said: str) -> dict[int, float]:
    return {int(step): float(x) for step, x in re.findall(r"step +(\d+) +loss ([\d.]+)", said)}


LOOP = (EXAMPLES / "training_loop.py", "--backend", "aot_eager")


@pytest.mark.slow
def test_training_loop_goes_on_where_it_stopped(tmp_path: Path) -> None:
    whole = losses_of(run(*LOOP, "--steps", "5"))
    assert list(whole) == [1, 2, 3, 4, 5] and whole[5] < whole[1] - 1
    first = losses_of(run(*LOOP, "--steps", "3", "--folder", tmp_path))
    second = losses_of(run(*LOOP, "--steps", "5", "--folder", tmp_path))
    assert list(second) == [4, 5]
    assert first | second == whole, "weights, moments and random bits are those of one run"


@pytest.mark.slow
def test_training_loop_on_two_ranks(tmp_path: Path) -> None:
    ranks = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    first = losses_of(run(*ranks, *LOOP, "--steps", "3", "--folder", tmp_path))
    assert list(first) == [1, 2, 3] and first[3] < first[1] - 0.5
    second = losses_of(run(*ranks, *LOOP, "--steps", "4", "--folder", tmp_path))
    assert list(second) == [4] and second[4] < first[3]


@pytest.mark.slow
def test_huggingface_trainer() -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip("accelerate", reason="accelerate is not installed")
    said = run(EXAMPLES / "huggingface_trainer.py")
    losses = re.search(r"^losses \[(.*)\]$", said, re.M)
    assert losses and len(losses[1].split(",")) == 4
