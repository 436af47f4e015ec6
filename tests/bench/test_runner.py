# tests/bench/test_runner.py: the benchmarks' own machinery: rounds end, results are kept.
import json
import sys

import pytest

import mxkern
from bench import report, runner


def test_rounds_end():
    """However short a call is and however many there are, no round is asked for again for ever."""
    timing = pytest.importorskip("bench.cuda.timing", reason="needs PyTorch")
    for calls in [*range(1, 70), 1000, 1024, 1025, 5000]:
        for of_one in (1e-7, 1e-6, 3.2e-6, 4e-6, 1e-3):
            turns, wanted, rounds = 0, 1, 0
            while turns < wanted:
                turns = wanted
                wanted = timing.turns_wanted(turns, calls, turns * calls * of_one)
                rounds += 1
            assert rounds <= 12
            assert turns == 1 or turns * calls <= timing.MOST_CALLS
            long_enough = turns * calls * of_one * 1e6 > timing.MICROSECONDS
            assert long_enough or (turns + 1) * calls > timing.MOST_CALLS


def test_the_documentation_has_the_results():
    """`python -m bench.report` has nothing to write, and no page is of another machine."""
    documents = report.documents(report.read())
    stale = [str(path) for path, text in documents.items() if path.read_text() != text]
    assert not stale, "python -m bench.report writes these"
    pages = {path for path in documents if path.parent == report.PAGES}
    assert pages == set(report.PAGES.glob("*.md"))


def test_other_results_are_checked():
    """Codes that round differently pass, wrong scales or codes do not."""
    torch = pytest.importorskip("torch")
    rivals = pytest.importorskip("bench.cuda.rivals", reason="needs PyTorch")
    torch.manual_seed(0)
    x = torch.randn(128, 256)
    q = mxkern.quantize(x, "nvfp4", amax=6.0)
    assert rivals.disagreement(x, q, q.parts[:2], "it") == 0
    scales = q.scales.clone()
    scales.view(torch.uint8)[:, 3:4] ^= 1  # a sixteenth of the scales, by the last place
    with pytest.raises(AssertionError, match="bytes differ"):
        rivals.disagreement(x, q, (q.codes, scales), "it")
    scales = q.scales.clone()
    scales.view(torch.uint8)[:4, 3] ^= 1
    assert 0 < rivals.disagreement(x, q, (q.codes, scales), "it") < 0.05
    scales.view(torch.uint8)[:4, 3] ^= 16  # two octaves
    with pytest.raises(AssertionError, match="its error is"):
        rivals.disagreement(x, q, (q.codes, scales), "it")
    codes = q.codes.clone()
    codes.view(torch.uint8)[:, :4] ^= 0x88  # a few signs
    with pytest.raises(AssertionError, match="its error is"):
        rivals.disagreement(x, q, (codes, q.scales), "it")


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """Runs parts named on a command line into one file; returns what it holds then."""
    path = tmp_path / "results.json"

    def fails():
        raise ValueError("on purpose")

    parts = {"one": lambda: [{"n": 1}], "two": lambda: iter([{"n": 2}]), "bad": fails}

    def run(*arguments, **described):
        monkeypatch.setattr(sys, "argv", ["runner", "--out", str(path), *arguments])
        try:
            runner.measure("runner", parts, "device", {"cpu": "some", **described})
        except SystemExit as stop:
            return stop.code, json.loads(path.read_text())
        return None, json.loads(path.read_text())

    return run


def test_parts_keep_one_another(measured):
    measured("one")
    stop, results = measured("two", "--caution", "old")
    assert stop is None
    assert results == {
        "machine": {"cpu": "some", "caution": "old"},
        "one": [{"n": 1}],
        "two": [{"n": 2}],
    }


def test_figures_of_two_commits_are_not_one_result(measured):
    measured("one", commit="a")
    stop, results = measured("two", commit="b")
    assert "holds figures of commit a, and these would be of b" in stop
    assert set(results) == {"machine", "one"} and results["machine"]["commit"] == "a"
    stop, results = measured("two", "--caution", "one is of a", commit="b")
    assert stop is None
    assert results["machine"] == {"cpu": "some", "commit": "b", "caution": "one is of a"}
    stop, results = measured("two", commit="b")
    assert results["machine"]["caution"] == "one is of a"
    stop, results = measured(commit="c")
    assert results["machine"] == {"cpu": "some", "commit": "c"} and "two" in results


def test_a_part_that_fails_does_not_end_the_rest(measured, capsys):
    stop, results = measured("bad", "one")
    assert "failed: bad" in stop
    assert results["one"] == [{"n": 1}]
    assert "bad" not in results
    assert "on purpose" in capsys.readouterr().err
    stop, results = measured()
    assert "failed: bad" in stop
    assert set(results) == {"machine", "one", "two"}


def test_goals_that_are_missed_are_named():
    tables = pytest.importorskip("bench.cuda.gemm_tables")

    def record(m, seconds, rested, goal):
        times = {"seconds": seconds, "rested_seconds": rested, "goal_seconds": goal}
        return {"shape": [64, 32], "scheme": "mxfp4", "tokens": m, **times}

    records = [record(1, 2.0, None, 3.0), record(2, 5.0, 4.0, None), record(4, 4.0, 2.5, 3.0)]
    text = tables._goals(records)
    assert "Of 2 goals 2 are met after a rest, 1 without a pause" in text
    assert text.endswith("all but `mxfp4` [64 x 32] M = 4.")
    text = tables._goals([*records, record(8, 4.0, 3.5, 3.0), record(16, 4.0, None, 3.0)])
    assert "Of 4 goals 2 are met after a rest, all but `mxfp4` [64 x 32] M = 8, " in text
    assert "1 without a pause" in text
    assert tables._goals(records[:1]) == ""  # nothing was measured after a rest
