# tests/python/pytorch/parallel/parallel_cases.py: what several ranks have to show, as a program.
"""cd tests/python/pytorch/parallel
torchrun --nproc-per-node 2 parallel_cases.py --backend nccl
torchrun --nproc-per-node 4 parallel_cases.py --backend gloo --only "row"

Runs the cases in turn, on each rank, and ends with an error at the first one that fails. Tests
start it with gloo on the CPU and read the lines "passed NAME" (launched, below).
"""

from __future__ import annotations

import argparse
import ast
import fcntl
import os
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

CASES: dict[str, Callable[..., None]] = {}
SLOW: set[str] = set()  # more seconds than what runs every day
FOUR: set[str] = set()  # of a multiple of four ranks


def case(work: Callable[..., None]) -> Callable[..., None]:
    """A case: work(world), by its name."""
    CASES[work.__name__] = work
    return work


def slow_case(work: Callable[..., None]) -> Callable[..., None]:
    SLOW.add(work.__name__)
    return case(work)


def case_of_four(work: Callable[..., None]) -> Callable[..., None]:
    FOUR.add(work.__name__)
    return case(work)


class World:
    """The ranks of this run, and tensors that are the same on all of them."""

    def __init__(self, backend: str) -> None:
        import torch
        import torch.distributed as dist

        self.rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        local = int(os.environ.get("LOCAL_RANK", self.rank))
        self.type = "cuda" if backend == "nccl" else "cpu"
        self.device = torch.device(self.type, local) if self.type == "cuda" else torch.device("cpu")
        if self.type == "cuda":
            torch.cuda.set_device(self.device)
        backends = "cpu:gloo,cuda:nccl" if backend == "nccl" else backend
        dist.init_process_group(backends, timeout=timedelta(seconds=300))

    def mesh(self, *shape: int, names: tuple[str, ...] | None = None) -> Any:
        from torch.distributed.device_mesh import init_device_mesh

        return init_device_mesh(self.type, shape or (self.size,), mesh_dim_names=names)

    def normal(self, *shape: int, seed: int = 0, dtype: Any = None) -> Any:
        import torch

        made = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
        return made.to(self.device, dtype or torch.bfloat16)


def sqnr(want: Any, got: Any) -> float:
    """20 log10(|want| / |want - got|)."""
    import torch

    want, got = want.double(), got.double()
    return float(20 * torch.log10(want.norm() / (want - got).norm()))


def same(left: Any, right: Any, what: str = "") -> None:
    """Equal to the bit."""
    import torch

    assert left.shape == right.shape and left.dtype == right.dtype, (what, left, right)
    other = int((left.view(torch.uint8) != right.view(torch.uint8)).sum()) if left.numel() else 0
    assert other == 0, f"{what}: {other} bytes of {left.numel()} elements differ"


class Wire(TorchDispatchMode):
    """Bytes that a rank sends into all-gathers, and their number."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = self.calls = 0

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), more: Any = None
    ) -> Any:
        name = str(function)
        if "c10d" in name and ("all_gather" in name or "allgather" in name):
            sent = args[1] if "_allgather_base_" in name else args[0]
            parts = sent if isinstance(sent, (list, tuple)) else [sent]
            self.bytes += sum(part.nbytes for part in parts)
            self.calls += 1
        return function(*args, **(more or {}))


def refused(kind: type[Exception], call: Callable[[], Any], *parts: str) -> None:
    """call raises kind, with a message that holds all the parts."""
    try:
        call()
    except kind as error:
        for part in parts:
            assert part in str(error), f"{part!r} is not in: {error}"
    else:
        raise AssertionError(f"no {kind.__name__}: {parts}")


def names_of(module: str, kind: str = "case") -> list[str]:
    """The cases of a module and a kind, without an import of PyTorch."""
    tree = ast.parse((Path(__file__).parent / f"{module}.py").read_text())
    return [
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        and kind in [ast.unparse(decorator) for decorator in node.decorator_list]
    ]


def assert_passed(name: str, ranks: int, factory: Any, slow: bool = False) -> None:
    """That a case passed on all ranks. Cases of all modules run in one start of the ranks, as that
    takes seconds, and all of pytest's processes read its output."""
    folder = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    path = folder / f"parallel-{ranks}-{slow}.txt"
    with path.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if not path.read_text():
            path.write_text(launched(ranks, slow) + "\n")
    output = path.read_text()
    assert f"passed {name}\n" in output, output[-6000:]


def launched(ranks: int, slow: bool) -> str:
    """The output of processes of this machine that run the cases with gloo."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    command = [sys.executable, __file__, "--backend", "gloo"] + (["--slow"] if slow else [])
    alone = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(ranks)}
    few = {"MXKERN_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    running = [
        subprocess.Popen(
            command,
            env={**os.environ, **alone, **few, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(ranks)
    ]
    until = time.monotonic() + 570
    while any(process.poll() is None for process in running):
        failed = any(process.poll() not in (None, 0) for process in running)
        if failed or time.monotonic() > until:
            time.sleep(2)  # the others may have found the same fault
            for process in running:
                process.kill()
            break
        time.sleep(0.05)
    return "\n".join(process.communicate()[0] for process in running)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="gloo", choices=("gloo", "nccl"))
    parser.add_argument("--modules", default="tensor_parallel_cases,fsdp_cases,ddp_cases")
    parser.add_argument("--only", default="", help="part of the names of cases")
    parser.add_argument("--slow", action="store_true", help="only those that take long")
    parser.add_argument("--all", action="store_true", help="those that take long too")
    chosen = parser.parse_args()
    import importlib

    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    world = World(chosen.backend)
    registry = sys.modules["parallel_cases"] = sys.modules["__main__"]
    for module in chosen.modules.split(","):
        importlib.import_module(module)
    for name, work in registry.CASES.items():
        if chosen.only not in name or not (chosen.all or (name in SLOW) == chosen.slow):
            continue
        if name in FOUR and world.size % 4:
            continue
        start = time.process_time()
        try:
            work(world)
            if world.type == "cuda":
                torch.cuda.synchronize()
        except BaseException:
            print(f"FAILED {name} on rank {world.rank}", flush=True)
            traceback.print_exc(file=sys.stdout)
            sys.stdout.flush()
            os._exit(1)  # others may wait for this rank for ever
        dist.barrier()
        if world.rank == 0:
            print(f"passed {name}\n  {time.process_time() - start:.2f} s", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main()
