# tests/python/checkpoints/test_interrupted.py: what a conversion leaves where it ends early, and
# how it goes on from there.
from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoint_folder import write_checkpoint
from interrupted import CONFIG, FILES, JOURNAL, WEIGHTS, at_call, contents, interrupt, raising

from mxkern.checkpoints.convert import convert_checkpoint
from mxkern.cli.main import main


@pytest.fixture
def source(tmp_path: Path) -> str:
    return write_checkpoint(tmp_path / "old", CONFIG, WEIGHTS, FILES)


@pytest.mark.parametrize("scheme", ["nvfp4", "mxfp8"])
@pytest.mark.parametrize("call", [3, 5, 8])
def test_a_resumed_conversion_gives_the_same_bytes(
    source: str, tmp_path: Path, scheme: str, call: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = convert_checkpoint(source, tmp_path / "whole", scheme)
    target = tmp_path / "new"
    interrupt(source, target, call, scheme)
    names = sorted(path.name for path in target.iterdir())
    finished = [f"model-{i}.safetensors" for i in range((call - 1) // 2)]
    assert names == sorted([*finished, JOURNAL])
    calls = at_call(monkeypatch, 0, raising(KeyboardInterrupt()))
    done = convert_checkpoint(source, target, scheme, resume=True)
    assert len(calls) == 2 * (FILES - len(finished)), "finished files are not written again"
    assert done == whole
    assert contents(target) == contents(tmp_path / "whole")
    again = convert_checkpoint(source, target, scheme, resume=True)
    assert again == whole and len(calls) == 2 * (FILES - len(finished))


def test_what_is_counted_stays_counted(tmp_path: Path) -> None:
    broken = dict(WEIGHTS)
    first, last = (f"model.layers.{i}.mlp.up_proj" for i in (0, 3))
    for module in (first, last):
        broken[f"{module}.weight"] = np.full((32, 64), np.nan, np.float32)
    source = write_checkpoint(tmp_path / "old", CONFIG, broken, FILES)
    interrupt(source, tmp_path / "new", 7)
    done = convert_checkpoint(source, tmp_path / "new", "mxfp4", resume=True)
    assert done.poisoned == {first: 64, last: 64}


def test_the_message_names_the_way_on(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "new"
    at_call(monkeypatch, 3, raising(OSError(5, "Input/output error")))
    assert main(["convert", source, str(target), "--scheme", "mxfp4"]) == 1
    said = capsys.readouterr().err
    path = target / "model-1.safetensors"
    assert said == (
        f"mxkern: error: {path}: Input/output error; 1 of 7 files are finished; --resume "
        "(resume=True) continues\n"
    )
    assert main(["convert", source, str(target), "--scheme", "mxfp4"]) == 1
    assert "there is an unfinished conversion in it, which --resume" in capsys.readouterr().err
    assert main(["convert", source, str(target), "--scheme", "mxfp4", "--resume"]) == 0
    assert capsys.readouterr().out.startswith("8 of 8 weights quantized to mxfp4; ")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals(source: str, tmp_path: Path, number: signal.Signals) -> None:
    target = tmp_path / "new"
    # A shell may have it ignored, as for what runs in the background.
    program = f"""
import os, signal, sys, mxkern
from mxkern.cli.main import main
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGTERM, signal.SIG_DFL)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
quantize, calls = mxkern.quantize, []
def killing(*arguments, **options):
    calls.append(1)
    if len(calls) == 6:
        os.kill(os.getpid(), {int(number)})
    return quantize(*arguments, **options)
mxkern.functions.quantize = killing
sys.exit(main(["convert", {source!r}, {str(target)!r}, "--scheme", "mxfp4"]))
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.returncode == 128 + number, ended.stderr
    assert ended.stderr == (
        "mxkern: interrupted; 2 of 7 files are finished; --resume (resume=True) continues\n"
    )
    names = sorted(path.name for path in target.iterdir())
    assert names == ["model-0.safetensors", "model-1.safetensors", JOURNAL]
    convert_checkpoint(source, target, "mxfp4", resume=True)
    convert_checkpoint(source, tmp_path / "whole", "mxfp4")
    assert contents(target) == contents(tmp_path / "whole")


def test_a_process_that_is_killed_is_continued(source: str, tmp_path: Path) -> None:
    target = tmp_path / "new"
    program = f"""
import os, mxkern
from mxkern.checkpoints.convert import convert_checkpoint
quantize, calls = mxkern.quantize, []
def killing(*arguments, **options):
    calls.append(1)
    if len(calls) == 6:
        os.kill(os.getpid(), {int(signal.SIGKILL)})
    return quantize(*arguments, **options)
mxkern.functions.quantize = killing
convert_checkpoint({source!r}, {str(target)!r}, "mxfp4")
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True)
    assert ended.returncode == -signal.SIGKILL
    assert (target / "model-2.safetensors.unfinished").exists()
    convert_checkpoint(source, target, "mxfp4", resume=True)
    convert_checkpoint(source, tmp_path / "whole", "mxfp4")
    assert contents(target) == contents(tmp_path / "whole")


def test_the_library_leaves_signals_alone(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)]
    seen: list[Any] = []
    numbers = (signal.SIGTERM, signal.SIGHUP)
    at_call(monkeypatch, 1, lambda: seen.extend(map(signal.getsignal, numbers)))
    convert_checkpoint(source, tmp_path / "new", "mxfp4")
    assert seen == before
    assert main(["schemes"]) == 0
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)] == before


def test_resume_is_of_the_same_source_and_options(source: str, tmp_path: Path) -> None:
    target = tmp_path / "new"
    interrupt(source, target)
    before = contents(target)

    def refused(message: str, scheme: str = "mxfp4", **options: Any) -> None:
        with pytest.raises(ValueError, match=message):
            convert_checkpoint(source, target, scheme, resume=True, **options)
        assert contents(target) == before

    refused("a conversion whose scheme is 'mxfp4'; expected 'nvfp4' to continue it", "nvfp4")
    refused(r"whose ignore is \[\]; expected \['3'\]", ignore=["3"])
    refused("whose scale_rule is 'rceil'; expected 'even'", scale_rule="even")
    refused("resume and force are given", force=True)
    tokenizer = Path(source) / "tokenizer.json"
    tokenizer.write_text("{ }")
    refused("whose source had another 'tokenizer.json'")
    tokenizer.unlink()
    refused("whose source had another 'tokenizer.json'")
    tokenizer.write_text("{}")
    refused("whose source had another 'tokenizer.json'")
    journal = json.loads((target / JOURNAL).read_text())
    journal["version"] = "0.0.1"
    (target / JOURNAL).write_text(json.dumps(journal))
    before = contents(target)
    refused("whose mxkern is '0.0.1'")


def test_weights_that_were_trained_further_are_another_source(source: str, tmp_path: Path) -> None:
    interrupt(source, tmp_path / "new")
    path = Path(source) / "model-0.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    os.utime(path, (1, 1))
    with pytest.raises(ValueError, match=r"whose source had another 'model-0.safetensors'"):
        convert_checkpoint(source, tmp_path / "new", "mxfp4", resume=True)


def test_finished_files_are_looked_at(source: str, tmp_path: Path) -> None:
    target = tmp_path / "new"
    interrupt(source, target)
    path = target / "model-1.safetensors"
    whole = path.read_bytes()
    for other in (whole[:-1], b"\0" * 20 + whole[20:]):
        path.write_bytes(other)
        with pytest.raises(ValueError, match=r"it is not what was written; expected .* remove it"):
            convert_checkpoint(source, target, "mxfp4", resume=True)
        assert path.read_bytes() == other
    path.unlink()
    convert_checkpoint(source, target, "mxfp4", resume=True)
    assert path.read_bytes() == whole


def test_resume_of_nothing_converts(source: str, tmp_path: Path) -> None:
    convert_checkpoint(source, tmp_path / "whole", "mxfp4")
    for name, options in (("new", {"resume": True}), ("other", {"force": True})):
        convert_checkpoint(source, tmp_path / name, "mxfp4", **options)
        assert contents(tmp_path / name) == contents(tmp_path / "whole")
    with pytest.raises(ValueError, match="it is not empty"):
        convert_checkpoint(source, source, "mxfp4", resume=True)


def test_two_runs_give_the_same_files(source: str, tmp_path: Path) -> None:
    convert_checkpoint(source, tmp_path / "new", "nvfp4")
    for path in Path(source).iterdir():
        os.utime(path, (1, 1))
    convert_checkpoint(source, tmp_path / "other", "nvfp4")
    assert contents(tmp_path / "new") == contents(tmp_path / "other")
