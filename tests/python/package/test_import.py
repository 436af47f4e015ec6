# tests/python/package/test_import.py: what importing mxkern does, and does not do.
from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "", done.stderr
    return done.stdout.strip()


def test_no_framework_is_imported() -> None:
    code = (
        "import sys, mxkern; mxkern.info(); print(mxkern.schemes);"
        "print([name for name in ('numpy', 'ml_dtypes', 'torch', 'jax') if name in sys.modules])"
    )
    assert run(code).splitlines()[-1] == "[]"


def test_importing_looks_at_no_machine() -> None:
    """Nor does it start CUDA: what it asks the library does not."""
    code = (
        "import os, mxkern; os.environ['MXKERN_NUM_THREADS'] = '1';"
        "from mxkern.arrays import numpy as numpy_arrays; print(mxkern.info().threads)"
    )
    assert run(code) == "1"


@pytest.mark.slow
def test_pytorch_loads_what_it_saved(tmp_path: Path) -> None:
    """Without being told to; where PyTorch comes last, once mxkern has met a tensor."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    import mxkern

    path = str(tmp_path / "q.pt")
    q = mxkern.quantize(torch.ones(2, 64), "nvfp4")
    torch.save({"w": q, "scheme": q.scheme}, path)
    load = f"q = torch.load({path!r}, weights_only=True)['w']; print(q.scheme, type(q).__name__)"
    orders = (
        "import torch, mxkern;",
        "import mxkern, torch; mxkern.quantize(torch.ones(1, 64), 'mxfp8');",
        "import mxkern.torch, torch;",
    )
    for order in orders:
        assert run(f"{order} {load}") == "nvfp4 BlockScaled", order


def test_numpy_calls_import_no_other_framework() -> None:
    code = (
        "import sys, numpy, mxkern;"
        "mxkern.dequantize(mxkern.quantize(numpy.ones((2, 32), 'f'), 'mxfp8'));"
        "print([name for name in ('torch', 'jax') if name in sys.modules])"
    )
    assert run(code) == "[]"


ROOMS = ("analysis", "checkpoints", "jax", "torch")


def test_rooms_are_imported_when_they_are_used() -> None:
    code = """if True:
        import sys, mxkern
        heavy = ["mxkern.analysis", "mxkern.checkpoints", "mxkern.torch", "jax", "numpy", "torch"]
        assert not {*heavy} & {*sys.modules}
        print(mxkern.analysis.compare.__name__, mxkern.checkpoints.convert_checkpoint.__name__)
        print([name for name in ("jax", "torch") if name in sys.modules])
    """
    assert run(code).splitlines() == ["compare convert_checkpoint", "[]"]


@pytest.mark.parametrize("name", ["jax", "torch"])
def test_a_framework_s_room_is_imported_when_it_is_used(name: str) -> None:
    pytest.importorskip(name, reason=f"{name} is not installed")
    function = {"jax": "dot", "torch": "linear"}[name]
    assert run(f"import mxkern; print(mxkern.{name}.{function}.__name__)") == function


def test_rooms_are_listed() -> None:
    import mxkern

    assert {*mxkern.__all__, *ROOMS} == {*dir(mxkern)}


# What a process does in which neither framework is installed.
WITHOUT = """if True:
    import sys
    class Nothing:
        def find_spec(self, name, path=None, target=None):
            if name.partition(".")[0] in ("jax", "torch"):
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    sys.meta_path.insert(0, Nothing())
    import mxkern
    try:
        USE
    except (AttributeError, ImportError) as error:
        print(f"{type(error).__name__}: {error}")
"""
NO_TORCH = "mxkern.torch needs PyTorch, which is not installed; install it with pip install torch"
NO_JAX = "mxkern.jax.dot needs JAX, which is not installed; install it with pip install jax"


@pytest.mark.parametrize(
    ("use", "says"),
    [
        ("mxkern.torch", f"AttributeError: mxkern.torch cannot be imported: {NO_TORCH}"),
        ("import mxkern.torch", f"ModuleNotFoundError: {NO_TORCH}"),
        ("from mxkern import torch", f"ModuleNotFoundError: {NO_TORCH}"),
        ("mxkern.jax.dot", f"ModuleNotFoundError: {NO_JAX}"),
        ("from mxkern.jax import dot", f"ModuleNotFoundError: {NO_JAX}"),
        ("print(hasattr(mxkern, 'torch'), mxkern.jax.mxfp8().forward)", "False quantized"),
    ],
)
def test_a_framework_that_is_missing_is_named(use: str, says: str) -> None:
    assert run(WITHOUT.replace("USE", use)) == says


def test_a_result_outlives_everything_else() -> None:
    code = (
        "import numpy, mxkern;"
        "q = mxkern.quantize(numpy.ones((300, 640), 'f'), 'nvfp4');"
        "print(float(mxkern.dequantize(q).sum()))"
    )
    assert run(code) == "192000.0"


def test_every_public_name_is_there() -> None:
    import mxkern

    for name in mxkern.__all__:
        assert getattr(mxkern, name) is not None
        thing = getattr(mxkern, name)
        if callable(thing) and not isinstance(thing, str):
            assert thing.__doc__, f"{name} has no docstring"


@pytest.mark.parametrize("first", ["", "import mxkern;"])
def test_subinterpreters_are_refused(first: str) -> None:
    """Types of compiled modules belong to the interpreter that made them; the process would end in
    a crash."""
    code = f"""
import importlib.util
{first}
names = ("_interpreters", "_xxsubinterpreters")
found = next(name for name in names if importlib.util.find_spec(name))
interpreters = importlib.import_module(found)
try:
    print(interpreters.run_string(interpreters.create(), "import mxkern"))
except RuntimeError as error:
    print(error)
"""
    # By the module, or by Python itself, which asks a module whether it may be loaded there.
    own, pythons = "mxkern: this is a subinterpreter", "does not support loading in subinterpreters"
    said = run(code)
    assert own in said or pythons in said


def test_importing_again() -> None:
    """Tests of other projects take modules away to have them imported anew; of compiled ones there
    is one a process."""
    code = """if True:
        import sys, mxkern
        def take():
            names = [name for name in sys.modules if name.partition(".")[0] == "mxkern"]
            return {name: sys.modules.pop(name) for name in names}
        first = take()
        for _ in range(2):
            try:
                import mxkern
            except ImportError as error:
                print(error)
        take()
        sys.modules.update(first)  # the way out
        import mxkern, numpy
        print(mxkern.quantize(numpy.ones((2, 64), "f"), "mxfp8").scheme)
    """
    *errors, scheme = run(code).splitlines()
    assert len(errors) == 2 and scheme == "mxfp8_e4m3"
    for error in errors:
        assert "taken out of sys.modules" in error and "start a new process" in error
