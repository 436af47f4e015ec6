# tests/bench/test_copy_speed.py: the copy that times are compared with, and how times are taken.
from types import SimpleNamespace

import numpy as np
import pytest

from bench import copy_speed


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_parallel_copy_copies_everything(threads):
    copy = copy_speed.ParallelCopy(1001, threads)
    for _, destination in copy._slices:
        destination[:] = 0
    copy()
    assert copy.bytes_moved == 2002 and sum(s.size for s, _ in copy._slices) == 1001
    assert all(np.array_equal(source, destination) for source, destination in copy._slices)


def test_best_times_takes_turns():
    calls = []
    times = copy_speed.best_times([lambda: calls.append(0), lambda: calls.append(1)], 0.0, least=3)
    assert calls == [0, 1] * 3 and len(times) == 2 and all(time > 0 for time in times)


@pytest.mark.parametrize(("busy", "waited"), [(0.0, 0.01), (0.11, 0.12), (9.0, 0.5)])
def test_what_is_timed_waits_for_busy_threads_of_the_process(monkeypatch, busy, waited):
    now = 0.0

    def sleep(seconds):
        nonlocal now
        now += seconds

    clock = SimpleNamespace(
        perf_counter=lambda: now, process_time=lambda: min(now, busy), sleep=sleep
    )
    monkeypatch.setattr(copy_speed, "time", clock)
    copy_speed.wait_until_idle()
    assert waited - 0.005 < now < waited + 0.015
