# tests/python/checkpoints/test_target.py: a conversion touches nothing that others put into its
# folder.
from __future__ import annotations

import errno
import fcntl
import json
import os
from pathlib import Path
from typing import Any

import pytest
from checkpoint_folder import write_checkpoint
from interrupted import CONFIG, FILES, JOURNAL, WEIGHTS, at_call, contents, interrupt

from mxkern.checkpoints.convert import convert_checkpoint


@pytest.fixture
def source(tmp_path: Path) -> str:
    return write_checkpoint(tmp_path / "old", CONFIG, WEIGHTS, FILES)


def put_things(target: Path) -> None:
    (target / "notes.txt").write_text("mine")
    (target / "folder").mkdir()
    (target / "folder" / "inner.txt").write_text("mine too")
    (target / "link").symlink_to("/dev/zero")
    (target / "model-9.safetensors").write_text("mine as well")
    raise RuntimeError("the first error")


@pytest.mark.parametrize("call", [1, 5])
def test_what_others_put_there_stays(
    source: str, tmp_path: Path, call: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "new"
    at_call(monkeypatch, call, lambda: put_things(target))
    with pytest.raises(RuntimeError, match="the first error"):
        convert_checkpoint(source, target, "mxfp4")
    names = {path.name for path in target.iterdir()}
    written = {JOURNAL, "model-0.safetensors", "model-1.safetensors"} if call > 1 else set()
    assert names == {"notes.txt", "folder", "link", "model-9.safetensors", *written}
    assert (target / "folder" / "inner.txt").read_text() == "mine too"
    if call > 1:
        convert_checkpoint(source, target, "mxfp4", resume=True)
        assert (target / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("ending", ["", ".unfinished"])
def test_a_file_of_others_is_not_replaced(
    source: str, tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "new"
    theirs = target / f"model-2.safetensors{ending}"
    at_call(monkeypatch, 4, lambda: theirs.write_text("mine"))
    with pytest.raises(
        FileExistsError, match=f"somebody else has put it there.*{theirs}"
    ) as caught:
        convert_checkpoint(source, target, "mxfp4")
    assert "2 of 7 files are finished" in caught.value.__notes__[0]
    assert theirs.read_text() == "mine"
    if not ending:
        with pytest.raises(ValueError, match=r"does not list it; .*elsewhere"):
            convert_checkpoint(source, target, "mxfp4", resume=True)
        assert theirs.read_text() == "mine"


def test_a_journal_is_not_written_through_a_link(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, theirs = tmp_path / "new", tmp_path / "theirs"
    theirs.write_text("mine")
    at_call(monkeypatch, 4, lambda: (target / f"{JOURNAL}.unfinished").symlink_to(theirs))
    with pytest.raises(OSError, match=JOURNAL):
        convert_checkpoint(source, target, "mxfp4")
    assert theirs.read_text() == "mine"


def test_a_file_of_others_that_comes_at_the_last_moment(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "new"
    at_call(monkeypatch, 5, lambda: (target / "model-2.safetensors").write_text("mine"))
    with pytest.raises(FileExistsError, match="somebody else"):
        convert_checkpoint(source, target, "mxfp4")
    assert (target / "model-2.safetensors").read_text() == "mine"
    assert not (target / "model-2.safetensors.unfinished").exists()


def test_a_file_system_without_links(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    convert_checkpoint(source, tmp_path / "whole", "mxfp4")

    def no_link(*arguments: Any) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "link", no_link)
    convert_checkpoint(source, tmp_path / "new", "mxfp4")
    assert contents(tmp_path / "new") == contents(tmp_path / "whole")


def test_force_replaces_what_the_journal_lists(source: str, tmp_path: Path) -> None:
    target = tmp_path / "new"
    convert_checkpoint(source, target, "mxfp4")
    small = write_checkpoint(tmp_path / "small", CONFIG, WEIGHTS)
    (tmp_path / "small" / "more").mkdir()
    with pytest.raises(ValueError, match="there is a finished conversion in it, which --resume"):
        convert_checkpoint(small, target, "nvfp4")
    before = contents(target)
    for odd in ("notes.txt", "model.safetensors", "folder/"):
        path = target / odd
        path.mkdir() if odd.endswith("/") else path.write_text("mine")
        with pytest.raises(ValueError, match=f"{path}.*mxkern-convert.json does not list it"):
            convert_checkpoint(small, target, "nvfp4", force=True)
        path.rmdir() if odd.endswith("/") else path.unlink()
        assert contents(target) == before
    convert_checkpoint(small, target, "nvfp4", force=True)
    convert_checkpoint(small, tmp_path / "whole", "nvfp4")
    assert contents(target) == contents(tmp_path / "whole")
    interrupt(source, tmp_path / "part")
    convert_checkpoint(small, tmp_path / "part", "nvfp4", force=True)
    assert contents(tmp_path / "part") == contents(tmp_path / "whole")


@pytest.mark.parametrize(
    "change",
    [
        {"files": {"../victim": {"bytes": 4, "poisoned": {}}}},
        {"files": {"/etc/victim": {"bytes": 4, "poisoned": {}}}},
        {"files": {"a": {"bytes": 4}}},
        {"writing": "../victim"},
        {"files": []},
        {"more": 1},
    ],
)
def test_a_journal_that_is_none(source: str, tmp_path: Path, change: dict[str, Any]) -> None:
    target, victim = tmp_path / "new", tmp_path / "victim"
    convert_checkpoint(source, target, "mxfp4")
    victim.write_text("mine")
    (tmp_path / "victim.unfinished").write_text("mine")
    journal = json.loads((target / JOURNAL).read_text()) | change
    (target / JOURNAL).write_text(json.dumps(journal))
    for options in ({"force": True}, {"resume": True}):
        with pytest.raises(ValueError, match="it is no journal of mxkern convert"):
            convert_checkpoint(source, target, "mxfp4", **options)
    assert victim.read_text() == (tmp_path / "victim.unfinished").read_text() == "mine"
    (target / JOURNAL).unlink()
    (target / JOURNAL).symlink_to("/dev/zero")
    with pytest.raises(ValueError, match=r"it is a link; .* no journal"):
        convert_checkpoint(source, target, "mxfp4", force=True)


def test_force_follows_no_link_out_of_the_folder(source: str, tmp_path: Path) -> None:
    target, outside = tmp_path / "new", tmp_path / "outside"
    convert_checkpoint(source, target, "mxfp4")
    outside.mkdir()
    (outside / "victim").write_text("mine")
    (target / "1_Pooling").symlink_to(outside)
    journal = json.loads((target / JOURNAL).read_text())
    journal["files"]["1_Pooling/victim"] = {"bytes": 4, "poisoned": {}}
    (target / JOURNAL).write_text(json.dumps(journal))
    with pytest.raises(ValueError, match=r"1_Pooling: .* does not list it"):
        convert_checkpoint(source, target, "mxfp4", force=True)
    assert (outside / "victim").read_text() == "mine"


@pytest.mark.parametrize("options", [{}, {"resume": True}, {"force": True}])
def test_two_conversions_into_one_folder(
    source: str, tmp_path: Path, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "new"

    def another() -> None:
        with pytest.raises(ValueError, match="another conversion writes to it; expected"):
            convert_checkpoint(source, target, "mxfp4", **options)

    calls = at_call(monkeypatch, 5, another)
    convert_checkpoint(source, target, "mxfp4")
    convert_checkpoint(source, tmp_path / "whole", "mxfp4")
    assert len(calls) == 16 and contents(target) == contents(tmp_path / "whole")


def test_a_file_system_without_locks(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_lock(*arguments: Any) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_lock)
    convert_checkpoint(source, tmp_path / "new", "mxfp4")


def test_names_of_folders_and_files(source: str, tmp_path: Path) -> None:
    """A slash behind the folder's, and what is no UTF-8."""
    name = os.fsdecode(b"b\xff.txt")
    try:
        (Path(source) / name).write_text("mine")
    except OSError as error:
        if error.errno != errno.EILSEQ:
            raise
        pytest.skip("names of files are UTF-8 here")
    target = tmp_path / "a" / "new"
    interrupt(source, f"{target}/")
    done = convert_checkpoint(source, f"{target}//", "mxfp4", resume=True)
    assert (target / name).read_text() == "mine"
    assert convert_checkpoint(f"{source}/", target, "mxfp4", resume=True) == done
    convert_checkpoint(source, target, "mxfp8", force=True)
