# tests/bench/test_tuning.py: the program that fits the times of products of few tokens, on times
# that are known.
from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mxkern

ROOT = Path(__file__).resolve().parents[2]
if not (ROOT / "bench" / "tuning").is_dir():
    pytest.skip("the sources are not here", allow_module_level=True)

from bench.tuning import few_tokens  # noqa: E402

NAMES = (
    "kernel", "scheme", "halves", "batch", "all_tokens", "down", "across", "tokens", "row_tiles",
    "warp_tiles", "log2_parts", "log2_ranks", "x_stages", "thought",
)  # fmt: skip
# What decode_time and decode_sm90_time of src/plan/decode/cost_model.cc say on a GPU of 132
# multiprocessors; bench/tuning/few_token_times.cu prints it as `thought`.
FROM_CPP = """
few, mxfp4, 0, 1, 8, 128, 32, 8, 4, 1, 0, 0, 0, 13.3611268
few, mxfp4, 0, 1, 16, 32, 112, 16, 10, 2, 0, 0, 2, 106.680532
few_sm90, mxfp4, 0, 1, 200, 896, 64, 96, 2, 0, 2, 0, 8, 269.619841
few, mxfp4, 1, 1, 16, 896, 64, 16, 2, 1, 1, 0, 0, 48.164698
few_sm90, mxfp4, 1, 1, 96, 128, 32, 64, 8, 0, 0, 0, 2, 32.069291
few, nvfp4, 0, 1, 16, 128, 32, 8, 5, 1, 0, 1, 0, 9.04251999
few, nvfp4, 0, 1, 48, 128, 32, 64, 4, 1, 1, 0, 6, 27.9975049
few_sm90, nvfp4, 0, 1, 96, 896, 64, 64, 4, 0, 0, 0, 2, 137.526448
few, nvfp4, 1, 1, 8, 32, 112, 8, 7, 1, 0, 1, 0, 31.5509295
few, nvfp4, 1, 3, 24, 32, 112, 16, 4, 1, 1, 0, 4, 49.8264927
few_sm90, nvfp4, 1, 1, 48, 128, 32, 64, 2, 0, 1, 0, 4, 14.8286558
few_sm90, nvfp4, 1, 1, 96, 128, 32, 64, 4, 0, 0, 0, 2, 26.7721027
few, mxfp6_e2m3, 0, 1, 8, 128, 32, 16, 6, 1, 1, 1, 4, 10.646515
few, mxfp6_e2m3, 0, 1, 16, 128, 32, 16, 5, 1, 1, 2, 4, 7.7476147
few, mxfp6_e2m3, 0, 3, 24, 896, 64, 16, 8, 1, 0, 2, 0, 364.470387
few, mxfp6_e2m3, 1, 1, 8, 128, 32, 8, 4, 1, 2, 0, 8, 10.9351449
few, mxfp6_e2m3, 1, 1, 16, 128, 32, 8, 7, 1, 1, 1, 0, 11.5568239
few, mxfp6_e2m3, 1, 3, 24, 128, 32, 16, 15, 1, 0, 2, 2, 28.6615434
few_sm90, mxfp6_e2m3, 1, 1, 48, 32, 112, 32, 4, 0, 0, 1, 4, 56.8394189
few_sm90, mxfp6_e2m3, 1, 1, 200, 32, 112, 128, 2, 0, 1, 2, 4, 34.3994239
few, mxfp8_e4m3, 0, 1, 8, 32, 112, 16, 6, 1, 1, 2, 4, 18.5394904
few_sm90, mxfp8_e4m3, 0, 3, 24, 128, 32, 32, 8, 0, 0, 0, 3, 25.6812182
few_sm90, mxfp8_e4m3, 0, 1, 200, 896, 64, 64, 8, 0, 0, 2, 3, 319.289981
few, mxfp8_e4m3, 1, 1, 8, 32, 112, 16, 4, 1, 1, 0, 0, 45.9903127
few, mxfp8_e4m3, 1, 1, 16, 32, 112, 16, 12, 1, 0, 2, 2, 34.2496627
few_sm90, mxfp8_e4m3, 1, 1, 96, 32, 112, 96, 4, 0, 0, 1, 2, 72.9486144
few_sm90, mxfp8_e4m3, 1, 1, 200, 32, 112, 64, 4, 0, 0, 0, 2, 117.261604
"""


def record(**fields: Any) -> dict[str, Any]:
    """A line of few_token_times."""
    scheme = mxkern.schemes[fields["scheme"]]
    per_tile = 512 * scheme.bits + (256 if scheme.block == 16 else 128)
    floats = int(scheme.has_tensor_scale)
    weight_bytes = fields["batch"] * fields["down"] * fields["across"] * per_tile
    return {
        "processors": 132,
        "measured": 1.0,
        "bits": scheme.bits,
        "float_scales": floats,
        "tile_bytes": per_tile,
        "weight_bytes": weight_bytes,
        **fields,
    }


def from_cpp() -> list[dict[str, Any]]:
    lines = [line.split(", ") for line in FROM_CPP.strip().splitlines()]
    return [
        record(**{n: v if n in NAMES[:2] else float(v) for n, v in zip(NAMES, line, strict=True)})
        for line in lines
    ]


def test_times_are_those_of_the_library() -> None:
    records = from_cpp()
    values, _ = few_tokens.constants_of(few_tokens.HEADER.read_text())
    times = few_tokens.times_of(records, values)
    np.testing.assert_allclose(times, [r["thought"] for r in records], rtol=1e-7)
    rows = few_tokens.rows_of(records)
    covered = sum(model.is_for(rows).astype(int) for model in few_tokens.MODELS)
    assert (covered == 1).all() and all(m.is_for(rows).any() for m in few_tokens.MODELS)


def random_records(count: int) -> list[dict[str, Any]]:
    """Plans of all kinds, each of a product of its own."""
    generator = np.random.default_rng(0)

    def one_of(*choices: Any) -> Any:
        return choices[generator.integers(len(choices))]

    records = []
    for number in range(count):
        sm90, log2_parts = one_of(False, True), one_of(0, 1, 2)
        if sm90:
            tokens = one_of(32, 64, 96, 128, 192, 256)
            warpgroups = one_of(2, 4) if tokens <= 128 else 2
            log2_parts = min(log2_parts, warpgroups // 2)
            row_tiles, warp_tiles = 2 * (warpgroups >> log2_parts), 1
        else:
            tokens = one_of(8, 16, 32, 64)
            warp_tiles = one_of(1, 2) if tokens == 16 else 1
            row_tiles = warp_tiles * one_of(1, 2, 3, 4)
            log2_parts = one_of(0, 1, 2, 3, 4) if tokens <= 16 else log2_parts
        records.append(
            record(
                kernel="few_sm90" if sm90 else "few",
                scheme=one_of("mxfp4", "nvfp4", "mxfp6_e2m3", "mxfp8_e4m3"),
                halves=one_of(0, 1) if sm90 else 0,
                batch=one_of(1, 1, 4),
                all_tokens=tokens * one_of(1, 1, 3),
                down=1 + number + int(generator.integers(2000)) * one_of(0, 1),
                across=int(generator.integers(1, 300)),
                tokens=tokens,
                row_tiles=row_tiles,
                warp_tiles=warp_tiles,
                log2_parts=log2_parts,
                log2_ranks=one_of(0, 1) if tokens <= 16 else one_of(0, 1, 2),
                x_stages=one_of(0, 4) if tokens <= 16 else 4,
            )
        )
    return records


@pytest.mark.slow
def test_known_constants_are_found() -> None:
    known, _ = few_tokens.constants_of(few_tokens.HEADER.read_text())
    records = random_records(4000)
    for r, time in zip(records, few_tokens.times_of(records, known), strict=True):
        r["measured"] = float(time)
    generator = np.random.default_rng(1)
    start = {name: value * generator.uniform(0.8, 1.25) for name, value in known.items()}
    start |= {name: known[name] for name in ("several_groups",)}  # of three models: not fitted
    said: list[str] = []
    found = few_tokens.fit(records, start, said.append)
    assert len(said) == len(few_tokens.MODELS) and not any("too few" in line for line in said)
    times = few_tokens.times_of(records, found)
    np.testing.assert_allclose(times, [r["measured"] for r in records], rtol=1e-4)
    names = ["pairs_of_8.turn", "pairs_of_16.lone_turn", "alone_of_few.memory_byte"]
    names += ["turn_of_32.tile", "pair_sm90.turn_64", "four_of_128.whole", "end_sm90.once"]
    for name in names:
        assert found[name] == pytest.approx(known[name], rel=1e-2), name


def test_too_few_measurements_leave_constants() -> None:
    known, shapes = few_tokens.constants_of(few_tokens.HEADER.read_text())
    said: list[str] = []
    assert few_tokens.fit(random_records(20), known, said.append) == known
    assert all("are too few for" in line for line in said)
    text = few_tokens.as_cpp(known, shapes)
    assert "turn_of_8 = {0.3837, 0.2736}" in text and "memory_byte_sm90 = 0.1972e-6" in text


def test_regret_is_what_the_choice_loses() -> None:
    known, _ = few_tokens.constants_of(few_tokens.HEADER.read_text())
    pair = [r for r in random_records(200) if r["kernel"] == "few"][:1] * 2
    records = [{**r, "row_tiles": tiles} for r, tiles in zip(pair, (1, 4), strict=True)]
    chosen = int(np.argmin(few_tokens.times_of(records, known)))
    for i, r in enumerate(records):
        r["measured"] = 3.0 if i == chosen else 2.0
    assert few_tokens.regret(records, known) == (0.5, 0.5)


def test_measuring_goes_on_where_it_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """few_token_times is a script that prints two plans of each product."""
    program = tmp_path / "tests" / "few_token_times"
    program.parent.mkdir()
    program.write_text(
        "#!/bin/sh\nfor t in $(echo $3 | tr , ' '); do for i in 1 2; do "
        'echo "{\\"scheme\\": \\"$2\\", \\"all_tokens\\": $t, \\"halves\\": 0}"; done; done\n'
    )
    program.chmod(0o755)
    monkeypatch.setattr(few_tokens.subprocess, "run", lambda *_, **__: None)  # of CMake
    path = tmp_path / "times.jsonl"
    common = ["measure", str(path), "--build", str(tmp_path), "--schemes", "mxfp4,nvfp4"]
    few_tokens.main([*common, "--shapes", "64x64", "--tokens", "8"])
    assert len(few_tokens.read(path)) == 4
    few_tokens.main([*common, "--shapes", "64x64,64x96", "--tokens", "8,16"])
    keys = [(r["shape"], r["scheme"], r["all_tokens"]) for r in few_tokens.read(path)]
    assert len(keys) == 16 and len(set(keys)) == 8
    few_tokens.main([*common, "--shapes", "96x96", "--tokens", "8", "--minutes", "0"])
    assert len(few_tokens.read(path)) == 16


def test_printed_without_a_file(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="has no measurements; run measure first"):
        few_tokens.main(["fit", str(tmp_path / "none.jsonl")])
