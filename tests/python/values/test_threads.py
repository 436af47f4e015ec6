# tests/python/values/test_threads.py: calls from several threads at once, and after a fork.
from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import mxkern
from support import assert_same, available, mostly_slow, random_values, raw

LARGE = (300, 4096)  # enough elements for the library's own threads


def test_threads_at_once() -> None:
    inputs = [random_values(LARGE if i % 2 else (32, 64), "float32", i) for i in range(8)]
    weight = mxkern.quantize(random_values((40, 64), "float32"), "mxfp4")
    want = [mxkern.quantize(x, "nvfp4") for x in inputs]
    small = [i for i, x in enumerate(inputs) if x.shape[1] == 64]
    products = {i: mxkern.gemm(want[i], weight) for i in small}
    assert small
    start = threading.Barrier(8)

    def work(i: int) -> None:
        start.wait()
        for _ in range(5):
            q = mxkern.quantize(inputs[i], "nvfp4")
            assert_same(raw(q.codes), raw(want[i].codes), f"thread {i}")
            assert_same(mxkern.dequantize(q), mxkern.dequantize(want[i]), f"thread {i}")
            if i in products:
                assert_same(mxkern.gemm(q, weight), products[i], f"thread {i}")

    with ThreadPoolExecutor(8) as pool:
        for future in [pool.submit(work, i) for i in range(8)]:
            future.result()


@pytest.mark.parametrize("of", ["rows", "columns"])
def test_ends_that_another_thread_writes_to(of: str) -> None:
    """In a process of its own, which a product outside of its memory would end."""
    code = """if True:
        import sys, threading, numpy as np, mxkern
        shape = (3, 64, 512) if sys.argv[1] == "rows" else (64, 512)
        b = mxkern.quantize(np.ones(shape, np.float32), "mxfp4")
        x = np.arange(256, dtype=np.float32)[:, None].repeat(512, 1)
        ends = np.array([64, 192, 256], np.int32)
        want = mxkern.grouped_gemm(x, b, ends)
        done = threading.Event()
        def write():
            while not done.is_set():
                for end in (2**30, -(2**30), 192):
                    ends[1] = end
        sys.setswitchinterval(1e-5)
        threads = [threading.Thread(target=write) for _ in range(2)]
        [thread.start() for thread in threads]
        outcomes = set()
        for i in range(100):
            try:
                outcomes.add(bool((mxkern.grouped_gemm(x, b, ends) == want).all()))
            except ValueError as error:
                outcomes.add("ends[" in str(error))
        done.set()
        [thread.join() for thread in threads]
        ends[1] = 192
        print(outcomes, bool((mxkern.grouped_gemm(x, b, ends) == want).all()))
    """
    command = [sys.executable, "-c", code, of]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout) == (0, "{True} True\n"), done.stderr


def test_other_threads_run_during_a_large_call() -> None:
    x = random_values((4096, 4096), "float32")
    ticks = 0
    done = threading.Event()

    def tick() -> None:
        nonlocal ticks
        while not done.is_set():
            ticks += 1
            time.sleep(0)  # gives the lock away

    interval = sys.getswitchinterval()
    # Nobody takes the lock away within this time: the other thread runs only where it is given.
    sys.setswitchinterval(1000)
    ticker = threading.Thread(target=tick)
    try:
        ticker.start()
        before = ticks
        mxkern.quantize_both(x, "mxfp8")
        during = ticks - before
    finally:
        done.set()
        ticker.join()
        sys.setswitchinterval(interval)
    assert during > 0


FORK = """
import os
import numpy as np
import mxkern

x = np.random.default_rng(0).standard_normal((300, 4096), np.float32)
want = mxkern.quantize(x, "mxfp8").codes.view(np.uint8)
child = os.fork()
got = mxkern.quantize(x, "mxfp8")
same = np.array_equal(got.codes.view(np.uint8), want)
finite = bool(np.isfinite(mxkern.gemm(got, got)).all())
if child == 0:
    os._exit(0 if same and finite else 1)
print(same, finite, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_fork_after_the_workers_have_started() -> None:
    # In a process of its own: other libraries that are loaded here may not survive a fork.
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["True", "True", "0"], done.stderr


def run_with(said: str | None, code: str) -> str:
    """What a process prints that has this in MXKERN_NUM_THREADS."""
    environment = {k: v for k, v in os.environ.items() if k != "MXKERN_NUM_THREADS"}
    if said is not None:
        environment["MXKERN_NUM_THREADS"] = said
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


def test_threads_that_the_environment_says() -> None:
    code = "import mxkern; i = mxkern.info(); print(i.threads, i.threads_from)"
    every = run_with(None, code)
    assert int(every.split()[0]) <= len(os.sched_getaffinity(0))
    assert run_with("", code) == every
    for n in (1, 3, 4096):
        assert run_with(str(n), code) == f"{n} MXKERN_NUM_THREADS"


@pytest.mark.parametrize(
    "said",
    mostly_slow(["abc", "0", "-3", "1e3", "1e9", "99999999999", "2 ", "none"], "abc", "0"),
)
def test_what_is_no_number_of_threads(said: str) -> None:
    """An error of each call that needs the number, until the program gives one. Before, nothing is
    written."""
    code = """if True:
        import numpy as np, mxkern
        x = np.ones((300, 640), np.float32)
        out = mxkern.BlockScaled.from_parts(
            np.full((300, 640), 7, np.uint8), np.full((300, 20), 7, np.uint8), scheme="mxfp8_e4m3")
        matrices = mxkern.BlockScaled.from_parts(out.codes[None], out.scales[None], scheme="mxfp8")
        calls = [
            lambda: mxkern.quantize(x, "mxfp8", out=out),
            lambda: mxkern.quantize(x[:1, :32], "nvfp4"),
            lambda: mxkern.dequantize(out),
            lambda: mxkern.gemm(x, out),
            lambda: mxkern.grouped_gemm(x, matrices, np.array([300], np.int32)),
            mxkern.get_num_threads,
            mxkern.info,
        ]
        said = set()
        for call in [*calls, calls[0]]:
            try:
                call()
            except ValueError as error:
                said.add(str(error))
        print((out.codes.view(np.uint8) == 7).all(), len(said), *said)
        mxkern.set_num_threads(2)
        [call() for call in calls]
    """
    assert run_with(said, code) == (
        f"True 1 MXKERN_NUM_THREADS is '{said}'; expected a whole number from 1 to 4096; correct "
        "the environment variable, unset it, or call set_num_threads"
    )


def test_set_num_threads() -> None:
    before = mxkern.get_num_threads()
    x = random_values(LARGE, "float32")
    want = mxkern.quantize(x, "mxfp8")
    product = mxkern.gemm(want, want)
    try:
        for n in (1, 5, 2, np.int64(3), 4096, 1):
            mxkern.set_num_threads(n)
            assert mxkern.get_num_threads() == mxkern.info().threads == n
            if n < 10:
                assert_same(raw(mxkern.quantize(x, "mxfp8").codes), raw(want.codes), f"{n} threads")
                assert_same(mxkern.gemm(want, want), product, f"{n} threads")
        for bad in (0, -1, 4097, 2**70):
            with pytest.raises(ValueError, match=r"^set_num_threads: n is "):
                mxkern.set_num_threads(bad)
        for bad in (2.0, "2", None, True):
            with pytest.raises(TypeError, match=r"^set_num_threads: n is .*; expected an int"):
                mxkern.set_num_threads(bad)  # type: ignore[arg-type]
        assert mxkern.get_num_threads() == 1
    finally:
        mxkern.set_num_threads(before)


def test_set_num_threads_during_calls() -> None:
    """In a process of its own, whose first product has 6 threads to plan for."""
    code = """if True:
        import itertools, threading, numpy as np, mxkern
        from concurrent.futures import ThreadPoolExecutor
        mxkern.set_num_threads(6)
        x = np.random.default_rng(0).standard_normal((300, 4096), np.float32)
        want = mxkern.quantize(x, "nvfp4")
        product = mxkern.gemm(want, want)
        done = threading.Event()
        def change():
            for n in itertools.cycle((1, 7, 3, 6, 2)):
                if done.is_set():
                    return
                mxkern.set_num_threads(n)
        def work(_):
            same = True
            for _ in range(10):
                q = mxkern.quantize(x, "nvfp4")
                same &= np.array_equal(q.codes, want.codes)
                same &= np.array_equal(mxkern.gemm(q, q), product)
            return same
        changer = threading.Thread(target=change)
        changer.start()
        with ThreadPoolExecutor(4) as pool:
            print(all(pool.map(work, range(4))))
        done.set()
        changer.join()
    """
    assert run_with(None, code) == "True"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_keeps_the_number() -> None:
    code = "import os, mxkern; mxkern.set_num_threads(3);" + FORK.replace(
        "if child == 0:", "if child == 0 and mxkern.get_num_threads() == 3:"
    )
    assert run_with(None, code).split() == ["True", "True", "0"]


def test_threads_with_little_stack() -> None:
    """64 KiB, of which Python takes some. tests/cpu/runtime/stack_use_test.cc counts what the
    library takes by each instruction set."""
    code = """if True:
        import threading, numpy as np, mxkern
        x = np.random.default_rng(0).standard_normal((64, 256)).astype(np.float32)
        done = []
        def work():
            for scheme in {scheme.name for scheme in mxkern.schemes}:
                for options in ({}, {"rounding": "stochastic", "seed": 1}, {"hadamard": 32}):
                    mxkern.quantize(x, scheme, **options)
                    mxkern.quantize_columns(x, scheme, **options)
                    rows, _ = mxkern.quantize_both(x, scheme, **options)
                    if "hadamard" not in options:
                        mxkern.fake_quantize(x[:4, :64], scheme, **options)
                        mxkern.fake_quantize(x, scheme, **options)
                mxkern.dequantize(rows)
                for a in (rows, x, x[:3]):
                    mxkern.gemm(a, rows)
                    mxkern.explain_gemm(a, rows)
                prepared = mxkern.prepare_operand(x[None], scheme)
                for b in (prepared.source, prepared):
                    mxkern.grouped_gemm(x, b, np.array([40], np.int32))
                    mxkern.explain_grouped_gemm(x, b, np.array([40], np.int32))
                mxkern.grouped_gemm(rows, rows, np.array([32, 256], np.int32))
                mxkern.swizzle_scales(rows.scales)
                if mxkern.schemes[scheme].bits < 8:
                    mxkern.pack_codes(mxkern.unpack_codes(rows.codes, scheme), scheme)
                try:
                    mxkern.dequantize(rows.replace(codes=x))
                except TypeError:
                    done.append(scheme)
            for way in (mxkern.quantize, mxkern.quantize_columns):
                way(x, "nvfp4", block="16x16", four_over_six=True)
            mxkern.random_hadamard(x)
            mxkern.tensor_amax(x)
        mxkern.compare(x, "mxfp4")  # imports what it needs; its own work is NumPy's
        threading.stack_size(64 * 1024)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        print(len(done))
    """
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    names = {scheme.name for scheme in mxkern.schemes}
    assert (done.returncode, done.stdout) == (0, f"{len(names)}\n"), done.stderr


@pytest.mark.slow
@pytest.mark.skipif(not available("jax"), reason="jax is not installed")
def test_first_calls_with_jax_at_once() -> None:
    """Of threads that meet JAX together one tells it of mxkern's classes."""
    code = """if True:
        import threading, mxkern, jax, jax.numpy as jnp
        x = jnp.ones((4, 64))
        barrier, errors = threading.Barrier(8), []
        def call():
            barrier.wait()
            try:
                mxkern.quantize(x, "mxfp8")
            except Exception as error:
                errors.append(error)
        threads = [threading.Thread(target=call) for _ in range(8)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        print(errors)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stdout + done.stderr


@pytest.mark.slow
def test_daemon_threads_at_the_end_of_the_process() -> None:
    """They may be in the middle of a call, or come back from one when there is no interpreter."""
    code = """if True:
        import threading, time, numpy as np, mxkern
        x = np.ones((512, 2048), np.float32)
        w = mxkern.quantize(np.ones((512, 2048), np.float32), "mxfp8")
        def work():
            while True:
                mxkern.gemm(x, w)
                mxkern.quantize(x, "nvfp4")
        for _ in range(4):
            threading.Thread(target=work, daemon=True).start()
        time.sleep(0.2)
    """
    for _ in range(5):
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert (done.returncode, done.stderr) == (0, "")
