# bench/tuning/few_tokens.py: fits the times of products of few tokens in src/tuning to a GPU.
"""Measures the plans of products of few tokens on this GPU, and fits the constants of namespace
`few` in src/tuning/h200.h to them by least squares:

    tools/gpu.sh build                        # once: CMake in build/gpu
    python -m bench.tuning.few_tokens         # both steps, with build/gpu/few_tokens.jsonl

    python -m bench.tuning.few_tokens measure times.jsonl    # builds few_token_times, and runs it
    python -m bench.tuning.few_tokens fit times.jsonl        # prints the constants, as C++ has them

`measure` takes some ten minutes on an H200; --minutes ends it earlier, and called again it goes on
where it ended, as it adds to the file and leaves out products that are in it. It takes --shapes
8192x8192,... --schemes mxfp4,... --tokens 8,16,..., and --halves for float16 tokens. `fit` starts
from the constants in src/tuning; one of which measurements say nothing stays. It prints how far
times are off before and after, and how much slower than the best plan the chosen one is. Constants
of another GPU belong into a file of its own beside h200.h."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import groupby, product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.tuning.few_times import MODELS, Floats, Model, Rows, Values, counts

ROOT = Path(__file__).resolve().parents[2]
HEADER = ROOT / "src" / "tuning" / "h200.h"
SHAPES = "2048x2048,4096x4096,8192x8192,14336x4096,4096x14336,28672x8192"
SCHEMES = "mxfp4,nvfp4,mxfp6_e2m3,mxfp8_e4m3"
TOKENS = "8,16,24,32,48,64,96,128,192,256,1024"
NEAR_BEST = 1.3  # times the best of a product: what is fitted to


def constants_of(header: str) -> tuple[Values, dict[str, list[str]]]:
    """The constants of namespace few by name, "pairs_of_8.turn" for a member; and for each of its
    variables with members, in the order of the file, the names of them."""
    inside = header.split("namespace few {")[1].split("}  // namespace few")[0]
    text = re.sub(r"//.*", "", inside)
    structs = {"OfScheme": ["nvfp4", "six_bits", "eight_bits"]}
    for name, body in re.findall(r"struct (\w+) \{(.*?)\};", text, re.DOTALL):
        members = []
        for kind, names in re.findall(r"(double|OfScheme) ([^;]+);", body):
            for member in re.split(r",\s*", names.strip()):
                parts = structs["OfScheme"] if kind == "OfScheme" else [""]
                members += [f"{member}.{part}" if part else member for part in parts]
        structs[name] = members
    values: Values = {}
    shapes: dict[str, list[str]] = {}
    for kind, body in re.findall(r"inline constexpr (\w+) (.*?);", text, re.DOTALL):
        if kind == "double":
            values |= {n: float(v) for n, v in re.findall(r"(\w+)\s*=\s*([-\d.e]+)", body)}
        elif kind in structs:
            for name, given in re.findall(r"(\w+)\s*=\s*(\{(?:[^{}]|\{[^{}]*\})*\})", body):
                numbers = [float(v) for v in re.findall(r"-?\d[\d.]*(?:e-?\d+)?", given)]
                shapes[name] = structs[kind]
                values |= {
                    f"{name}.{member}": number
                    for member, number in zip(structs[kind], numbers, strict=True)
                }
    return values, shapes


def least_squares(
    residuals: Callable[[Floats], Floats], start: Floats, rounds: int = 200
) -> Floats:
    """Levenberg-Marquardt, the Jacobian from differences. A parameter without effect stays."""
    x, damping = start.copy(), 1e-3
    scale = np.maximum(np.abs(start), 1e-3 * max(np.abs(start).max(initial=0.0), 1e-9))
    scale = np.where(np.abs(start) > 0, np.abs(start), scale)
    now = residuals(x)
    for _ in range(rounds):
        columns = []
        for i in range(len(x)):
            moved = x.copy()
            moved[i] += 1e-6 * scale[i]
            columns.append((residuals(moved) - now) / 1e-6)
        jacobian = np.stack(columns, axis=1)
        normal, gradient = jacobian.T @ jacobian, jacobian.T @ now
        moves = np.diag(normal) > 1e-20
        if not moves.any():
            return x
        better = False
        while damping < 1e12:
            damped = normal + damping * np.diag(np.maximum(np.diag(normal), 1e-12))
            step = np.zeros(len(x))
            step[moves] = np.linalg.solve(damped[np.ix_(moves, moves)], -gradient[moves])
            after = residuals(x + step * scale)
            if np.all(np.isfinite(after)) and after @ after < now @ now:
                gained = 1 - (after @ after) / (now @ now)
                x, now, better = x + step * scale, after, True
                damping = max(damping / 10, 1e-12)
                break
            damping *= 10
        if not better or gained < 1e-10:
            break
    return x


def rows_of(records: Sequence[dict[str, Any]]) -> Rows:
    numbers = [key for key, value in records[0].items() if not isinstance(value, str)]
    rows = {key: np.array([r[key] for r in records], np.float64) for key in numbers}
    rows["sm90"] = np.array([r["kernel"] == "few_sm90" for r in records], np.float64)
    return counts(rows)


def selected(d: Rows, where: NDArray[np.bool_]) -> Rows:
    return {key: value[where] for key, value in d.items()}


def products_of(records: Iterable[dict[str, Any]]) -> list[int]:
    """For each record the number of its product."""
    keys: dict[tuple[Any, ...], int] = defaultdict(lambda: len(keys))
    names = ("scheme", "halves", "batch", "all_tokens", "down", "across")
    return [keys[tuple(r[name] for name in names)] for r in records]


def near_best(records: Sequence[dict[str, Any]], measured: Floats) -> NDArray[np.bool_]:
    products = np.array(products_of(records))
    best = np.full(products.max() + 1, np.inf)
    np.minimum.at(best, products, measured)
    return np.asarray(measured <= NEAR_BEST * best[products])


def _relative_errors(
    model: Model, names: Sequence[str], others: Values, rows: Rows, x: Floats
) -> Floats:
    values = others | dict(zip(names, x, strict=True))
    return model.time(values, rows) / rows["measured"] - 1


def fit(
    records: Sequence[dict[str, Any]], start: Values, say: Callable[[str], object] = print
) -> Values:
    """The constants with which times are closest to the measured ones of plans near the best."""
    d = rows_of(records)
    near = near_best(records, d["measured"])
    fitted = dict(start)
    for model in MODELS:
        where = model.is_for(d) & near
        names = [
            n for n in start if n.startswith(tuple(p for p in model.constants if p[-1] in "._"))
            or n in model.constants
        ]  # fmt: skip
        if where.sum() < 2 * len(names):
            say(f"{model.name}: {where.sum()} plans are too few for {len(names)} constants")
            continue
        of_model = selected(d, where)

        off = partial(_relative_errors, model, names, dict(fitted), of_model)
        x0 = np.array([start[n] for n in names])
        x = least_squares(off, x0)
        fitted |= {n: float(v) for n, v in zip(names, x, strict=True)}
        before, after = (np.sqrt(np.mean(off(v) ** 2)) for v in (x0, x))
        say(f"{model.name}: {where.sum()} plans, off by {before:.2%} before, {after:.2%} after")
    return fitted


def times_of(records: Sequence[dict[str, Any]], values: Values) -> Floats:
    d = rows_of(records)
    times = np.full(len(records), np.inf)
    for model in MODELS:
        where = model.is_for(d)
        if where.any():
            times[where] = model.time(values, selected(d, where))
    return times


def regret(records: Sequence[dict[str, Any]], values: Values) -> tuple[float, float]:
    """What the plans that would be chosen take longer than the best: on average, and at most."""
    products, times = np.array(products_of(records)), times_of(records, values)
    measured = np.array([r["measured"] for r in records])
    lost = []
    for number in range(products.max() + 1):
        own = np.flatnonzero(products == number)
        lost.append(measured[own[np.argmin(times[own])]] / measured[own].min() - 1)
    return float(np.mean(lost)), float(np.max(lost))


def as_cpp(values: Values, shapes: dict[str, list[str]]) -> str:
    """The constants as the header has them, to be put in its place."""

    def number(value: float) -> str:
        return f"{value:.4g}" if value == 0 or abs(value) >= 1e-3 else f"{value * 1e6:.4g}e-6"

    lines = []
    for name, members in shapes.items():
        numbers = ", ".join(number(values[f"{name}.{member}"]) for member in members)
        lines.append(f"{name} = {{{numbers}}}")
    lines += [f"{name} = {number(value)}" for name, value in values.items() if "." not in name]
    return "\n".join(lines)


def measure(path: Path, build: Path, given: argparse.Namespace) -> None:
    """Appends to the file, a product at a time, what few_token_times prints."""
    subprocess.run(["cmake", "--build", build, "--target", "few_token_times"], check=True)
    end = time.monotonic() + 60 * given.minutes
    done = {(r["shape"], r["scheme"], r["all_tokens"], r["halves"]) for r in read(path)}
    for shape, scheme in product(given.shapes.split(","), given.schemes.split(",")):
        tokens = [
            t for t in given.tokens.split(",") if (shape, scheme, int(t), given.halves) not in done
        ]
        command = [build / "tests" / "few_token_times", shape, scheme, ",".join(tokens)]
        if not tokens or time.monotonic() > end:
            continue
        with subprocess.Popen(
            [*command, *["float16"] * given.halves], stdout=subprocess.PIPE, text=True
        ) as program:
            assert program.stdout is not None
            lines = map(json.loads, program.stdout)
            for all_tokens, plans in groupby(lines, key=lambda r: r["all_tokens"]):
                of_product = [json.dumps(plan | {"shape": shape}) + "\n" for plan in plans]
                if time.monotonic() > end:
                    program.kill()
                    break
                with path.open("a") as file:
                    file.writelines(of_product)
                print(f"{shape} {scheme}, {all_tokens} tokens: {len(of_product)} plans", flush=True)
        if program.returncode != 0 and time.monotonic() <= end:
            sys.exit(f"bench.tuning.few_tokens: few_token_times ended with {program.returncode}")


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def print_fit(path: Path) -> None:
    records = read(path)
    if not records:
        sys.exit(f"bench.tuning.few_tokens: {path} has no measurements; run measure first")
    start, shapes = constants_of(HEADER.read_text())
    fitted = fit(records, start)
    for name, values in (("now", start), ("fitted", fitted)):
        mean, most = regret(records, values)
        print(f"chosen by the constants, {name}: {mean:.2%} over the best, {most:.2%} at most")
    print(as_cpp(fitted, shapes))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("step", nargs="?", choices=["measure", "fit"], help="both by default")
    parser.add_argument("file", nargs="?", type=Path, help="build/gpu/few_tokens.jsonl by default")
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "gpu")
    parser.add_argument("--minutes", type=float, default=60.0, help="that measuring may take")
    parser.add_argument("--shapes", default=SHAPES)
    parser.add_argument("--schemes", default=SCHEMES)
    parser.add_argument("--tokens", default=TOKENS)
    parser.add_argument("--halves", action="store_true", help="tokens are float16")
    given = parser.parse_args(arguments)
    path = given.file or given.build / "few_tokens.jsonl"
    if given.step != "fit":
        measure(path, given.build, given)
    if given.step != "measure":
        print_fit(path)


if __name__ == "__main__":
    main()
