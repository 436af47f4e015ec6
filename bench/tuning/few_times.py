# bench/tuning/few_times.py: the times of plans of products of few tokens, as
# src/plan/decode/cost_model.cc has them, with constants that may change.
from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Values = dict[str, float]
Rows = dict[str, Floats]


def together(*times: Floats | float) -> Floats:
    """Of things that happen side by side: little more than the longest takes."""
    return np.asarray(sum(np.asarray(time, np.float64) ** 4 for time in times) ** 0.25)


def of_scheme(c: Values, name: str, d: Rows) -> Floats:
    nvfp4 = np.where(d["float_scales"] > 0, c[f"{name}.nvfp4"], 0.0)
    wider = np.where(d["bits"] == 6, c[f"{name}.six_bits"], c[f"{name}.eight_bits"])
    return np.where(d["bits"] == 4, nvfp4, wider)


def counts(d: Rows) -> Rows:
    """What plans come to: thread blocks, their slots, turns, and the like."""
    groups_of_tokens = d["batch"] * np.ceil(d["all_tokens"] / d["tokens"])
    ranks, parts = 2 ** d["log2_ranks"], 2 ** d["log2_parts"]
    blocks = np.ceil(d["down"] / d["row_tiles"]) * groups_of_tokens * ranks
    idle = np.where(d["log2_ranks"] < 2, 0, d["processors"] // 11)
    return {
        **d,
        "ranks": ranks,
        "parts": parts,
        "blocks": blocks,
        "slots": d["processors"] - idle,
        "turns": np.ceil(np.ceil(d["across"] / ranks) / parts),
        "fills": np.asarray(d["processors"] % (groups_of_tokens * ranks) == 0, np.float64),
        "divides": np.asarray(groups_of_tokens > d["batch"], np.float64),
        "leaves_half": np.asarray(2 * blocks <= d["processors"], np.float64),
    }


def pairs_rounds(d: Rows) -> tuple[Floats, Floats]:
    """Rounds of pairs ahead of the last one, and whether thread blocks are alone in that."""
    before = np.ceil(d["blocks"] / (2 * d["slots"])) - 1
    left = d["blocks"] - before * 2 * d["slots"]
    alone = (left <= d["slots"]) & ((before > 0) | (left == d["slots"]) | (d["fills"] > 0))
    return before, alone.astype(np.float64)


def kilobytes_of_tokens(d: Rows, warps: Floats) -> Floats:
    return d["tokens"] / 4 * np.where(d["x_stages"] > 0, d["parts"], warps)


def few_in_pairs(c: Values, d: Rows, name: str) -> Floats:
    def of(part: str) -> float:
        return c[f"{name}.{part}"]

    two = d["warp_tiles"] - 1
    warps = d["row_tiles"] // d["warp_tiles"] * d["parts"]
    turn = of("turn") + d["float_scales"] * of("nvfp4") + (d["x_stages"] > 0) * of("shared")
    turn = turn * (1 + of("two_tiles") * two) * (1 - of("idle_warps") * (1 - warps / 8))
    turn = turn + of("kilobyte") * kilobytes_of_tokens(d, warps)
    before, alone = pairs_rounds(d)
    turns = d["turns"] * turn
    end = of("end_of_two") * two + of("end_of_part") * d["parts"]
    pair = turns + of("end") + of("end_of_rank") * d["log2_ranks"] + end
    lone = turns * of("lone_turn") + of("lone_end")
    lone = lone + of("lone_end_of_rank") * d["log2_ranks"] + end
    time = of("start") + before * pair + np.where(alone > 0, lone, pair)
    time = time + d["divides"] * c["several_groups"] - d["leaves_half"] * of("half")
    return together(np.maximum(time, 0.1), of("memory_byte") * d["weight_bytes"] + of("memory"))


def few_alone(c: Values, d: Rows, few: bool) -> Floats:
    name, size = ("alone_of_few", "few") if few else ("alone_of_more", "more")
    tokens = d["tokens"].astype(int)
    warp = np.array([c[f"turn_of_{n}.warp"] for n in tokens])
    tile = np.array([c[f"turn_of_{n}.tile"] for n in tokens]) + of_scheme(c, f"tile_of_{size}", d)
    warps = d["row_tiles"] * d["parts"]
    kilobytes = warps * d["tile_bytes"] / 1024
    wait = warp
    if few:
        kilobytes = kilobytes + kilobytes_of_tokens(d, warps)
        wait = wait + (d["x_stages"] > 0) * c["shared_wait"]
        wait = wait - (d["bits"] == 8) * c["less_wait_of_wide"]
    turn = together(wait, tile * warps / 4, c[f"kilobyte_of_{size}"] * kilobytes)
    end = c[f"{name}.end"] + c[f"{name}.end_of_token"] * d["tokens"]
    end = end + c[f"{name}.end_of_rank"] * d["log2_ranks"] + c[f"{name}.end_of_part"] * d["parts"]
    if few:
        end = end - (d["parts"] == 16) * c["less_end_of_16_parts"]
    rounds = np.maximum(np.ceil(d["blocks"] / d["slots"]), 1)
    time = rounds * (d["turns"] * turn + end) + c[f"{name}.start"]
    if few:
        time = time + d["divides"] * c["several_groups"]
    time = time - d["leaves_half"] * c[f"{name}.half"]
    memory = c[f"{name}.memory_byte"] * d["weight_bytes"] + c[f"{name}.memory"]
    return together(time, memory)


def sm90_in_pairs(c: Values, d: Rows) -> Floats:
    def turn_of(name: str) -> Floats:
        turn = np.array([c[f"{name}.turn_{n}"] for n in d["tokens"].astype(int)])
        divided = d["log2_parts"] == 1
        turn = turn + divided * c[f"{name}.divided"] + of_scheme(c, f"{name}.schemes", d)
        two_stages = divided & (d["bits"] == 8) & (d["tokens"] == 64)
        return turn + two_stages * c[f"{name}.two_stages"]

    halves = d["halves"] * (c["halves_sm90"] + of_scheme(c, "of_halves_sm90", d))

    def time_of(name: str, added: Floats) -> Floats:
        time = d["turns"] * (turn_of(name) + added) + c[f"{name}.end"]
        time = time + c[f"{name}.end_of_rank"] * d["log2_ranks"]
        time = time + c["pair_end_of_token"] * d["tokens"]
        return time + c["pair_end_of_part"] * d["log2_parts"]

    before, alone = pairs_rounds(d)
    pair, lone = time_of("pair_sm90", halves), time_of("lone_sm90", halves / 2)
    time = before * pair + np.where(alone > 0, lone, pair)
    idle = (1 - d["blocks"] / d["slots"]) * d["turns"] * turn_of("lone_sm90")
    time = time + np.where((alone > 0) & (before == 0), idle, 0.0)
    time = time + d["divides"] * c["pair_several_groups"] - d["leaves_half"] * c["pair_half_empty"]
    memory = c["pair_memory_byte"] * d["weight_bytes"] + c["pair_memory"]
    return together(np.maximum(time, 0.1), memory)


def sm90_alone(c: Values, d: Rows) -> Floats:
    tiles = d["row_tiles"] * d["parts"]
    four = tiles == 8
    part = np.select([d["parts"] == 1, d["parts"] == 2], [0, 1], 2)
    names = ("whole", "halves", "quarters")
    turn = np.array(
        [
            c[f"{'four' if f else 'two'}_of_{n}.{names[p]}"]
            for n, f, p in zip(d["tokens"].astype(int), four, part, strict=True)
        ]
    )
    of_two = np.where(d["tokens"] <= 128, c["two_up_to_128"], c["two_up_to_192"])
    of_two = np.where(d["tokens"] < 256, of_two, c["two_of_more"])
    halves = c["halves_sm90"] + of_scheme(c, "of_halves_sm90", d)
    halves = d["halves"] * np.where(four, 1.0, of_two) * halves
    rounds = np.maximum(np.ceil(d["blocks"] / d["slots"]), 1)
    kilobytes = (d["tokens"] * d["parts"] * 256 + tiles * d["tile_bytes"]) / 1024
    idle = 1 - d["blocks"] / (rounds * d["slots"])
    scheme = np.where(
        four, of_scheme(c, "turn_of_four_sm90", d), of_scheme(c, "turn_of_two_sm90", d)
    )
    turn = turn + scheme + halves - c["idle_kilobyte"] * idle * kilobytes
    end = c["end_sm90.once"] + c["end_sm90.token"] * d["tokens"]
    end = end + c["end_sm90.part"] * (d["parts"] - 1)
    shared = c["end_sm90.ranks"] + c["end_sm90.token_of_ranks"] * d["tokens"]
    end = end + (d["ranks"] > 1) * shared + (d["ranks"] > 2) * c["end_sm90.more_ranks"]
    left = np.where(rounds > 1, rounds - d["blocks"] / d["slots"], 0.0)
    time = rounds * (d["turns"] * turn + end) - c["left_sm90"] * left
    time = time - d["leaves_half"] * c["half_sm90"]
    memory = c["memory_byte_sm90"] * d["weight_bytes"] + c["memory_sm90"]
    return together(time, memory)


class Model(NamedTuple):
    """A formula, the plans that it is for, and its constants: names, or what names begin with."""

    name: str
    is_for: Callable[[Rows], NDArray[np.bool_]]
    time: Callable[[Values, Rows], Floats]
    constants: tuple[str, ...]


def _has_pairs(d: Rows) -> NDArray[np.bool_]:
    """Of DecodeSm90Shape::has_pairs."""
    two = d["row_tiles"] * 2 ** d["log2_parts"] == 4
    return two & (d["tokens"] <= 96) & (d["tokens"] * 2 ** d["log2_parts"] <= 128)


def _few(d: Rows, tokens: tuple[int, ...], narrow: bool | None) -> NDArray[np.bool_]:
    fits = (d["sm90"] == 0) & np.isin(d["tokens"], tokens)
    return fits if narrow is None else fits & ((d["bits"] == 4) == narrow)


MODELS = (
    Model(
        "gemm_decode, two thread blocks of 8 tokens",
        lambda d: _few(d, (8,), True),
        lambda c, d: few_in_pairs(c, d, "pairs_of_8"),
        ("pairs_of_8.",),
    ),
    Model(
        "gemm_decode, two thread blocks of 16 tokens",
        lambda d: _few(d, (16,), True),
        lambda c, d: few_in_pairs(c, d, "pairs_of_16"),
        ("pairs_of_16.",),
    ),
    Model(
        "gemm_decode, one thread block of 8 or 16 tokens",
        lambda d: _few(d, (8, 16), False),
        lambda c, d: few_alone(c, d, True),
        (
            "alone_of_few.", "turn_of_8.", "turn_of_16.", "tile_of_few.", "kilobyte_of_few",
            "shared_wait", "less_wait_of_wide", "less_end_of_16_parts",
        ),
    ),
    Model(
        "gemm_decode, one thread block of 32 or 64 tokens",
        lambda d: _few(d, (32, 64), None),
        lambda c, d: few_alone(c, d, False),
        ("alone_of_more.", "turn_of_32.", "turn_of_64.", "tile_of_more.", "kilobyte_of_more"),
    ),
    Model(
        "gemm_decode_sm90, one thread block",
        lambda d: (d["sm90"] > 0) & ~_has_pairs(d),
        sm90_alone,
        (
            "four_of_", "two_of_", "turn_of_four_sm90.", "turn_of_two_sm90.", "two_up_to_",
            "idle_kilobyte", "end_sm90.", "left_sm90", "half_sm90", "memory_byte_sm90",
            "memory_sm90", "halves_sm90", "of_halves_sm90.",
        ),
    ),
    Model(
        "gemm_decode_sm90, two thread blocks",
        lambda d: (d["sm90"] > 0) & _has_pairs(d),
        sm90_in_pairs,
        ("lone_sm90.", "pair_sm90.", "pair_"),
    ),
)  # fmt: skip
